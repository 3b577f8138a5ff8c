import { randomUUID } from "node:crypto";

import { isPassing, isPassingStatus } from "./answers.js";
import type { CallOptions, DelayqClient, Duration, LeaseResult, ReceiveOptions } from "./client.js";
import { sleep } from "./http.js";
import type { Leased } from "./received.js";

/** How to consume. A new group begins at `start`. `tags` are the filter of the group. */
export interface ConsumeOptions extends Pick<ReceiveOptions, "start" | "tags"> {
  /** How many handlers run at the same time, at most 500. Default: 8. */
  concurrency?: number;
  /** How long a lease lasts, from 1 s. While a handler runs, the lease is renewed after each third of it. Default: 30 s. */
  lease?: Duration;
  /** How long the lease of one message is renewed, at most 12 h. Default: 1 h. */
  maxLease?: Duration;
  /** Ends the loop. The handlers that run may finish. */
  signal?: AbortSignal;
  /** What writes the warnings: an acknowledgement that is lost, a message that could not be settled. Default: `console.warn`. */
  log?: (warning: string) => void;
}

/** Whether the lease is lost, or its group was deleted. */
const isLost = ({ result }: LeaseResult): boolean => result === "lost" || result === "notFound";

/** Handles a message. Its `signal` is aborted when the lease of the message is lost, or is not renewed any more. */
export type Handler = (message: Leased, context: { signal: AbortSignal }) => unknown;

const LONGEST_LEASE = 12 * 3_600_000;
const MOST_HANDLERS = 500;
/** How long one call waits for messages, ms. */
const WAIT = 20_000;
/** Pauses while the API is away, ms. */
const FIRST_PAUSE = 500;
const LONGEST_PAUSE = 5_000;
/** How long the end of the loop looks for messages that an interrupted call leased, ms. */
const LONGEST_LOOK = 5_000;
const MOST_REASON = 200;

const UNITS: Readonly<Record<string, number>> = { ms: 1, s: 1_000, m: 60_000, h: 3_600_000, d: 86_400_000 };

/** A message whose lease this consumer has. */
interface Held {
  message: Leased;
  /** When it was received, by `performance.now()`. */
  since: number;
  handling: AbortController;
  isRunning: boolean;
  /** The lease is lost or too old, so that it is not renewed. */
  isLost: boolean;
  /** It was handled, and is to be acknowledged. */
  isDone: boolean;
}

/** The loop of one `consume`. */
export class Consumption {
  readonly #client: DelayqClient;
  readonly #topic: string;
  readonly #group: string;
  readonly #handler: Handler;
  readonly #options: ConsumeOptions;
  readonly #concurrency: number;
  readonly #lease: number;
  readonly #maxLease: number;
  readonly #log: (warning: string) => void;
  /** In the order of their arrival. */
  readonly #held = new Set<Held>();
  readonly #running = new Set<Promise<void>>();
  #done: Held[] = [];
  #isAcknowledging = false;
  #wake: () => void = () => undefined;

  constructor(client: DelayqClient, topic: string, group: string, handler: Handler, options: ConsumeOptions) {
    this.#client = client;
    this.#topic = topic;
    this.#group = group;
    this.#handler = handler;
    this.#options = options;
    this.#concurrency = options.concurrency ?? 8;
    this.#lease = msOf("lease", options.lease ?? 30_000);
    this.#maxLease = msOf("maxLease", options.maxLease ?? Math.max(3_600_000, this.#lease));
    this.#log = options.log ?? ((warning) => console.warn(warning));
    if (!Number.isInteger(this.#concurrency) || this.#concurrency < 1 || this.#concurrency > MOST_HANDLERS) {
      throw new TypeError(`concurrency: is a number from 1 to ${MOST_HANDLERS}`);
    }
    if (this.#maxLease < this.#lease || this.#maxLease > LONGEST_LEASE) throw new TypeError("maxLease: is at least the lease, and at most 12 h");
  }

  async run(): Promise<void> {
    const signal = this.#options.signal ?? new AbortController().signal;
    const ended = new AbortController();
    const stop = () => this.#wake();
    signal.addEventListener("abort", stop, { once: true });
    const renewing = this.#renew(ended.signal);
    try {
      await this.#receive(signal);
    } finally {
      signal.removeEventListener("abort", stop);
      await this.#release([...this.#held].filter((one) => !one.isRunning));
      while (this.#running.size > 0) await Promise.all(this.#running);
      ended.abort();
      await renewing;
      const done = this.#done.splice(0).map(({ message }) => message);
      if (done.length > 0) await this.#settle(done, () => this.#client.ack(this.#topic, this.#group, done));
    }
  }

  /** Receive messages until the signal is aborted, or the API refuses the call. */
  async #receive(signal: AbortSignal): Promise<void> {
    let pause = FIRST_PAUSE;
    let call = randomUUID();
    const { start, tags } = this.#options;
    const more = { ...(start === undefined ? {} : { start }), ...(tags === undefined ? {} : { tags }) };
    while (!signal.aborted) {
      const max = this.#room();
      if (max === 0) {
        await new Promise<void>((resolve) => (this.#wake = resolve));
        await new Promise((resolve) => setImmediate(resolve)); // handlers that end together make room for one call
        continue;
      }
      const options = { max, lease: this.#lease, call, ...more };
      try {
        const messages = await this.#client.receive(this.#topic, this.#group, { ...options, wait: WAIT, signal });
        this.#add(messages, !signal.aborted);
        pause = FIRST_PAUSE;
        call = randomUUID();
      } catch (error) {
        if (signal.aborted) return await this.#releaseInterrupted(options);
        if (!isPassing(error)) throw error;
        this.#log(`delayq: cannot receive messages of ${this.#topic}, trying again: ${error.message}`);
        await sleep(pause, signal).catch(() => undefined);
        pause = Math.min(2 * pause, LONGEST_PAUSE);
      }
    }
  }

  /** Give back what the interrupted call leased: a repeated call gets the same messages. */
  async #releaseInterrupted(options: ReceiveOptions): Promise<void> {
    const ending = new AbortController();
    const timer = setTimeout(() => ending.abort(), LONGEST_LOOK);
    try {
      this.#add(await this.#client.receive(this.#topic, this.#group, { ...options, wait: 0, signal: ending.signal }), false);
    } catch {
      // Their leases end, and the group receives them again.
    } finally {
      clearTimeout(timer);
    }
  }

  /** How many more messages there is work for. Messages behind others of their ordering keys do not count as work. */
  #room(): number {
    return Math.max(0, Math.min(this.#concurrency - this.#running.size, 2 * this.#concurrency - this.#held.size));
  }

  #add(messages: readonly Leased[], start: boolean): void {
    const since = performance.now();
    for (const message of messages) this.#held.add({ message, since, handling: new AbortController(), isRunning: false, isLost: false, isDone: false });
    if (start) this.#start();
  }

  /** Start handlers: messages of one ordering key run one after another, in their order. */
  #start(): void {
    const keys = new Set<string>();
    for (const one of this.#held) {
      if (one.isDone) continue;
      const key = one.message.orderingKey;
      const isBehind = key !== "" && keys.has(key);
      keys.add(key);
      if (one.isRunning || isBehind || this.#running.size >= this.#concurrency) continue;
      one.isRunning = true;
      const running = this.#handle(one).finally(() => {
        this.#running.delete(running);
        if (!this.#options.signal?.aborted) this.#start();
        this.#wake();
      });
      this.#running.add(running);
    }
  }

  async #handle(one: Held): Promise<void> {
    const { message } = one;
    try {
      await this.#handler(message, { signal: one.handling.signal });
    } catch (error) {
      this.#held.delete(one);
      await this.#settle([message], () => this.#client.handBack(this.#topic, this.#group, [message], { reason: reasonOf(error) }));
      return;
    }
    one.isDone = true;
    this.#done.push(one);
    await this.#acknowledge();
  }

  /** Acknowledge what is done. Handlers that end during the call leave their messages to the one that made it. */
  async #acknowledge(): Promise<void> {
    if (this.#isAcknowledging) return;
    this.#isAcknowledging = true;
    try {
      while (this.#done.length > 0) {
        const done = this.#done.splice(0);
        for (const one of done) this.#held.delete(one);
        const messages = done.map(({ message }) => message);
        let results: LeaseResult[];
        try {
          results = await this.#client.ack(this.#topic, this.#group, messages);
        } catch (error) {
          if (!isPassing(error)) {
            await this.#settle(messages, () => Promise.reject(error));
            continue;
          }
          return this.#keep(done, error.message);
        }
        const isFailed = (at: number) => isPassingStatus(results[at]?.problem?.status ?? 200);
        await this.#settle(messages.filter((_, at) => !isFailed(at)), () => Promise.resolve(results.filter((_, at) => !isFailed(at))));
        const failed = results.findIndex((_, at) => isFailed(at));
        if (failed >= 0) return this.#keep(done.filter((_, at) => isFailed(at)), results[failed]?.problem?.detail ?? "");
      }
    } finally {
      this.#isAcknowledging = false;
    }
  }

  /** Keep messages that could not be acknowledged: their leases are renewed until the API is back. */
  #keep(messages: readonly Held[], why: string): void {
    this.#log(`delayq: cannot acknowledge messages of ${this.#topic}, trying again: ${why}`);
    for (const one of messages) this.#held.add(one);
    this.#done.unshift(...messages);
  }

  /** Acknowledge or hand back messages. What is lost is logged; other messages are handled all the same. */
  async #settle(messages: readonly Leased[], call: () => Promise<LeaseResult[]>): Promise<void> {
    try {
      (await call()).forEach((result, at) => {
        const id = (messages[at] as Leased).id;
        if (isLost(result)) this.#log(`delayq: the lease of message ${id} was lost before the message was settled, and it may be received again`);
        else if (result.problem) this.#log(`delayq: message ${id} could not be settled, and is received again: ${result.problem.detail}`);
      });
    } catch (error) {
      const ids = messages.map(({ id }) => id).join(", ");
      this.#log(`delayq: message ${ids} could not be settled, and is received again: ${textOf(error)}`);
    }
  }

  /** Renew the leases of all messages together, after each third of a lease. */
  async #renew(ended: AbortSignal): Promise<void> {
    let next = performance.now();
    while (!ended.aborted) {
      next = Math.max(next + this.#lease / 3, performance.now());
      await sleep(next - performance.now(), ended).catch(() => undefined);
      if (ended.aborted) return;
      const now = performance.now();
      for (const one of [...this.#held].filter(({ since }) => now - since >= this.#maxLease)) {
        this.#lose(one, `is not renewed any more, because maxLease (${this.#maxLease} ms) is over`);
      }
      const held = [...this.#held].filter(({ since, isLost }) => !isLost && now + this.#lease <= since + this.#maxLease);
      if (held.length === 0) continue;
      try {
        const messages = held.map(({ message }) => message);
        const options: CallOptions = { signal: ended };
        const results = await this.#client.extend(this.#topic, this.#group, messages, this.#lease, options);
        results.forEach((result, at) => {
          if (isLost(result)) this.#lose(held[at] as Held, "was lost, and it may be received again");
        });
        await this.#acknowledge(); // what could not be acknowledged while the API was away
        if (!this.#options.signal?.aborted) this.#start(); // messages that are gone may have been in the way of others
        this.#wake();
      } catch (error) {
        if (!ended.aborted) this.#log(`delayq: cannot renew the leases of ${held.length} messages of ${this.#topic}: ${textOf(error)}`);
      }
    }
  }

  /** Renew the lease of a message no more, unless the message was settled meanwhile. Its handler learns it from the signal. */
  #lose(one: Held, why: string): void {
    if (one.isLost || !this.#held.has(one)) return;
    one.isLost = true;
    this.#log(`delayq: the lease of message ${one.message.id} ${why}`);
    one.handling.abort(new Error(`the lease of message ${one.message.id} ${why}`));
    if (!one.isRunning) this.#held.delete(one);
  }

  /** Give messages that no handler has begun to other consumers. */
  async #release(left: readonly Held[]): Promise<void> {
    for (const one of left) this.#held.delete(one);
    const messages = left.map(({ message }) => message);
    if (messages.length > 0) await this.#settle(messages, () => this.#client.extend(this.#topic, this.#group, messages, 0));
  }
}

function msOf(name: string, duration: Duration): number {
  const text = typeof duration === "number" ? `${duration}ms` : duration;
  if (!/^(\d{1,15}(ms|s|m|h|d))+$/.test(text)) throw new TypeError(`${name}: use a duration such as "30s" or "1h30m", or ms`);
  return [...text.matchAll(/(\d+)(ms|s|m|h|d)/g)].reduce((sum, [, count, unit]) => sum + Number(count) * (UNITS[unit as string] as number), 0);
}

/** The reason of a hand-back: whatever a handler threw, as one line. */
function reasonOf(error: unknown): string {
  const line = textOf(error).split(/\s+/).filter(Boolean).join(" ");
  return [...Buffer.from(line).toString()].slice(0, MOST_REASON).join("");
}

function textOf(error: unknown): string {
  try {
    return error instanceof Error ? `${error.name}: ${error.message}` : String(error);
  } catch {
    return "the handler threw an object without a text";
  }
}
