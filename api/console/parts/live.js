// The data of every page: the caller, and the overview, requested every 2 s while somebody looks.

import { ask, heard, Problem } from "./server.js";
import { makeStore } from "./store.js";

const EVERY = 2_000; // ms

/**
 * @typedef {{ name: string | null, scopes: Record<string, string[]>, version: string, console: string, session?: boolean }} Me
 * @typedef {{ data: any, at: number, problem: Problem | null }} Live  `at` of the data, by this page's own steady clock
 */

/** The caller; null until it is known. @type {import("./store.js").Store<Me | null>} */
export const me = makeStore(/** @type {Me | null} */ (null));

/** The last overview. @type {import("./store.js").Store<Live>} */
export const live = makeStore(/** @type {Live} */ ({ data: null, at: 0, problem: null }));

// The server's clock is computed from its last answer and the time since then: the browser's may be hours off.
let serverThen = Date.now();
let steadyThen = performance.now();
let exact = false; // whether the overview has set it, to the ms

/** Unix ms by the server's clock. */
export function serverNow() {
  return serverThen + (performance.now() - steadyThen);
}

/** @param {string} now as the overview has it, RFC 3339, or as the heads of all answers have it, in whole seconds */
function hearClock(now) {
  const then = Date.parse(now);
  if (Number.isNaN(then)) return; // a date of a proxy
  serverThen = then;
  steadyThen = performance.now();
}

// A key that may not read the overview has the time from any answer.
heard.date = (date) => !exact && hearClock(date);

/**
 * Whether the caller may do that, on a topic or on some: other actions are not offered. The server refuses them anyway.
 * @param {string} scope
 * @param {string} [topic]
 */
export function may(scope, topic) {
  const one = me.get();
  if (one === null || (one.console === "readOnly" && scope !== "read")) return false;
  return Object.entries(one.scopes).some(
    ([pattern, scopes]) => scopes.includes(scope) && (topic === undefined || covers(pattern, topic)),
  );
}

/**
 * Whether it may do so on all topics.
 * @param {string} scope
 */
export function mayEverywhere(scope) {
  const one = me.get();
  return may(scope) && (one?.scopes["*"] ?? []).includes(scope);
}

/**
 * Whether a pattern covers a topic, or everything that another pattern covers: a star there is more than one character.
 * @param {string} pattern with * and ?
 * @param {string} topic
 */
export function covers(pattern, topic) {
  const source = pattern.replace(/[.+^${}()|[\]\\]/g, "\\$&").replaceAll("*", ".*").replaceAll("?", "[^*]");
  return new RegExp(`^${source}$`, "s").test(topic);
}

/** Read the caller; false if the API needs a key first. Other problems are raised. */
export async function hello() {
  try {
    me.set(await ask("GET", "v1/me"));
    return true;
  } catch (error) {
    if (error instanceof Problem && error.status === 401) return false;
    throw error;
  }
}

// All tabs share the cookie, and each shows the caller that it acts for. Data of one prefix of a proxy are for its own pages.
const tabs = new BroadcastChannel(`delayq ${new URL("../", location.href).pathname}`);
tabs.onmessage = () => location.reload();
// A page that the browser had suspended received nothing.
addEventListener("pageshow", (event) => event.persisted && location.reload());

/** Notify the other tabs that a session has begun or ended: they load again. */
export function tellTabs() {
  tabs.postMessage("session");
}

/** The current request. @type {Promise<void> | null} */
let looking = null;
let looked = -EVERY; // when the last one ended
let timer = 0;

/** Look now. */
export function look() {
  looking ??= lookOnce().finally(() => {
    looking = null;
    looked = performance.now();
  });
  return looking;
}

async function lookOnce() {
  if (me.get() === null) return;
  try {
    // The overview is of all topics. A key of some topics shows which of them are paused.
    const everywhere = mayEverywhere("read");
    const data = everywhere ? await ask("GET", "v1/overview") : { pauses: (await ask("GET", "v1/policies")).pauses };
    exact = everywhere;
    if (everywhere) hearClock(data.now);
    live.set({ data, at: performance.now(), problem: null });
  } catch (error) {
    if (!(error instanceof Problem)) throw error;
    live.set({ ...live.get(), problem: error });
  }
}

/**
 * Call it in this many ms, or as soon after that as the page is visible.
 * @param {() => unknown} call
 * @param {number} ms
 */
export function whenSeen(call, ms) {
  setTimeout(() => {
    if (document.visibilityState === "visible") call();
    else document.addEventListener("visibilitychange", call, { once: true });
  }, ms);
}

function again() {
  clearTimeout(timer);
  if (document.visibilityState !== "visible" || me.get() === null) return;
  // From the end of one request to the beginning of the next: a slow API gets no more requests, even if readers come and go.
  const left = looked + EVERY - performance.now();
  if (left > 0) timer = setTimeout(again, left);
  else void look().finally(again);
}

/** Request it repeatedly while the page is visible; a hidden page requests nothing. */
export function keepLooking() {
  looked = -EVERY;
  document.addEventListener("visibilitychange", again);
  again();
}
