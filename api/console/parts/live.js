// What every page shows: who this is, and the overview, asked for every 2 s while somebody looks.

import { ask, heard, Problem } from "./server.js";
import { makeStore } from "./store.js";

const EVERY = 2_000; // ms

/**
 * @typedef {{ name: string | null, scopes: Record<string, string[]>, version: string, console: string, session?: boolean }} Me
 * @typedef {{ data: any, at: number, problem: Problem | null }} Live  `at` of the data, by this page's own steady clock
 */

/** Who asks; null until that is known. @type {import("./store.js").Store<Me | null>} */
export const me = makeStore(/** @type {Me | null} */ (null));

/** The overview as it was heard last. @type {import("./store.js").Store<Live>} */
export const live = makeStore(/** @type {Live} */ ({ data: null, at: 0, problem: null }));

// The server's clock is told by what it said and how long ago that was: the browser's may be hours off.
let serverThen = Date.now();
let steadyThen = performance.now();
let exact = false; // whether the overview has told it, to the ms

/** Unix ms by the server's clock. */
export function serverNow() {
  return serverThen + (performance.now() - steadyThen);
}

/** @param {string} now as the overview has it, RFC 3339, or as the heads of all answers have it, in whole seconds */
function hearClock(now) {
  const then = Date.parse(now);
  if (Number.isNaN(then)) return; // a proxy's idea of a date
  serverThen = then;
  steadyThen = performance.now();
}

// A key that may not see the overview has the time from any answer.
heard.date = (date) => !exact && hearClock(date);

/**
 * Whether the caller may do so, on a topic or on some: what it may not is not offered. The server refuses it all the same.
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
 * Whether a pattern covers a topic, or all that another pattern covers: a star of that is more than one character.
 * @param {string} pattern with * and ?
 * @param {string} topic
 */
export function covers(pattern, topic) {
  const source = pattern.replace(/[.+^${}()|[\]\\]/g, "\\$&").replaceAll("*", ".*").replaceAll("?", "[^*]");
  return new RegExp(`^${source}$`, "s").test(topic);
}

/** Ask who this is; false if the API wants a key first. Other problems are raised. */
export async function hello() {
  try {
    me.set(await ask("GET", "v1/me"));
    return true;
  } catch (error) {
    if (error instanceof Problem && error.status === 401) return false;
    throw error;
  }
}

// The cookie is that of all tabs: each is to show whom it acts for. What is written to one prefix of a proxy is for its own pages.
const tabs = new BroadcastChannel(`delayq ${new URL("../", location.href).pathname}`);
tabs.onmessage = () => location.reload();
// A page that the browser had put away heard nothing.
addEventListener("pageshow", (event) => event.persisted && location.reload());

/** Tell the other tabs that a session has begun or is over: they load again. */
export function tellTabs() {
  tabs.postMessage("session");
}

/** The look that is not over yet. @type {Promise<void> | null} */
let looking = null;
let looked = -EVERY; // when the last one was over
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
    // The overview is of all topics. A key of some topics sees which of them are paused.
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
 * Call it in so many ms, or as soon after that as somebody looks.
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
  // From the end of one look to the beginning of the next: an API that is slow is not asked more, nor by who comes and goes.
  const left = looked + EVERY - performance.now();
  if (left > 0) timer = setTimeout(again, left);
  else void look().finally(again);
}

/** Look again and again while the page is seen; nobody looking, nothing is asked. */
export function keepLooking() {
  looked = -EVERY;
  document.addEventListener("visibilitychange", again);
  again();
}
