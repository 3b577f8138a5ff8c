// The body of a message, unchanged: JSON is colored by a tokenizer that never parses a number, so that none loses a digit.

import { html, useState } from "../vendor/standalone.module.js";
import { count } from "./numbers.js";
import { t } from "./texts.js";

/** Characters that are shown at first. */
const SHORT = 64 * 1_024;

const TOKEN = /("(?:[^"\\]|\\.)*")(\s*:)?|(-?\d[\d.eE+-]*)|(true|false|null)|([{}[\],])|(\s+)|([^])/g;

/**
 * The text of a member of a JSON text, letter by letter; undefined if there is none.
 * @param {string} text of an object
 * @param {string[]} path names of members
 * @returns {string | undefined}
 */
export function member(text, path) {
  let part = text;
  for (const name of path) {
    const found = memberOf(part, name);
    if (found === undefined) return undefined;
    part = found;
  }
  return part;
}

/**
 * @param {string} text
 * @param {string} name
 * @returns {string | undefined}
 */
function memberOf(text, name) {
  let depth = 0;
  let key = /** @type {string | null} */ (null);
  let begin = -1;
  for (const one of text.matchAll(new RegExp(TOKEN))) {
    const [whole, string, colon, , , mark] = one;
    const at = one.index ?? 0;
    if (mark === "}" || mark === "]") {
      depth -= 1;
      if (depth === 0 && begin >= 0) return text.slice(begin, at).trim();
    } else if (depth === 1 && mark === "," && begin >= 0) {
      return text.slice(begin, at).trim();
    }
    if (depth === 1 && colon !== undefined && begin < 0) {
      key = JSON.parse(string);
      if (key === name) begin = at + whole.length;
    }
    if (mark === "{" || mark === "[") depth += 1;
  }
  return undefined;
}

/**
 * JSON laid out with indents, token by token; each a [kind, text].
 * @param {string} text
 * @returns {[string, string][]}
 */
function layOut(text) {
  /** @type {[string, string][]} */
  const out = [];
  let depth = 0;
  const line = () => out.push(["", `\n${"  ".repeat(depth)}`]);
  let last = "";
  for (const [, string, colon, number, word, mark, space, other] of text.matchAll(new RegExp(TOKEN))) {
    if (space !== undefined) continue;
    if (last === "," || ((last === "{" || last === "[") && mark !== "}" && mark !== "]")) line();
    if (mark === "{" || mark === "[") depth += 1;
    if (mark === "}" || mark === "]") {
      depth = Math.max(0, depth - 1);
      if (last !== "{" && last !== "[") line();
    }
    if (string !== undefined) out.push([colon === undefined ? "string" : "name", string], ["", colon === undefined ? "" : ": "]);
    else if (number !== undefined) out.push(["digits", number]);
    else out.push([word === undefined ? "" : "word", word ?? mark ?? other]);
    last = mark ?? "…";
  }
  return out;
}

/**
 * @param {{ text: string, json: boolean }} props `json`: the text is JSON, to be laid out
 */
export function Body({ text, json }) {
  const [whole, setWhole] = useState(false);
  const shown = whole ? text : text.slice(0, SHORT);
  // A million tokens would be a million elements: a large body is shown unchanged.
  const tokens = json && shown.length === text.length && text.length <= SHORT ? layOut(text) : null;
  return html`<pre class="body" tabindex="0" dir="auto">${
    tokens === null ? shown : tokens.map(([kind, one]) => (kind ? html`<span class=${kind}>${one}</span>` : one))
  }</pre>
    ${
      shown.length < text.length &&
      html`<p>
        ${t("body.cut", { shown: count(SHORT), all: count(text.length) })}
        <button type="button" onClick=${() => setWhole(true)}>${t("body.all")}</button>
      </p>`
    }`;
}
