// The words of the console, in the language that was chosen. Pages hold no words of their own.

import en from "../strings/en.js";
import { makeStore } from "./store.js";

const KEPT = "delayq.language";

/** The languages there are: by their tag, their name in themselves and where their words are. */
export const LANGUAGES = {
  en: { name: "English", load: async () => en },
  "zh-CN": { name: "简体中文", load: async () => (await import("../strings/zh-CN.js")).default },
};

/** @typedef {string | { one: string, other: string }} Words */

/** @type {Record<string, Words>} */
let words = en;

/** The tag of the language. @type {import("./store.js").Store<string>} */
export const language = makeStore("en");

/**
 * The words of a name, with `{these}` filled in; where they differ by number, `n` says which.
 * @param {string} name
 * @param {Record<string, unknown>} [values]
 * @returns {string}
 */
export function t(name, values = {}) {
  let text = words[name] ?? /** @type {Record<string, Words>} */ (en)[name];
  if (text === undefined) return name;
  if (typeof text !== "string") {
    const form = new Intl.PluralRules(language.get()).select(Number(values.count ?? values.n ?? 0));
    text = form === "one" ? text.one : text.other;
  }
  return text.replace(/\{(\w+)\}/g, (whole, key) => (key in values ? String(values[key]) : whole));
}

/**
 * Speak another language from now on, and the next time.
 * @param {string} tag
 */
export async function speak(tag) {
  const one = LANGUAGES[/** @type {keyof typeof LANGUAGES} */ (tag)] ?? LANGUAGES.en;
  words = await one.load();
  remember(KEPT, tag);
  document.documentElement.lang = tag;
  language.set(tag);
}

/** The language that was chosen, else the first of the browser's that there is. */
export function preferred() {
  const wanted = [remembered(KEPT), ...navigator.languages];
  for (const one of wanted) {
    if (one === null) continue;
    const found = Object.keys(LANGUAGES).find((tag) => tag === one || tag.split("-")[0] === one.split("-")[0]);
    if (found) return found;
  }
  return "en";
}

/**
 * What this browser keeps of choices; a browser that keeps nothing is none the worse.
 * @param {string} name
 */
export function remembered(name) {
  try {
    return localStorage.getItem(name);
  } catch {
    return null;
  }
}

/**
 * @param {string} name
 * @param {string} value
 */
export function remember(name, value) {
  try {
    localStorage.setItem(name, value);
  } catch {
    // It holds until the page is left.
  }
}
