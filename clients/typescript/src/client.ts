import { randomUUID } from "node:crypto";

import { errorOf, fields, resultsOf, type Check } from "./answers.js";
import { Consumption, type ConsumeOptions, type Handler } from "./consume.js";
import { RefusedError, UnavailableError, type Problem } from "./errors.js";
import { Attempts, Http, isRepeated, type Call, type ClientOptions } from "./http.js";
import { RawJson, withField, write } from "./json.js";
import { bodyText, handBacksOf, Leased, type ReceivedFields } from "./received.js";
import type { components } from "./schema.js";

type Schemas = components["schemas"];

/** A time: RFC 3339 with its zone, or a Date. */
export type Time = string | Date;
/** A duration: text such as `30m` or `1h30m`, or ms. */
export type Duration = string | number;

/** When a message is due: exactly one of these. */
export interface Due {
  delayTime?: Duration;
  expectDate?: Time;
  /** One of RocketMQ's levels, 1 (1 s) to 18 (2 h). */
  delayLevel?: number;
}

/** A message to schedule. Fields are described at https://github.com/delayq/delayq, docs/http.md#schedule-a-message. */
export interface Message extends Due {
  topic: string;
  /** Text, bytes, a RawJson, or any value that JSON can write. */
  body?: unknown;
  /** Your own id. Without one the client makes a UUID before the call. */
  id?: string;
  tags?: string;
  keys?: readonly string[];
  properties?: Readonly<Record<string, string>>;
  orderingKey?: string;
  maxAttempts?: number;
  expireAfter?: Duration;
  window?: Duration;
  again?: boolean;
}

export type Scheduled = Schemas["ScheduledOut"];
export type Found = Schemas["StateOut"];
export type DeadLetter = Schemas["DeadLetterOut"];
/** A message to acknowledge, extend or hand back. */
export type LeaseOf = Pick<Leased, "id" | "lease">;
export type LeaseResult = Schemas["LeaseOut"];
export type Policy = Schemas["PolicyOut"];
export type Topic = Schemas["TopicOut"];
export type ConsumerGroup = Schemas["GroupOut"];

/** What became of one message of a batch, in the place of its request. */
export type ScheduleResult =
  | ({ ok: true; created: boolean } & Scheduled)
  | { ok: false; id: string; error: RefusedError | UnavailableError };

/** What became of one message that was to be cancelled, delivered now, redriven or discarded. */
export interface Result {
  id: string;
  /** For example `cancelled`, `inFlight`, `notFound`, `delivered`; `failed` if `problem` says why. */
  result: string;
  problem?: Problem;
}

/** What became of the messages of one business key. */
export interface KeyResult {
  key: string;
  messages: Result[];
  problem?: Problem;
}

/** Which messages: by ids, by business keys, or both. */
export interface Selection {
  ids?: readonly string[];
  keys?: readonly string[];
}

export interface Results {
  ids: Result[];
  keys: KeyResult[];
}

/** What a search looks for. Everything is optional. */
export interface Filter {
  topic?: string;
  tags?: string;
  state?: readonly string[];
  dueFrom?: Time;
  dueTo?: Time;
  property?: string;
  idPrefix?: string;
  key?: string;
}

export interface CallOptions {
  /** Ends the call early. The outcome is unknown then. */
  signal?: AbortSignal;
}

/** Why somebody changes something, for the audit. */
export interface ChangeOptions extends CallOptions {
  reason?: string;
}

/** For calls that a repeated attempt must not do again. */
export interface RepeatOptions extends ChangeOptions {
  /** A name of this call: 1 to 64 letters, digits, `_` and `-`. A repeated call with it gets the first answer. Default: a UUID. */
  call?: string;
}

/** How to receive. A new group begins at `start`: `beginning`, `end` or a time. `tags` are the filter of the group. */
export interface ReceiveOptions extends CallOptions {
  max?: number;
  wait?: Duration;
  lease?: Duration;
  start?: Time;
  tags?: readonly string[];
  /** A name of this call. Repeated with it, also by another process, the call gets the same messages. */
  call?: string;
}

const BATCH_MESSAGES = 1_000;
const BATCH_BYTES = 4 * 1024 * 1024;
const MOST_IDS = 1_000;
const MOST_KEYS = 100;
// The longest times that the server waits before it answers, ms.
const LONGEST_RECEIVE = 30_000;
const LONGEST_PAUSE = 60_000;

// The fields by which the answers of each call are known.
const MESSAGE = fields({ id: "string", state: "string" });
const CHANGED = fields({ changed: "boolean", version: "number" });

/**
 * A client of the HTTP API. One is enough for a process.
 *
 * Every call is repeated after a lost answer, 429 and 503, for at most `giveUpAfter` ms. This is safe: a message has its id
 * before the first attempt, and all other calls may be repeated.
 */
export class DelayqClient {
  readonly #http: Http;

  constructor(options: ClientOptions | string) {
    this.#http = new Http(typeof options === "string" ? { url: options } : options);
  }

  /** Schedule one message. `created` is false if an earlier attempt or call had scheduled it. */
  async schedule(message: Message, options: CallOptions = {}): Promise<Scheduled & { created: boolean }> {
    const [result] = await this.scheduleMany([message], options);
    if (result === undefined) throw new UnavailableError("the API answered no result");
    if (!result.ok) throw result.error;
    const { ok: _, ...scheduled } = result;
    return scheduled;
  }

  /**
   * Schedule many messages. The results have the order of the messages. A message that fails stops no other one.
   * A batch may have any size; the client splits it. It throws only when `options.signal` ends the call.
   */
  async scheduleMany(messages: readonly Message[], options: CallOptions = {}): Promise<ScheduleResult[]> {
    const results: ScheduleResult[] = [];
    for (const batch of split(messages.map(asRequest))) results.push(...(await this.#scheduleBatch(batch, options)));
    return results;
  }

  async #scheduleBatch(batch: readonly Request[], options: CallOptions): Promise<ScheduleResult[]> {
    try {
      const call = { method: "POST", path: "/v1/messages:batch", ...options } as const;
      const send = (open: readonly Request[]) => ({ ...call, text: messagesText(open), ids: open.map(({ id }) => id) });
      const items = await this.#sendItems<Request, Schemas["ItemOut"]>(batch, send, options.signal);
      return items.map((item, at) => asResult(item, (batch[at] as Request).id));
    } catch (error) {
      if (!(error instanceof RefusedError || error instanceof UnavailableError)) throw error;
      if (error instanceof RefusedError && error.status === 413 && batch.length > 1) {
        const half = Math.ceil(batch.length / 2);
        const halves = [batch.slice(0, half), batch.slice(half)] as const;
        return [...(await this.#scheduleBatch(halves[0], options)), ...(await this.#scheduleBatch(halves[1], options))];
      }
      return batch.map(({ id }) => ({ ok: false, id, error }));
    }
  }

  /** How a message stands; undefined if delayq does not know the id. `explain` adds what it waits for. */
  async get(id: string, options: CallOptions & { explain?: boolean } = {}): Promise<Found | undefined> {
    try {
      const query = { explain: options.explain };
      const check: Check = (answer) => MESSAGE(answer) && String(answer["id"]).startsWith(id); // an ordering key appends to the id
      return await this.#call<Found>({ method: "GET", path: `/v1/messages/${encodeURIComponent(id)}`, query, check, ...options });
    } catch (error) {
      if (error instanceof RefusedError && error.kind === "not-found") return undefined;
      throw error;
    }
  }

  /** The messages that match, page by page, earliest first. */
  search(filter: Filter = {}, options: CallOptions & { limit?: number } = {}): AsyncGenerator<Found, void, undefined> {
    return this.#pages("/v1/messages", { ...filter }, options, "messages");
  }

  /** How many messages match; `count` is null if nobody knows. */
  count(filter: Pick<Filter, "topic" | "tags" | "state" | "dueFrom" | "dueTo"> = {}, options: CallOptions = {}): Promise<Schemas["CountOut"]> {
    return this.#call({ method: "GET", path: "/v1/messages:count", check: fields({ exact: "boolean" }), query: { ...filter }, ...options });
  }

  /** How many messages fall due in each step. */
  forecast(
    range: { topic?: string; dueFrom?: Time; dueTo?: Time; step?: Duration } = {},
    options: CallOptions = {},
  ): Promise<Schemas["ForecastOut"]> {
    return this.#call({ method: "GET", path: "/v1/forecast", check: fields({ buckets: "list?", exact: "boolean" }), query: { ...range }, ...options });
  }

  /**
   * Cancel one message. `cancelled`: it is never delivered. `inFlight`: it is removed, but it may be or have been delivered.
   * All other results say why there is nothing to cancel: `delivered`, `dead`, `discarded`, `notFound`.
   */
  async cancel(id: string, options: ChangeOptions = {}): Promise<Result> {
    const { ids } = await this.cancelMany({ ids: [id] }, options);
    return first(ids);
  }

  /** Cancel messages by ids and business keys. */
  cancelMany(selection: Selection, options: ChangeOptions = {}): Promise<Results> {
    return this.#change("/v1/messages:cancel", selection, options);
  }

  /** Give a message another due time. Throws RefusedError with status 409 if the message may be on its way or has ended. */
  reschedule(id: string, due: Due, options: RepeatOptions = {}): Promise<Scheduled> {
    const body = { ...dueOf(due), ...reasonOf(options), ...callOf(options) };
    return this.#call({ method: "PATCH", path: `/v1/messages/${encodeURIComponent(id)}`, body, ids: [id], check: MESSAGE, ...options });
  }

  /** Deliver one message now. `force` also delivers a message that a pause or a limit holds. */
  deliverNow(id: string, options: RepeatOptions & { force?: boolean } = {}): Promise<Scheduled> {
    const body = { ...(options.force ? { force: true } : {}), ...reasonOf(options), ...callOf(options) };
    const path = `/v1/messages/${encodeURIComponent(id)}:deliverNow`;
    return this.#call({ method: "POST", path, body, ids: [id], check: MESSAGE, ...options });
  }

  /** Deliver messages now, by ids and business keys. */
  deliverNowMany(selection: Selection, options: RepeatOptions & { force?: boolean } = {}): Promise<Results> {
    return this.#change("/v1/messages:deliverNow", selection, options, { ...(options.force ? { force: true } : {}), ...callOf(options) });
  }

  /** Dead letters, page by page: the oldest first, or the newest. */
  deadLetters(
    filter: { topic?: string; reason?: string; group?: string; from?: Time; to?: Time; order?: "oldest" | "newest" } = {},
    options: CallOptions & { limit?: number } = {},
  ): AsyncGenerator<DeadLetter, void, undefined> {
    return this.#pages("/v1/dead-letters", filter, options, "deadLetters");
  }

  /** Dead letters by topic and reason, the largest group first. */
  deadLetterGroups(options: CallOptions & { limit?: number } = {}): Promise<Schemas["DeadGroupsOut"]> {
    return this.#call({ method: "GET", path: "/v1/dead-letters:groups", check: fields({ groups: "list" }), query: { limit: options.limit }, ...options });
  }

  /** Put dead letters back: they are due now. */
  async redrive(ids: readonly string[], options: RepeatOptions = {}): Promise<Result[]> {
    return (await this.#change("/v1/dead-letters:redrive", { ids }, options, callOf(options))).ids;
  }

  /** Delete dead letters for good. */
  async discard(ids: readonly string[], options: ChangeOptions = {}): Promise<Result[]> {
    return (await this.#change("/v1/dead-letters:discard", { ids }, options)).ids;
  }

  /** Pause the topics that match. It waits up to `wait` until nothing of them can arrive any more. */
  pauseTopics(match: string, options: ChangeOptions & { until?: Time | null; wait?: Duration } = {}): Promise<Schemas["PausedOut"]> {
    const body = { match, ...reasonOf(options), ...(options.until === undefined ? {} : { until: timeOf(options.until) }) };
    return this.#call({ method: "POST", path: "/v1/topics:pause", query: { wait: options.wait }, body, check: CHANGED, ...options, extra: waitOf(options.wait, 1_000, LONGEST_PAUSE) });
  }

  /** End the pause with this pattern; with `rate`, held messages come back at most so fast (messages a second). */
  resumeTopics(match: string, options: ChangeOptions & { rate?: number } = {}): Promise<Schemas["ResumedOut"]> {
    const body = { match, ...reasonOf(options), ...(options.rate === undefined ? {} : { rate: options.rate }) };
    return this.#call({ method: "POST", path: "/v1/topics:resume", body, check: CHANGED, ...options });
  }

  /** Topics with messages, pauses or policies, by name, page by page. */
  topics(
    filter: { match?: string; paused?: boolean } = {},
    options: CallOptions & { limit?: number } = {},
  ): AsyncGenerator<Topic, void, undefined> {
    const paused = filter.paused === undefined ? undefined : filter.paused ? "yes" : "no";
    return this.#pages("/v1/topics", { match: filter.match, paused }, options, "topics");
  }

  /** One topic: its counts, pause, policy and limit. */
  topic(topic: string, options: CallOptions = {}): Promise<Topic> {
    return this.#call({ method: "GET", path: `/v1/topics/${encodeURIComponent(topic)}`, check: fields({ topic: "string", held: "number" }), ...options });
  }

  /** Consumer groups by topic and name, page by page: how many messages each has not acknowledged, and the oldest of them. */
  consumers(
    filter: { match?: string } = {},
    options: CallOptions & { limit?: number } = {},
  ): AsyncGenerator<ConsumerGroup, void, undefined> {
    return this.#pages("/v1/consumers", filter, options, "groups");
  }

  /**
   * Receive messages of a topic as a consumer of a group. No other consumer of the group gets a message before its lease ends.
   * Its route must be a stream of delayq's own Redis. Call again after an empty answer.
   */
  async receive(topic: string, group: string, options: ReceiveOptions = {}): Promise<Leased[]> {
    const { signal, wait, lease, start, call, ...rest } = options;
    const body: Record<string, unknown> = { group, call: call ?? randomUUID(), ...rest };
    if (wait !== undefined) body["wait"] = durationOf(wait);
    if (lease !== undefined) body["lease"] = durationOf(lease);
    if (start !== undefined) body["start"] = timeOf(start);
    const check: Check = ({ messages }) => Array.isArray(messages) && messages.every(Leased.isOne);
    const path = verb(topic, "receive");
    const answer = await this.#call<Schemas["ReceivedOut"]>({ method: "POST", path, body, check, signal, extra: waitOf(wait, 0, LONGEST_RECEIVE) });
    return answer.messages.map((message) => new Leased(message));
  }

  /**
   * Call `handler` with each message of a topic, as a consumer of a group, until `options.signal` is aborted.
   *
   * A message is acknowledged when its handler ends, and handed back if it throws. Its lease is renewed while the handler runs, up
   * to `maxLease`. Messages of one ordering key are handled one after another. While the API is away or busy, the loop tries again;
   * it throws RefusedError if the API refuses to give messages. At the end it waits for the handlers that run.
   */
  async consume(topic: string, group: string, handler: Handler, options: ConsumeOptions = {}): Promise<void> {
    await new Consumption(this, topic, group, handler, options).run();
  }

  /** Acknowledge messages: the group does not receive them again. `lost`: another consumer may have the message. */
  ack(topic: string, group: string, messages: readonly LeaseOf[], options: CallOptions = {}): Promise<LeaseResult[]> {
    return this.#settle(verb(topic, "ack"), { group, messages: messages.map(leaseOf) }, options);
  }

  /** Let leases end later, or release messages unhandled with a `lease` of 0. */
  extend(topic: string, group: string, messages: readonly LeaseOf[], lease: Duration, options: CallOptions = {}): Promise<LeaseResult[]> {
    return this.#settle(verb(topic, "extend"), { group, messages: messages.map(leaseOf), lease: durationOf(lease) }, options);
  }

  /** Hand messages back: the group receives them again later, each time later than before, or after `delayTime`. */
  handBack(
    topic: string,
    group: string,
    messages: readonly LeaseOf[],
    options: CallOptions & { reason?: string; delayTime?: Duration } = {},
  ): Promise<LeaseResult[]> {
    const delay = options.delayTime === undefined ? {} : { delayTime: durationOf(options.delayTime) };
    const body = { group, messages: messages.map((one) => ({ ...leaseOf(one), ...reasonOf(options), ...delay })) };
    return this.#settle(verb(topic, "handBack"), body, options);
  }

  /**
   * Hand back messages that Kafka, RocketMQ, RabbitMQ or a webhook delivered, at most 1,000: each is delivered again, later each
   * time, or after `delayTime`. Acknowledge them in their broker then. `state` is `dead` after too many hand-backs.
   */
  async handBackDelivered(
    messages: readonly ReceivedFields[],
    options: CallOptions & { reason?: string; delayTime?: Duration } = {},
  ): Promise<ScheduleResult[]> {
    const delay = options.delayTime === undefined ? {} : { delayTime: durationOf(options.delayTime) };
    const requests = messages.map((message): Request => {
      const { id, topic, tags, keys, orderingKey, properties } = message;
      const handed = { id, topic, tags, keys, orderingKey, properties, handBacks: handBacksOf(message), ...reasonOf(options), ...delay };
      const [name, text, more] = bodyText(message);
      return { id, json: withField({ ...handed, ...more }, name, text) };
    });
    const call = { method: "POST", path: "/v1/messages:handBack", signal: options.signal } as const;
    const send = (open: readonly Request[]) => ({ ...call, text: messagesText(open), ids: open.map(({ id }) => id) });
    const items = await this.#sendItems<Request, Schemas["ItemOut"]>(requests, send, options.signal);
    return items.map((item, at) => asResult(item, (requests[at] as Request).id));
  }

  /** All policies in their order, pauses and temporary limits. */
  policies(options: CallOptions = {}): Promise<Schemas["PoliciesOut"]> {
    return this.#call({ method: "GET", path: "/v1/policies", check: fields({ policies: "list" }), ...options });
  }

  /** Create or replace a policy. With `version` it is changed only if the policies still have that version. */
  putPolicy(name: string, policy: Schemas["PolicyIn"], options: CallOptions & { version?: number } = {}): Promise<Schemas["PolicyChangedOut"]> {
    const path = `/v1/policies/${encodeURIComponent(name)}`;
    return this.#call({ method: "PUT", path, body: policy, check: CHANGED, headers: ifMatch(options.version), ...options });
  }

  /** Remove a policy. */
  deletePolicy(name: string, options: ChangeOptions & { version?: number } = {}): Promise<Schemas["PolicyChangedOut"]> {
    const headers = { ...ifMatch(options.version), "delayq-reason": options.reason };
    return this.#call({ method: "DELETE", path: `/v1/policies/${encodeURIComponent(name)}`, check: CHANGED, headers, ...options });
  }

  /** Who changed what, the newest first, page by page. */
  audit(
    filter: { id?: string; key?: string; topic?: string; actor?: string; action?: string; from?: Time; to?: Time } = {},
    options: CallOptions & { limit?: number } = {},
  ): AsyncGenerator<Schemas["AuditEntryOut"], void, undefined> {
    return this.#pages("/v1/audit", filter, options, "entries");
  }

  /** Each queue and all of them together. */
  queues(options: CallOptions = {}): Promise<Schemas["QueuesOut"]> {
    return this.#call({ method: "GET", path: "/v1/queues", check: fields({ queues: "list" }), ...options });
  }

  /** The workers. */
  async nodes(options: CallOptions = {}): Promise<Schemas["NodeOut"][]> {
    return (await this.#call<Schemas["NodesOut"]>({ method: "GET", path: "/v1/nodes", check: fields({ nodes: "list" }), ...options })).nodes;
  }

  /** The routes and their circuits. */
  async routes(options: CallOptions = {}): Promise<Schemas["RouteOut"][]> {
    return (await this.#call<Schemas["RoutesOut"]>({ method: "GET", path: "/v1/routes", check: fields({ routes: "list" }), ...options })).routes;
  }

  /** What is wrong, the worst first. An empty list means that all is well. */
  async status(options: CallOptions = {}): Promise<Schemas["FindingOut"][]> {
    return (await this.#call<Schemas["StatusOut"]>({ method: "GET", path: "/v1/status", check: fields({ findings: "list" }), ...options })).findings;
  }

  /** The figures of the service at a glance. */
  overview(options: CallOptions = {}): Promise<Schemas["OverviewOut"]> {
    return this.#call({ method: "GET", path: "/v1/overview", check: fields({ findings: "list", headLateness: "number" }), ...options });
  }

  /** The name and the rights of the key. */
  me(options: CallOptions = {}): Promise<Schemas["MeOut"]> {
    return this.#call({ method: "GET", path: "/v1/me", check: fields({ scopes: "object", version: "string" }), ...options });
  }

  #settle(path: string, body: { group: string; messages: readonly object[]; lease?: string }, options: CallOptions): Promise<LeaseResult[]> {
    const call = { method: "POST", path, signal: options.signal } as const;
    const send = (open: readonly object[]) => ({ ...call, body: { ...body, messages: open } });
    return this.#sendItems<object, LeaseResult>(body.messages, send, options.signal);
  }

  /** The items of all pages of a list. */
  async *#pages<Item>(
    path: string,
    filter: NonNullable<Call["query"]>,
    options: CallOptions & { limit?: number },
    list: string,
  ): AsyncGenerator<Item, void, undefined> {
    type Page = Record<string, readonly Item[]> & { nextPageToken?: string | null };
    const check = fields({ [list]: "list" });
    let pageToken: string | undefined;
    do {
      const query = { ...filter, limit: options.limit, pageToken };
      const page = await this.#call<Page>({ method: "GET", path, query, check, ...options });
      yield* page[list] as readonly Item[];
      pageToken = page.nextPageToken ?? undefined;
    } while (pageToken !== undefined);
  }

  #call<Answer>(call: Call, attempts?: Attempts): Promise<Answer> {
    return this.#http.send<Answer>(call, attempts);
  }

  async #change(path: string, selection: Selection, options: ChangeOptions, more: object = {}): Promise<Results> {
    const fields = { ...reasonOf(options), ...more };
    const results: Results = { ids: [], keys: [] };
    for (const part of chunks(selection.ids ?? [], MOST_IDS)) {
      const send = (ids: readonly string[]) => ({ method: "POST" as const, path, body: { ids, ...fields }, ids, ...options });
      const items = await this.#sendItems<string, Schemas["ResultOut"]>(part, send, options.signal);
      items.forEach((item, at) => results.ids.push(oneResult(item, part[at])));
    }
    for (const part of chunks(selection.keys ?? [], MOST_KEYS)) {
      const send = (keys: readonly string[]) => ({ method: "POST" as const, path, body: { keys, ...fields }, ...options });
      const items = await this.#sendItems<string, Schemas["ResultOut"]>(part, send, options.signal);
      items.forEach((item, at) => results.keys.push(keyResult(item, part[at])));
    }
    return results;
  }

  /** One answer for each item, in their order. Items that are answered with 429 or 503 are sent again while there is time. */
  async #sendItems<Item, Answer extends { status?: number; problem?: Problem }>(
    items: readonly Item[],
    send: (items: readonly Item[]) => Omit<Call, "check">,
    signal: AbortSignal | undefined,
  ): Promise<Answer[]> {
    const attempts = new Attempts(this.#http.giveUpAfter);
    const answers = new Map<number, Answer>();
    let places = items.map((_, place) => place);
    do {
      const call = { ...send(places.map((place) => items[place] as Item)), check: resultsOf(places.length) };
      const { results } = await this.#call<{ results: Answer[] }>(call, attempts);
      places.forEach((place, at) => answers.set(place, results[at] as Answer));
      places = places.filter((place) => isRepeated(statusOf(answers.get(place))));
    } while (places.length > 0 && (await attempts.next(0, signal)));
    return items.map((_, place) => answers.get(place) as Answer);
  }
}

/** A message with its id, as JSON text. */
interface Request {
  id: string;
  json: string;
}

function asRequest(message: Message): Request {
  const { body, keys, expireAfter, window, delayTime, expectDate, delayLevel, id: given, ...rest } = message;
  const id = given ?? randomUUID();
  const request: Record<string, unknown> = { id, ...rest, ...dueOf({ delayTime, expectDate, delayLevel } as Due) };
  if (keys !== undefined) request["keys"] = keys;
  if (expireAfter !== undefined) request["expireAfter"] = durationOf(expireAfter);
  if (window !== undefined) request["window"] = durationOf(window);
  if (body === undefined) return { id, json: write(request) };
  if (body instanceof RawJson) return { id, json: withField(request, "body", body.text) };
  if (body instanceof ArrayBuffer || ArrayBuffer.isView(body)) {
    const bytes = body instanceof ArrayBuffer ? Buffer.from(body) : Buffer.from(body.buffer, body.byteOffset, body.byteLength);
    return { id, json: withField(request, "bodyBase64", `"${bytes.toString("base64")}"`) };
  }
  return { id, json: write({ ...request, body }) };
}

function messagesText(requests: readonly Request[]): string {
  return `{"messages":[${requests.map(({ json }) => json).join(",")}]}`;
}

function verb(topic: string, name: string): string {
  return `/v1/topics/${encodeURIComponent(topic)}:${name}`;
}

function leaseOf({ id, lease }: LeaseOf): LeaseOf {
  return { id, lease };
}

function dueOf(due: Due): Record<string, unknown> {
  const fields: Record<string, unknown> = {};
  if (due.delayTime !== undefined) fields["delayTime"] = durationOf(due.delayTime);
  if (due.expectDate !== undefined) fields["expectDate"] = timeOf(due.expectDate);
  if (due.delayLevel !== undefined) fields["delayLevel"] = due.delayLevel;
  return fields;
}

/** How long the server may wait, ms: the usual time if no other was asked for, and the longest for texts that only it reads. */
function waitOf(wait: Duration | undefined, usual: number, longest: number): number {
  if (wait === undefined) return usual;
  const [, digits, unit] = /^(\d+)(ms|s|m)?$/.exec(String(wait)) ?? [];
  if (digits === undefined) return longest;
  return Math.min(Number(digits) * (unit === "s" ? 1_000 : unit === "m" ? 60_000 : 1), longest);
}

function durationOf(duration: Duration): string {
  return typeof duration === "number" ? `${duration}ms` : duration;
}

function timeOf(time: Time | null): string | null {
  return time instanceof Date ? time.toISOString() : time;
}

function reasonOf(options: ChangeOptions): { reason?: string } {
  return options.reason === undefined ? {} : { reason: options.reason };
}

/** The name of a call, made before its first attempt. */
function callOf(options: RepeatOptions): { call: string } {
  return { call: options.call ?? randomUUID() };
}

function ifMatch(version: number | undefined): Record<string, string | undefined> {
  return { "if-match": version === undefined ? undefined : String(version) };
}

function statusOf(answer: { status?: number; problem?: Problem } | undefined): number {
  return answer?.problem?.status ?? answer?.status ?? 200;
}

function split(requests: readonly Request[]): Request[][] {
  const batches: Request[][] = [];
  let bytes = 0;
  for (const request of requests) {
    const size = Buffer.byteLength(request.json) + 1;
    const last = batches.at(-1);
    if (last === undefined || last.length >= BATCH_MESSAGES || bytes + size > BATCH_BYTES) {
      batches.push([request]);
      bytes = size;
    } else {
      last.push(request);
      bytes += size;
    }
  }
  return batches;
}

function chunks<Item>(items: readonly Item[], size: number): Item[][] {
  const found: Item[][] = [];
  for (let at = 0; at < items.length; at += size) found.push(items.slice(at, at + size));
  return found;
}

function asResult(item: Schemas["ItemOut"], id: string): ScheduleResult {
  const { status, problem, ...scheduled } = item;
  if (problem) return { ok: false, id: item.id ?? id, error: errorOf(problem, [item.id ?? id]) };
  return { ok: true, created: status === 201, ...(scheduled as Scheduled) };
}

function oneResult(item: Schemas["ResultOut"], id: string | undefined): Result {
  const result = { id: item.id ?? id ?? "", result: item.result ?? "failed" };
  return item.problem ? { ...result, problem: item.problem } : result;
}

function keyResult(item: Schemas["ResultOut"], key: string | undefined): KeyResult {
  const result = { key: item.key ?? key ?? "", messages: (item.messages ?? []).map((one) => oneResult(one, one.id)) };
  return item.problem ? { ...result, problem: item.problem } : result;
}

function first(results: readonly Result[]): Result {
  const result = results[0];
  if (result === undefined) throw new UnavailableError("the API answered no result");
  return result;
}
