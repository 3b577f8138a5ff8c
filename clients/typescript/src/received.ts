import { isObject } from "./answers.js";
import type { components } from "./schema.js";

/** The fields of a message as a consumer received it, whatever broker brought it. */
export interface ReceivedFields {
  /** The id of the message, the same at each attempt. A message may arrive twice: remember the ids that you have handled. */
  id: string;
  topic: string;
  /** When it was to be delivered, Unix ms. */
  dueMs: number;
  /** 1 for the first attempt. */
  attempt: number;
  tags: string;
  keys: string[];
  orderingKey: string;
  properties: Record<string, string>;
  body: Uint8Array;
  /** Empty if the target does not carry it. */
  contentType: string;
}

/** A message with a body in bytes. */
abstract class WithBody {
  abstract readonly body: Uint8Array;

  /** The body as text. Throws TypeError if it is not UTF-8. */
  get text(): string {
    return text(this);
  }

  /** The value of a body in JSON. JavaScript rounds numbers above 2^53; `text` has all their digits. */
  json<Value = unknown>(): Value {
    return json<Value>(this);
  }
}

/** A message as a consumer received it, whatever broker brought it. */
export class Received extends WithBody implements ReceivedFields {
  declare readonly id: string;
  declare readonly topic: string;
  declare readonly dueMs: number;
  declare readonly attempt: number;
  declare readonly tags: string;
  declare readonly keys: string[];
  declare readonly orderingKey: string;
  declare readonly properties: Record<string, string>;
  declare readonly body: Uint8Array;
  declare readonly contentType: string;

  constructor(fields: ReceivedFields) {
    super();
    Object.assign(this, fields);
  }
}

/** A message that was received from delayq, with its lease. */
export class Leased extends WithBody {
  readonly id: string;
  readonly topic: string;
  /** Names this lease in `ack`, `extend` and `handBack`. */
  readonly lease: string;
  /** When it was to be delivered, RFC 3339 and Unix ms. */
  readonly dueTime: string;
  readonly dueMs: number;
  /** The attempts to deliver it to the stream; 1 for the first. */
  readonly attempt: number;
  /** How often the group has received it; 1 for the first. */
  readonly deliveries: number;
  /** How often the group has handed it back. */
  readonly handBacks: number;
  readonly tags: string;
  readonly keys: readonly string[];
  readonly orderingKey: string;
  readonly properties: Readonly<Record<string, string>>;
  readonly body: Uint8Array;

  constructor(message: components["schemas"]["ReceivedMessageOut"]) {
    super();
    this.id = message.id;
    this.topic = message.topic;
    this.lease = message.lease;
    this.dueTime = message.dueTime;
    this.dueMs = message.dueMs;
    this.attempt = message.attempt;
    this.deliveries = message.deliveries;
    this.handBacks = message.handBacks;
    this.tags = message.tags ?? "";
    this.keys = message.keys ?? [];
    this.orderingKey = message.orderingKey ?? "";
    this.properties = message.properties ?? {};
    this.body = message.bodyBase64 === undefined ? bytes(message.body ?? "") : new Uint8Array(Buffer.from(message.bodyBase64, "base64"));
  }

  /** Whether a value of an answer is a message with its lease. */
  static isOne(value: unknown): boolean {
    return isObject(value) && typeof value["id"] === "string" && typeof value["lease"] === "string";
  }
}

/** Headers as frameworks give them: a `Headers`, or an object of strings, bytes or lists of these. */
export type HeaderSource = Headers | Record<string, HeaderValue | readonly HeaderValue[] | undefined>;
type HeaderValue = string | Uint8Array | number;

/** The body as text (UTF-8). */
export function text(message: Pick<ReceivedFields, "body">): string {
  return new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(message.body);
}

/** The body as JSON. */
export function json<Value = unknown>(message: Pick<ReceivedFields, "body">): Value {
  return JSON.parse(text(message)) as Value;
}

/** How often consumers handed the message back. */
export function handBacksOf(message: Pick<ReceivedFields, "properties">): number {
  const count = message.properties["delayq-hand-backs"] ?? "";
  return /^\d{1,9}$/.test(count) ? Number(count) : 0;
}

/** A message that arrived as a webhook. Check its signature first: `verifyWebhook`. */
export function readWebhook(headers: HeaderSource, body: Uint8Array | string): Received {
  const get = reader(headers);
  return new Received({
    id: need(get("ce-id"), "ce-id"),
    topic: unquote(need(get("ce-type"), "ce-type")),
    dueMs: Date.parse(need(get("ce-time"), "ce-time")),
    attempt: Number(get("ce-attempt") ?? 1),
    tags: unquote(get("ce-tags") ?? ""),
    keys: words(unquote(get("ce-keys") ?? "")),
    orderingKey: unquote(get("ce-partitionkey") ?? ""),
    properties: JSON.parse(get("delayq-properties") ?? "{}") as Record<string, string>,
    body: bytes(body),
    contentType: get("content-type") ?? "",
  });
}

/** A message that a Kafka consumer received. `topic` is the one that it was read from. */
export function readKafka(topic: string, headers: HeaderSource, value: Uint8Array | string): Received {
  const get = reader(headers);
  const properties: Record<string, string> = {};
  for (const [name, property] of entries(headers)) {
    if (name.startsWith("p:")) properties[name.slice(2)] = property;
    else if (name === "traceparent") properties[name] = property;
  }
  return new Received({
    id: need(get("id"), "id"),
    topic: get("topic") ?? topic,
    dueMs: Number(need(get("due"), "due")),
    attempt: Number(get("attempt") ?? 1),
    tags: get("tags") ?? "",
    keys: words(get("keys") ?? ""),
    orderingKey: get("ordering-key") ?? "",
    properties,
    body: bytes(value),
    contentType: get("content-type") ?? "",
  });
}

/** What amqplib and others call the properties of a message. */
export interface AmqpProperties {
  messageId: string;
  type: string;
  contentType?: string;
  headers?: HeaderSource;
}

/** Headers that RabbitMQ adds when it delivers a message again, or when a queue gave it up. */
const BROKERS_HEADERS = /^x-(death|first-death-|last-death-|delivery-count|acquired-count|opt-)/;
const AMQP_HEADERS = new Set(["delayq-due", "delayq-attempt", "delayq-tags", "delayq-keys", "delayq-ordering-key"]);

/** A message that a RabbitMQ consumer received. */
export function readRabbitMq(properties: AmqpProperties, body: Uint8Array | string): Received {
  const headers = properties.headers ?? {};
  const get = reader(headers);
  return new Received({
    id: need(properties.messageId, "messageId"),
    topic: need(properties.type, "type"),
    dueMs: Number(need(get("delayq-due"), "delayq-due")),
    attempt: Number(get("delayq-attempt") ?? 1),
    tags: get("delayq-tags") ?? "",
    keys: words(get("delayq-keys") ?? ""),
    orderingKey: get("delayq-ordering-key") ?? "",
    properties: Object.fromEntries(entries(headers).filter(([name]) => !AMQP_HEADERS.has(name) && !BROKERS_HEADERS.test(name))),
    body: bytes(body),
    contentType: properties.contentType ?? "",
  });
}

/** What a RocketMQ consumer has of a message. */
export interface RocketMqMessage {
  topic: string;
  tag?: string | null;
  keys?: readonly string[] | string | null;
  messageGroup?: string | null;
  properties: HeaderSource;
  body: Uint8Array | string;
}

/** A message that a RocketMQ consumer received. */
export function readRocketMq(message: RocketMqMessage): Received {
  const get = reader(message.properties);
  const properties = Object.fromEntries(entries(message.properties).filter(([name]) => !name.startsWith("delayq_")));
  for (const name of JSON.parse(get("delayq_empty") ?? "[]") as string[]) properties[name] = "";
  return new Received({
    id: need(get("delayq_id"), "delayq_id"),
    topic: get("delayq_topic") ?? message.topic,
    dueMs: Number(need(get("delayq_due"), "delayq_due")),
    attempt: Number(get("delayq_attempt") ?? 1),
    tags: message.tag ?? "",
    keys: typeof message.keys === "string" ? words(message.keys) : [...(message.keys ?? [])],
    orderingKey: message.messageGroup ?? "",
    properties,
    body: bytes(message.body),
    contentType: "",
  });
}

/**
 * The field of a request that has the body, its JSON text, and more fields. The next delivery has the same bytes and the same content type:
 * JSON is sent as it is, because JavaScript would change numbers such as `1.0` and `12345678901234567890`. A JSON string is sent
 * as text with its content type, because the API takes a string as text otherwise.
 */
export function bodyText(message: ReceivedFields): [name: "body" | "bodyBase64", text: string, more: object] {
  const given = Buffer.from(message.body);
  const plain = given.toString("utf-8");
  const type = (message.contentType.split(";")[0] as string).trim().toLowerCase();
  if (type === "application/octet-stream" || !Buffer.from(plain).equals(given)) return ["bodyBase64", `"${given.toString("base64")}"`, {}];
  const kind = type === "application/json" ? kindOfJson(plain) : undefined;
  if (kind === undefined) return ["body", JSON.stringify(plain), {}];
  return kind === "string" ? ["body", JSON.stringify(plain), { contentType: type }] : ["body", plain, {}];
}

/** The `typeof` of the value of a JSON text; undefined if it is not JSON. */
function kindOfJson(text: string): string | undefined {
  try {
    return typeof JSON.parse(text);
  } catch {
    return undefined;
  }
}

/** The headers by name; the first value of each. */
export function reader(headers: HeaderSource): (name: string) => string | undefined {
  const found = new Map<string, string>();
  for (const [name, value] of entries(headers)) if (!found.has(name)) found.set(name, value);
  const lower = new Map([...found].map(([name, value]) => [name.toLowerCase(), value]));
  return (name) => found.get(name) ?? lower.get(name);
}

function entries(headers: HeaderSource): [string, string][] {
  if (headers instanceof Headers) return [...headers];
  const found: [string, string][] = [];
  for (const [name, value] of Object.entries(headers)) {
    const first = Array.isArray(value) ? (value as readonly HeaderValue[])[0] : (value as HeaderValue | undefined);
    if (first !== undefined) found.push([name, first instanceof Uint8Array ? new TextDecoder().decode(first) : String(first)]);
  }
  return found;
}

function need(value: string | undefined, name: string): string {
  if (value === undefined || value === "") throw new TypeError(`${name} is missing: delayq did not send this message`);
  return value;
}

function words(value: string): string[] {
  return value === "" ? [] : value.split(" ");
}

function unquote(value: string): string {
  return decodeURIComponent(value);
}

/** Bytes as they are, text as UTF-8. */
export function bytes(value: Uint8Array | string): Uint8Array {
  return typeof value === "string" ? new TextEncoder().encode(value) : value;
}
