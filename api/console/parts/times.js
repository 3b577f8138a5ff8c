// Times by the server's clock, in a zone that the reader chose.

import { html, useEffect, useState } from "../vendor/standalone.module.js";
import { serverNow } from "./live.js";
import { duration, UNKNOWN } from "./numbers.js";
import { makeStore, useStore } from "./store.js";
import { language, remember, remembered, t } from "./texts.js";

const KEPT = "delayq.zone";

/** "local" or "UTC". @type {import("./store.js").Store<string>} */
export const zone = makeStore(remembered(KEPT) === "UTC" ? "UTC" : "local");

/** @param {string} wanted */
export function setZone(wanted) {
  remember(KEPT, wanted);
  zone.set(wanted);
}

/**
 * Unix ms of a time of the API, or of an address: RFC 3339 or Unix ms; null if it is not a time.
 * @param {string | number | null | undefined} at
 */
export function ms(at) {
  if (at === null || at === undefined || at === "") return null;
  const then = typeof at === "number" || /^\d+$/.test(at) ? Number(at) : Date.parse(at);
  return Math.abs(then) <= 8.64e15 ? then : null;
}

/** @type {Map<string, Intl.DateTimeFormat>} */
const made = new Map();

/**
 * @param {Intl.DateTimeFormatOptions} options
 */
function formatter(options) {
  const key = `${language.get()} ${zone.get()} ${JSON.stringify(options)}`;
  let one = made.get(key);
  if (one === undefined) {
    const timeZone = zone.get() === "UTC" ? "UTC" : undefined;
    made.set(key, (one = new Intl.DateTimeFormat(language.get(), { ...options, timeZone, hourCycle: "h23" })));
  }
  return one;
}

/**
 * A time as text; a time of today has no day.
 * @param {string | number | null | undefined} at
 * @param {boolean} [exact] to the ms
 */
export function timeText(at, exact = false) {
  const then = ms(at);
  if (then === null) return UNKNOWN;
  const clock = clockText(then, exact ? 1 : 1_000);
  const day = dayOf(then);
  return day === dayOf(serverNow()) ? clock : `${day} ${clock}`;
}

/** @param {number} at */
function dayOf(at) {
  return formatter({ year: "numeric", month: "2-digit", day: "2-digit" }).format(at);
}

/** The current day: a page without other changes is drawn again when it changes. @type {import("./store.js").Store<string>} */
export const today = makeStore(dayOf(serverNow()));

/**
 * The time of day, as precise as times that are `step` ms apart need.
 * @param {number} at
 * @param {number} step
 */
export function clockText(at, step) {
  /** @type {Intl.DateTimeFormatOptions} */
  const clock = { hour: "2-digit", minute: "2-digit" };
  if (step < 60_000) clock.second = "2-digit";
  if (step < 1_000) clock.fractionalSecondDigits = 3;
  return formatter(clock).format(at);
}

/**
 * The day, in short.
 * @param {number} at
 */
export function dayText(at) {
  return formatter({ month: "short", day: "numeric" }).format(at);
}

/** The components that are drawn again every second: by one timer, however many ages a page has. @type {Set<() => void>} */
const ticking = new Set();
let timer = 0;

/** Draws the component again every second while it is visible. */
export function useTicking() {
  const [, draw] = useState(0);
  useEffect(() => {
    const own = () => draw((n) => n + 1);
    ticking.add(own);
    if (ticking.size === 1) timer = setInterval(tick, 1_000);
    return () => {
      ticking.delete(own);
      if (ticking.size === 0) clearInterval(timer);
    };
  }, []);
}

function tick() {
  if (document.visibilityState !== "visible") return;
  for (const one of ticking) one();
  const day = dayOf(serverNow());
  if (day !== today.get()) today.set(day);
}

/**
 * A time, with its complete form on hover.
 * @param {{ at: string | number | null | undefined, exact?: boolean }} props
 */
export function Time({ at, exact = false }) {
  useStore(zone);
  return timeTag(at, exact);
}

/**
 * The same for a list that reads the zone once for all its rows.
 * @param {string | number | null | undefined} at
 * @param {boolean} [exact]
 */
export function timeTag(at, exact = false) {
  const then = ms(at);
  if (then === null) return UNKNOWN;
  const whole = new Date(then).toISOString();
  return html`<time datetime=${whole} title=${whole}>${timeText(then, exact)}</time>`;
}

/**
 * The time since then, or until then, by the server's clock.
 * @param {{ at: string | number | null | undefined }} props
 */
export function Age({ at }) {
  useTicking();
  const then = ms(at);
  if (then === null) return UNKNOWN;
  const ago = serverNow() - then;
  const whole = new Date(then).toISOString();
  const seconds = Math.round(Math.abs(ago) / 1_000) * 1_000;
  const text = seconds === 0 ? t("time.now") : t(ago >= 0 ? "time.ago" : "time.in", { duration: duration(seconds) });
  return html`<time datetime=${whole} title=${whole}>${text}</time>`;
}

/**
 * A time to the ms in the chosen zone, as fields of times need it.
 * @param {number | null} at
 */
function wall(at) {
  if (at === null) return "";
  const offset = zone.get() === "UTC" ? 0 : new Date(at).getTimezoneOffset() * 60_000;
  return new Date(at - offset).toISOString().replace(/(:00)?\.000Z$|Z$/, "");
}

/**
 * Unix ms of a time in the chosen zone; null if it is not a time. In an hour that comes twice, it is the occurrence of
 * `before`, so that a change by a minute is a minute.
 * @param {string} text
 * @param {number | null} before
 */
function fromWall(text, before) {
  const made = ms(text && zone.get() === "UTC" ? `${text}Z` : text);
  if (made === null || before === null || zone.get() === "UTC") return made;
  const asBefore = made + (new Date(before).getTimezoneOffset() - new Date(made).getTimezoneOffset()) * 60_000;
  return wall(asBefore) === wall(made) ? asBefore : made;
}

/** The clock of a field for a time, and its distance from UTC at this time. @param {number | null} at */
function zoneText(at) {
  if (zone.get() === "UTC") return "UTC";
  const name = Intl.DateTimeFormat().resolvedOptions().timeZone;
  if (at === null) return name;
  const east = -new Date(at).getTimezoneOffset();
  const clock = new Date(Math.abs(east) * 60_000).toISOString().slice(11, 16);
  return `${name}, UTC${east < 0 ? "−" : "+"}${clock}`;
}

/**
 * A field for a time in the chosen zone; `set` gets it as RFC 3339, "" if there is none.
 * @param {{ label: string, at: string | undefined, set: (at: string) => void, required?: boolean }} props
 */
export function TimeField({ label, at, set, required = false }) {
  const clock = useStore(zone);
  const then = ms(at);
  const [typed, setTyped] = useState({ text: wall(then), then, clock });
  // A half-typed time stays, unless another time is set.
  const text = typed.then === then && typed.clock === clock ? typed.text : wall(then);
  const input = (/** @type {string} */ next) => {
    const made = fromWall(next, then);
    setTyped({ text: next, then: made, clock });
    set(made === null ? "" : new Date(made).toISOString());
  };
  return html`<label
    >${label} (${zoneText(then)})
    <input
      type="datetime-local"
      step="0.001"
      required=${required}
      value=${text}
      onInput=${(/** @type {any} */ e) => input(e.target.value)}
  /></label>`;
}
