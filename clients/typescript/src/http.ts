import { errorOf, read, type Answer, type Check } from "./answers.js";
import { UnavailableError } from "./errors.js";
import { write } from "./json.js";

/** Options of a client. Times are in ms. */
export interface ClientOptions {
  /** Where the API is, for example `https://delayq.example.com`. */
  url: string;
  /** The key of the caller; an API on loopback needs none. */
  apiKey?: string;
  /** How long one attempt may take. Default: 10,000. */
  timeout?: number;
  /** How long a call is repeated after lost answers, 429 and 503. Default: 30,000. */
  giveUpAfter?: number;
  /** What sends the requests, for tests and proxies. Default: the global `fetch`. */
  fetch?: typeof globalThis.fetch;
}

/** A request: what one method of the client sends. */
export interface Call {
  method: "GET" | "POST" | "PUT" | "PATCH" | "DELETE";
  path: string;
  query?: Record<string, string | number | boolean | Date | readonly string[] | undefined>;
  headers?: Record<string, string | undefined>;
  body?: unknown;
  /** The body as JSON text, instead of `body`. */
  text?: string;
  /** Tells the answers of this call from those of another service. */
  check: Check;
  /** The ids of the messages in it, for errors. */
  ids?: readonly string[];
  /** How long the server may wait before it answers, ms. */
  extra?: number;
  /** Ends the call early. */
  signal?: AbortSignal | undefined;
}

const FIRST_PAUSE = 100;
const LONGEST_PAUSE = 5_000;

/** Statuses after which the same request is sent again. */
export function isRepeated(status: number): boolean {
  return status === 429 || status === 503;
}

/** How long a call may still go on, and how long it waits before its next attempt. */
export class Attempts {
  readonly #end: number;
  #pause = FIRST_PAUSE;

  constructor(giveUpAfter: number) {
    this.#end = performance.now() + giveUpAfter;
  }

  /** Wait before the next attempt; false if the time is over before that. `retryAfter` is in ms. */
  async next(retryAfter: number, signal?: AbortSignal): Promise<boolean> {
    const pause = Math.max(retryAfter, this.#pause * (0.5 + Math.random() / 2));
    this.#pause = Math.min(this.#pause * 2, LONGEST_PAUSE);
    if (performance.now() + pause > this.#end) return false;
    await sleep(pause, signal);
    return true;
  }
}

/** Sends requests, repeats those whose answer was lost, and turns problems into errors. */
export class Http {
  readonly giveUpAfter: number;
  readonly #url: string;
  readonly #headers: Record<string, string>;
  readonly #timeout: number;
  readonly #fetch: typeof globalThis.fetch;

  constructor(options: ClientOptions) {
    const url = new URL(options.url);
    if (url.protocol !== "http:" && url.protocol !== "https:") {
      throw new TypeError(`url: begins with http:// or https://; ${url.protocol}// does not`);
    }
    if (url.username || url.password) throw new TypeError("url: give the key as apiKey, not in the URL");
    if (url.search || url.hash) throw new TypeError("url: the URL of the API has no query and no fragment");
    if (options.apiKey && !/^[!-~]+$/.test(options.apiKey)) throw new TypeError("apiKey: has characters that no key has");
    this.#url = url.origin + url.pathname.replace(/\/+$/, "");
    this.#headers = options.apiKey ? { authorization: `Bearer ${options.apiKey}` } : {};
    this.#timeout = options.timeout ?? 10_000;
    this.giveUpAfter = options.giveUpAfter ?? 30_000;
    this.#fetch = options.fetch ?? globalThis.fetch;
  }

  /** The answer's JSON. Throws RefusedError, NotAllowedError or UnavailableError. */
  async send<Value>(call: Call, attempts = new Attempts(this.giveUpAfter)): Promise<Value> {
    const body = call.text ?? (call.body === undefined ? undefined : write(call.body));
    for (;;) {
      const answer = await this.#attempt(call, body);
      if ("lost" in answer) {
        if (await attempts.next(0, call.signal)) continue;
        throw new UnavailableError(`no answer from ${this.#url}: ${reasonOf(answer.lost)}`, call.ids, undefined, { cause: answer.lost });
      }
      const found = read(answer, this.#url, call.check);
      if ("value" in found) return found.value as Value;
      const isOver = !isRepeated(answer.status) || !(await attempts.next(answer.retryAfter, call.signal));
      if (isOver) throw errorOf(found.problem, call.ids);
    }
  }

  async #attempt(call: Call, body: string | undefined): Promise<(Answer & { retryAfter: number }) | { lost: unknown }> {
    const { signal } = call;
    signal?.throwIfAborted();
    // A timer and a listener of its own, so that nothing of the call is left after its end.
    const ending = new AbortController();
    const end = () => ending.abort(signal?.reason);
    const limit = this.#timeout + (call.extra ?? 0);
    const timer = setTimeout(() => ending.abort(new Error(`it took longer than ${limit} ms`)), limit);
    signal?.addEventListener("abort", end, { once: true });
    const init: RequestInit = { method: call.method, headers: this.#headersOf(call, body), signal: ending.signal, redirect: "manual" };
    if (body !== undefined) init.body = body;
    try {
      const response = await this.#fetch(this.#url + call.path + queryOf(call.query), init);
      const { status, headers, redirected, type } = response;
      const isRedirect = redirected || type === "opaqueredirect" || (status >= 300 && status < 400);
      const location = redirected ? response.url : headers.get("location") ?? (type === "opaqueredirect" ? "another URL" : "");
      if (isRedirect) await response.body?.cancel();
      return {
        status: redirected || type === "opaqueredirect" ? 302 : status,
        contentType: headers.get("content-type") ?? "",
        location: isRedirect ? location : "",
        text: isRedirect ? "" : await response.text(),
        retryAfter: secondsOf(headers.get("retry-after")),
      };
    } catch (error) {
      if (signal?.aborted) throw signal.reason;
      return { lost: ending.signal.aborted ? ending.signal.reason : error };
    } finally {
      clearTimeout(timer);
      signal?.removeEventListener("abort", end);
    }
  }

  #headersOf(call: Call, body: string | undefined): Record<string, string> {
    const headers: Record<string, string> = { accept: "application/json", ...this.#headers };
    if (body !== undefined) headers["content-type"] = "application/json";
    for (const [name, value] of Object.entries(call.headers ?? {})) if (value !== undefined) headers[name] = value;
    return headers;
  }
}

function reasonOf(error: unknown): string {
  const cause = error instanceof Error && error.cause instanceof Error && error.cause.message ? error.cause : error;
  return cause instanceof Error ? cause.message : String(cause);
}

function secondsOf(header: string | null): number {
  const seconds = Number(header);
  return Number.isFinite(seconds) && seconds > 0 ? seconds * 1_000 : 0;
}

function queryOf(query: Call["query"]): string {
  const params = new URLSearchParams();
  for (const [name, value] of Object.entries(query ?? {})) {
    if (value === undefined) continue;
    params.set(name, value instanceof Date ? value.toISOString() : Array.isArray(value) ? value.join(",") : String(value));
  }
  const text = params.toString();
  return text === "" ? "" : `?${text}`;
}

/** Wait so many ms. Rejects with the reason of the signal if that is aborted before. */
export function sleep(ms: number, signal?: AbortSignal): Promise<void> {
  return new Promise((resolve, reject) => {
    if (signal?.aborted) return reject(signal.reason);
    const abort = () => {
      clearTimeout(timer);
      reject(signal?.reason);
    };
    const timer = setTimeout(() => {
      signal?.removeEventListener("abort", abort);
      resolve();
    }, ms);
    signal?.addEventListener("abort", abort, { once: true });
  });
}
