// Where one is: the part of the address behind the #, so that every view is a link that can be sent to somebody.

import { useEffect } from "../vendor/standalone.module.js";
import { queryText } from "./server.js";
import { makeStore } from "./store.js";

/**
 * `page` is '' where the address names none.
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
 * The link to a page; its parts and its query may hold any character.
 * @param {string[]} parts the page, then what on it
 * @param {Record<string, unknown>} [query]
 */
export function href(parts, query) {
  return `#/${parts.map(encodeURIComponent).join("/")}${queryText(query)}`;
}

/**
 * What has been filled in: a field that is empty asks for nothing.
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
 * Say by the address what is shown now, without a step in the browser's history.
 * @param {string[]} parts
 * @param {Record<string, unknown>} [query]
 */
export function replace(parts, query) {
  history.replaceState(null, "", href(parts, query));
  place.set(read());
}

/**
 * Bring a part into view when its link was followed and all that stands above it is there, and go on from there by keys.
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
