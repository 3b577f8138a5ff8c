// Calls of the public HTTP API, by URLs relative to this page, so that any prefix of a proxy works.

/**
 * A refusal of the API, in its own words (RFC 9457). Status 0: there was no answer, or with the kind "foreign" an answer of
 * something else, such as a proxy that requires a login.
 */
export class Problem extends Error {
  /**
   * @param {number} status
   * @param {{ type?: string, title?: string, detail?: string, field?: string }} reply
   * @param {number} [wait] seconds after which it may be asked again
   */
  constructor(status, reply, wait = 0) {
    super(reply.detail ?? reply.title ?? String(status));
    this.status = status;
    this.kind = (reply.type ?? "").split(":").pop() ?? "";
    this.field = reply.field;
    this.wait = wait;
  }
}

/** Called when the API requires a login. @type {{ ended: (problem: Problem) => void }} */
export const session = { ended: () => {} };

/** Called with the time of each answer, from its head. @type {{ date: (date: string) => void }} */
export const heard = { date: () => {} };

const LONGEST = 30_000; // ms to wait for an answer

/**
 * @typedef {{ query?: Record<string, unknown>, body?: unknown, headers?: Record<string, string>, signal?: AbortSignal }} Asked
 */

/**
 * Call the API, and return its answer; raises Problem, or the AbortError of `signal`.
 * @param {string} method
 * @param {string} path from the API's root, without a slash in front: `v1/overview`
 * @param {Asked} [asked]
 * @returns {Promise<any>}
 */
export async function ask(method, path, asked = {}) {
  const text = await askText(method, path, asked);
  return text === "" ? null : JSON.parse(text);
}

/**
 * The same as text, whose numbers have all their digits.
 * @param {string} method
 * @param {string} path
 * @param {Asked} [asked]
 * @returns {Promise<string>}
 */
export async function askText(method, path, { query, body, headers = {}, signal } = {}) {
  const timeout = AbortSignal.timeout(LONGEST);
  /** @type {RequestInit} */
  const init = { method, headers: { ...headers }, redirect: "manual", signal: signal ? AbortSignal.any([signal, timeout]) : timeout };
  if (body !== undefined) {
    init.headers = { ...headers, "content-type": "application/json" };
    init.body = JSON.stringify(body);
  }
  let answer;
  let text;
  try {
    answer = await fetch(`../${path}${queryText(query)}`, init);
    text = await answer.text();
    heard.date(answer.headers.get("date") ?? new Date().toUTCString());
  } catch (error) {
    if (signal?.aborted) throw error;
    throw new Problem(0, {});
  }
  const own = (answer.ok && text === "") || /json/.test(answer.headers.get("content-type") ?? "");
  if (answer.type === "opaqueredirect" || (!own && (answer.ok || [401, 403].includes(answer.status)))) {
    throw new Problem(0, { type: "foreign" });
  }
  if (answer.ok) return text;
  let reply;
  try {
    reply = JSON.parse(text);
  } catch {
    reply = { title: `${answer.status} ${answer.statusText}` }; // a proxy's answer, not the API's
  }
  const problem = new Problem(answer.status, reply ?? {}, Number(answer.headers.get("retry-after")));
  if (answer.status === 401) session.ended(problem);
  throw problem;
}

/**
 * The header with the reason, if the body has no place for it: headers are bytes, and these are UTF-8.
 * @param {string} reason
 * @returns {Record<string, string>}
 */
export function reasonHeader(reason) {
  return reason ? { "Delayq-Reason": String.fromCharCode(...new TextEncoder().encode(reason)) } : {};
}

/**
 * A query after its `?`; undefined and null are omitted. An empty text stays: to the API it may be a value, and a dropped
 * filter matches more than was meant.
 * @param {Record<string, unknown>} [query]
 */
export function queryText(query = {}) {
  const given = new URLSearchParams();
  for (const [name, value] of Object.entries(query)) {
    if (value !== undefined && value !== null) given.set(name, String(value));
  }
  return given.size ? `?${given}` : "";
}

/**
 * A path with its parts encoded: ids and topics may contain any character.
 * @param {TemplateStringsArray} fixed
 * @param {...unknown} parts
 */
export function at(fixed, ...parts) {
  return fixed.reduce((whole, one, i) => whole + encodeURIComponent(String(parts[i - 1])) + one);
}
