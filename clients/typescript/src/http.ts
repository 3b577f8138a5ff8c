import { NotAllowedError, RefusedError, UnavailableError, type Problem } from "./errors.js";

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
  readonly #base: string;
  readonly #headers: Record<string, string>;
  readonly #timeout: number;
  readonly #fetch: typeof globalThis.fetch;

  constructor(options: ClientOptions) {
    const url = new URL(options.url);
    if (url.protocol !== "http:" && url.protocol !== "https:") {
      throw new TypeError(`url: begins with http:// or https://; ${url.protocol}// does not`);
    }
    if (url.username || url.password) throw new TypeError("url: give the key as apiKey, not in the URL");
    this.#base = url.origin + url.pathname.replace(/\/+$/, "");
    this.#headers = options.apiKey === undefined ? {} : { authorization: `Bearer ${options.apiKey}` };
    this.#timeout = options.timeout ?? 10_000;
    this.giveUpAfter = options.giveUpAfter ?? 30_000;
    this.#fetch = options.fetch ?? globalThis.fetch;
  }

  /** The answer's JSON. Throws RefusedError, NotAllowedError or UnavailableError. */
  async send<Answer>(call: Call, attempts = new Attempts(this.giveUpAfter)): Promise<Answer> {
    for (;;) {
      const { status, value, retryAfter, error } = await this.#attempt(call);
      if (status >= 200 && status < 300) return value as Answer;
      if (status !== 0 && !isRepeated(status)) throw refusal(asProblem(value, status), call.ids);
      if (!(await attempts.next(retryAfter, call.signal))) {
        const problem = status === 0 ? undefined : asProblem(value, status);
        if (status === 429 && problem) throw new RefusedError(problem, call.ids);
        const reason = problem?.detail ?? `no answer from ${this.#base}: ${String(error)}`;
        throw new UnavailableError(reason, call.ids, problem, { cause: error });
      }
    }
  }

  async #attempt(call: Call): Promise<{ status: number; value?: unknown; retryAfter: number; error?: unknown }> {
    const timeout = AbortSignal.timeout(this.#timeout + (call.extra ?? 0));
    const signal = call.signal === undefined ? timeout : anyOf([timeout, call.signal]);
    const init: RequestInit = { method: call.method, headers: this.#headersOf(call), signal, redirect: "error" };
    if (call.body !== undefined) init.body = JSON.stringify(call.body);
    try {
      const response = await this.#fetch(this.#base + call.path + queryOf(call.query), init);
      const text = await response.text();
      return { status: response.status, value: parse(text), retryAfter: secondsOf(response.headers.get("retry-after")) };
    } catch (error) {
      if (call.signal?.aborted) throw call.signal.reason;
      return { status: 0, error, retryAfter: 0 };
    }
  }

  #headersOf(call: Call): Record<string, string> {
    const headers: Record<string, string> = { accept: "application/json", ...this.#headers };
    if (call.body !== undefined) headers["content-type"] = "application/json";
    for (const [name, value] of Object.entries(call.headers ?? {})) if (value !== undefined) headers[name] = value;
    return headers;
  }
}

/** The error for a problem. */
export function refusal(problem: Problem, ids: readonly string[] = []): RefusedError {
  const allowed = problem.status !== 401 && problem.status !== 403;
  return allowed ? new RefusedError(problem, ids) : new NotAllowedError(problem, ids);
}

function asProblem(value: unknown, status: number): Problem {
  if (typeof value === "object" && value !== null && "detail" in value && "type" in value) return value as Problem;
  const detail = `The server answered ${status} without a problem of delayq; is this the URL of its API?`;
  return { type: "urn:delayq:problem:unknown", title: "Unknown answer", status, detail };
}

function parse(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
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

/** `AbortSignal.any`, which Node.js 18 lacks. */
function anyOf(signals: readonly AbortSignal[]): AbortSignal {
  const controller = new AbortController();
  for (const signal of signals) {
    if (signal.aborted) controller.abort(signal.reason);
    else signal.addEventListener("abort", () => controller.abort(signal.reason), { once: true, signal: controller.signal });
  }
  return controller.signal;
}

function sleep(ms: number, signal?: AbortSignal): Promise<void> {
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
