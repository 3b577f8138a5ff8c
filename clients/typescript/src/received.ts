/** A message as a consumer received it, whatever broker brought it. */
export interface Received {
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

/** Headers as frameworks give them: a `Headers`, or an object of strings, bytes or lists of these. */
export type HeaderSource = Headers | Record<string, HeaderValue | readonly HeaderValue[] | undefined>;
type HeaderValue = string | Uint8Array | number;

/** The body as text (UTF-8). */
export function text(message: Received): string {
  return new TextDecoder("utf-8", { fatal: true }).decode(message.body);
}

/** The body as JSON. */
export function json<Value = unknown>(message: Received): Value {
  return JSON.parse(text(message)) as Value;
}

/** How often consumers handed the message back. */
export function handBacksOf(message: Received): number {
  return Number(message.properties["delayq-hand-backs"] ?? 0);
}

/** A message that arrived as a webhook. Check its signature first: `verifyWebhook`. */
export function readWebhook(headers: HeaderSource, body: Uint8Array | string): Received {
  const get = reader(headers);
  return {
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
  };
}

/** A message that a Kafka consumer received. `topic` is the one that it was read from. */
export function readKafka(topic: string, headers: HeaderSource, value: Uint8Array | string): Received {
  const get = reader(headers);
  const properties: Record<string, string> = {};
  for (const [name, property] of entries(headers)) {
    if (name.startsWith("p:")) properties[name.slice(2)] = property;
    else if (name === "traceparent") properties[name] = property;
  }
  return {
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
  };
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
  return {
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
  };
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
  return {
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
  };
}

/** The body as a request has it. JSON that JavaScript would change, such as a large number, stays text. */
export function bodyFields(message: Received): { body: unknown } | { bodyBase64: string } {
  const given = Buffer.from(message.body);
  const plain = given.toString("utf-8");
  if (message.contentType.startsWith("application/octet-stream") || !Buffer.from(plain).equals(given)) {
    return { bodyBase64: given.toString("base64") };
  }
  if (message.contentType.startsWith("application/json")) {
    const value: unknown = JSON.parse(plain);
    if (JSON.stringify(value) === plain) return { body: value };
  }
  return { body: plain };
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
