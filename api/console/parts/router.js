// The current place: the part of the address after the #, so that every view is a link that can be shared.

import { useEffect } from "../vendor/standalone.module.js";
import { queryText } from "./server.js";
import { makeStore } from "./store.js";

/**
 * `page` is '' if the address names none.
 * @typedef {{ page: string, rest: string[], query: Record<string, string> }} Place
 */

/** @returns {Place} */
function read() {
  const [path, query = ""] = location.hash.replace(/^#\/?/, "").split("?", 2);
  const [page = "", ...rest] = path.split("/").map(decode);
  return { page, rest, query: Object.fromEntries(new URLSearchParams(query)) };
}

/** @param {string} part */
function decode(part) {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}

/** @type {import("./store.js").Store<Place>} */
export const place = makeStore(read());
addEventListener("hashchange", () => place.set(read()));

/**
 * The link to a page; its parts and its query may contain any character.
 * @param {string[]} parts the page, then what on it
 * @param {Record<string, unknown>} [query]
 */
export function href(parts, query) {
  return `#/${parts.map(encodeURIComponent).join("/")}${queryText(query)}`;
}

/**
 * The filled-in fields: an empty one requests nothing.
 * @param {Record<string, string | undefined>} fields
 * @returns {Record<string, string>}
 */
export function filled(fields) {
  return Object.fromEntries(Object.entries(fields).flatMap(([name, value]) => (value ? [[name, value]] : [])));
}

/**
 * Go there.
 * @param {string[]} parts
 * @param {Record<string, unknown>} [query]
 */
export function go(parts, query) {
  location.hash = href(parts, query);
}

/**
 * Show the current view in the address, without a step in the browser's history.
 * @param {string[]} parts
 * @param {Record<string, unknown>} [query]
 */
export function replace(parts, query) {
  history.replaceState(null, "", href(parts, query));
  place.set(read());
}

/**
 * Scroll to a part when its link was followed and everything above it is loaded, and continue from there by keys.
 * @param {string | undefined} part
 * @param {string} link which of the links to it
 * @param {boolean} ready
 */
export function useSeen(part, link, ready) {
  useEffect(() => {
    const heading = ready && part !== undefined ? document.getElementById(part) : null;
    heading?.scrollIntoView();
    heading?.focus({ preventScroll: true });
  }, [link, ready]);
}
