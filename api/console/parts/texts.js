// The words of the console, in the chosen language. Pages have no words of their own.

import en from "../strings/en.js";
import { makeStore } from "./store.js";

const KEPT = "delayq.language";

/** The languages: by their tag, with their own name and the place of their words. */
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
 * The text of a name, with `{these}` filled in; if it differs by number, `n` chooses.
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
 * Use another language from now on, and the next time.
 * @param {string} tag
 */
export async function speak(tag) {
  const one = LANGUAGES[/** @type {keyof typeof LANGUAGES} */ (tag)] ?? LANGUAGES.en;
  words = await one.load();
  remember(KEPT, tag);
  document.documentElement.lang = tag;
  language.set(tag);
}

/** The chosen language, otherwise the browser's first one that exists here. */
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
 * The choices in this browser; a browser that stores nothing works too.
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
    // It applies until the page is left.
  }
}
