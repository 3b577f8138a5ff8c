// Something done to many ids: in batches, at a rate, with a bar, and a way to stop; what became of them is told by word and count.

import { html, useEffect, useRef, useState } from "../vendor/standalone.module.js";
import { Act } from "./dialog.js";
import { count } from "./numbers.js";
import { href } from "./router.js";
import { ask, Problem } from "./server.js";
import { t } from "./texts.js";

/** Ids in one call, unless the API takes fewer. */
const BATCH = 100;

/** Ids of one word that are told. */
const TOLD = 50;

/** @typedef {Map<string, { count: number, ids: string[] }>} Words  what became of ids, by the API's words */

/**
 * @param {Words} words
 * @param {{ id?: string, result?: string, problem?: { detail?: string, title?: string } }[]} results
 * @returns {Words} with these
 */
function counted(words, results) {
  const next = new Map(words);
  for (const { id, result, problem } of results) {
    const word = result ?? problem?.detail ?? problem?.title ?? "";
    const before = next.get(word) ?? { count: 0, ids: [] };
    const ids = id !== undefined && before.ids.length < TOLD ? [...before.ids, id] : before.ids;
    next.set(word, { count: before.count + 1, ids });
  }
  return next;
}

/**
 * What became of ids. The word is the API's; beside it is what it means behind this action.
 * @param {{ action: string, words: Words }} props
 */
function Outcome({ action, words }) {
  return html`<ul class="outcome">
    ${[...words].map(([word, { count: n, ids }]) => {
      const name = `outcome.${action}.${word}`;
      const meaning = t(name);
      return html`<li key=${word}>
        <b>${count(n)}</b> <code>${word}</code>${meaning === name ? "" : `: ${meaning}`}
        <details>
          <summary>${t("bulk.which")}</summary>
          <ul>
            ${ids.map((id) => html`<li key=${id}><a class="id" href=${href(["messages", id])}>${id}</a></li>`)}
          </ul>
          ${ids.length < n && html`<p>${t("bulk.first", { shown: count(ids.length), count: count(n) })}</p>`}
        </details>
      </li>`;
    })}
  </ul>`;
}

/**
 * What became of one id, as the answer of one call.
 * @param {string} action
 * @param {{ results: any[] }} answer
 */
export function outcomeOf(action, { results }) {
  return html`<${Outcome} action=${action} words=${counted(new Map(), results)} />`;
}

/**
 * A dialog that does something to many ids, once their count was typed, and to no more than that, whatever `pages` gives. It ends
 * what it does when it is closed.
 *
 * `pages` gives the ids; `rate` is how many a second unless another is chosen, without it they go as fast as the API answers.
 * @param {{
 *   title: string, verb: string, action: string, total: number, path: string, close: () => void,
 *   pages: () => Iterable<string[]> | AsyncIterable<string[]>, rate?: number, danger?: boolean, text?: any,
 * }} props
 */
export function Bulk({ title, verb, action, total, path, close, pages, rate, danger = false, text }) {
  const [pace, setPace] = useState(String(rate ?? ""));
  const [words, setWords] = useState(/** @type {Words} */ (new Map()));
  const [running, setRunning] = useState(false);
  const own = useRef({ stopped: false, wake: () => {} });
  const stop = () => {
    own.current.stopped = true;
    own.current.wake();
  };
  useEffect(() => stop, []);
  const done = [...words.values()].reduce((sum, one) => sum + one.count, 0);
  const run = async (/** @type {string} */ reason) => {
    /** @type {Words} */
    let told = new Map();
    let most = BATCH;
    let allowed = total;
    let more = false;
    // All requests of this are one act: one entry of the audit.
    const act = `${Date.now()}-${crypto.getRandomValues(new Uint32Array(1))[0].toString(16).padStart(8, "0")}`;
    const aSecond = rate === undefined ? Infinity : Number(pace);
    own.current.stopped = false;
    setWords(told);
    setRunning(true);
    try {
      for await (const page of pages()) {
        more = page.length > allowed;
        for (let ids = page.slice(0, allowed); ids.length && !own.current.stopped; ) {
          const began = performance.now();
          const some = ids.slice(0, Math.max(1, Math.min(most, aSecond)));
          try {
            const { results } = await ask("POST", path, { body: { ids: some, ...(reason && { reason }) }, headers: { "Delayq-Act": act } });
            setWords((told = counted(told, results)));
          } catch (error) {
            // An API may take fewer ids a call than others.
            if (!(error instanceof Problem && error.status === 400 && error.field === "ids" && most > 1)) throw error;
            most = Math.floor(most / 2);
            continue;
          }
          ids = ids.slice(some.length);
          allowed -= some.length;
          const left = (some.length / aSecond) * 1_000 - (performance.now() - began);
          if (left > 0 && !own.current.stopped) {
            await new Promise((woken) => {
              own.current.wake = () => woken(undefined);
              setTimeout(woken, left);
            });
          }
        }
        if (own.current.stopped || more) break;
      }
    } finally {
      setRunning(false);
    }
    return html`${own.current.stopped ? html`<p>${t("bulk.stopped")}</p>` : more && html`<p>${t("bulk.enough", { count: total, n: count(total) })}</p>`}
      ${told.size === 0 ? html`<p>${t("bulk.none")}</p>` : html`<${Outcome} action=${action} words=${told} />`}`;
  };
  return html`<${Act} title=${title} verb=${verb} danger=${danger} confirm=${total} close=${close} run=${run} text=${text}>
    ${
      rate !== undefined &&
      html`<label
        >${t("bulk.rate")}
        <input
          type="number"
          min="1"
          max="100000"
          step="1"
          required
          disabled=${running}
          value=${pace}
          onInput=${(/** @type {any} */ e) => setPace(e.target.value)}
      /></label>`
    }
    ${
      (running || done > 0) &&
      html`<div>
        <label class="whole"
          >${t("bulk.progress", { done: count(done), count: count(total) })}
          <progress max=${total} value=${Math.min(done, total)}></progress>
        </label>
        ${running && html`<button type="button" onClick=${stop}>${t("bulk.stop")}</button>`}
        <${Outcome} action=${action} words=${words} />
      </div>`
    }
  <//>`;
}
