// Errors, outcomes of actions, and small parts of many pages.

import { html, useState } from "../vendor/standalone.module.js";
import { count, duration } from "./numbers.js";
import { serverNow } from "./live.js";
import { Age, Time, useTicking } from "./times.js";
import { t } from "./texts.js";

/**
 * The reason why data are missing: in the API's words, or that it gave none.
 * @param {import("./server.js").Problem} problem
 */
export function why({ status, kind, message, wait }) {
  if (status !== 0) return wait > 1 ? `${message} ${t("trouble.wait", { duration: duration(wait * 1_000) })}` : message;
  return t(kind === "foreign" ? "trouble.foreign" : "trouble.unreachable");
}

/** @param {{ problem: import("./server.js").Problem | null }} props */
export function Trouble({ problem }) {
  return problem && html`<p class="trouble" role="alert">${why(problem)}</p>`;
}

/**
 * A number with its name and its age; an unknown one is not zero.
 * @param {{ name: string, value: number | null | undefined, asOf?: string, link?: string, tone?: string, text?: string, note?: string }} props
 */
export function Figure({ name, value, asOf, link, tone = "", text, note }) {
  const shown = html`<span class="value">${text ?? count(value)}</span>`;
  return html`<div class=${`figure ${tone}`}>
    <dt>${name}</dt>
    <dd>
      ${link ? html`<a href=${link}>${shown}</a>` : shown}
      ${note ? html`<small>${note}</small>` : asOf ? html`<small><${Age} at=${asOf} /></small>` : null}
    </dd>
  </div>`;
}

/**
 * The age of the shown data, and a notice if the API does not answer. `at` by this page's steady clock.
 * @param {{ at: number, problem: import("./server.js").Problem | null }} props
 */
export function Freshness({ at, problem }) {
  useTicking();
  if (at === 0) return problem ? html`<${Trouble} problem=${problem} />` : html`<span>${t("fresh.loading")}</span>`;
  const then = serverNow() - (performance.now() - at);
  if (problem) {
    return html`<strong class="stale" role="alert">${t("fresh.stale")} <${Time} at=${then} /> (${why(problem)})</strong>`;
  }
  return html`<span>${t("fresh.as_of")} <${Age} at=${then} /></span>`;
}

/** The place of data that have not arrived yet. */
export function Loading() {
  return html`<p class="waiting">${t("fresh.loading")}</p>`;
}

/**
 * The start of a pause, its end if it has one, and its reason.
 * @param {{ pause: { since: string, until?: string | null, reason?: string | null } }} props
 */
export function PauseText({ pause: { since, until, reason } }) {
  return html`${t("pauses.since")} <${Time} at=${since} />${until && html`, ${t("pauses.until")} <${Time} at=${until} />`}${reason && html`: <bdi>${reason}</bdi>`}`;
}

/**
 * A text to copy, even if the page has no HTTPS and the browser therefore no clipboard.
 * @param {{ text: string, label?: string }} props
 */
export function Copy({ text, label }) {
  const [done, setDone] = useState(false);
  const copy = async () => {
    if (navigator.clipboard) {
      await navigator.clipboard.writeText(text).catch(() => copyBySelection(text));
    } else {
      copyBySelection(text);
    }
    setDone(true);
    setTimeout(() => setDone(false), 2_000);
  };
  return html`<button type="button" class="small" onClick=${copy}>
    ${done ? t("copy.done") : t("copy.copy")}<span class="hidden"> ${label ?? text.slice(0, 80)}</span>
  </button>`;
}

/** @param {string} text */
function copyBySelection(text) {
  const area = document.createElement("textarea");
  area.value = text;
  (document.querySelector("dialog[open]") ?? document.body).append(area);
  area.select();
  document.execCommand("copy");
  area.remove();
}

/**
 * The state of a message, as a word and a shape: color is never alone.
 * @param {{ state: string }} props
 */
export function State({ state }) {
  return html`<span class=${`state ${state}`}>${t(`state.${state}`)}</span>`;
}
