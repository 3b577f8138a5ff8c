// An action on many ids: in batches, at a rate, with a bar and a button to stop. The outcomes are shown by word and count.

import { html, useEffect, useRef, useState } from "../vendor/standalone.module.js";
import { Act } from "./dialog.js";
import { count } from "./numbers.js";
import { href } from "./router.js";
import { ask, Problem } from "./server.js";
import { t } from "./texts.js";

/** Ids in one call, unless the API accepts fewer. */
const BATCH = 100;

/** The number of ids shown for each word. */
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
 * The outcomes of ids. The word is the API's; beside it is its meaning for this action.
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
 * The outcome of one id in the answer of one call.
 * @param {string} action
 * @param {{ results: any[] }} answer
 */
export function outcomeOf(action, { results }) {
  return html`<${Outcome} action=${action} words=${counted(new Map(), results)} />`;
}

/**
 * A dialog for an action on many ids, once their count was typed. It acts on no more than that, whatever `pages` yields. It
 * stops when it is closed. `pages` yields the ids; `rate` is the default number per second. Without it, the calls are as fast
 * as the API answers.
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
    let totals = new Map();
    let most = BATCH;
    let allowed = total;
    let more = false;
    // All its requests are one act: one entry of the audit.
    const act = `${Date.now()}-${crypto.getRandomValues(new Uint32Array(1))[0].toString(16).padStart(8, "0")}`;
    const aSecond = rate === undefined ? Infinity : Number(pace);
    own.current.stopped = false;
    setWords(totals);
    setRunning(true);
    try {
      for await (const page of pages()) {
        more = page.length > allowed;
        for (let ids = page.slice(0, allowed); ids.length && !own.current.stopped; ) {
          const began = performance.now();
          const some = ids.slice(0, Math.max(1, Math.min(most, aSecond)));
          try {
            const { results } = await ask("POST", path, { body: { ids: some, ...(reason && { reason }) }, headers: { "Delayq-Act": act } });
            setWords((totals = counted(totals, results)));
          } catch (error) {
            // An API may accept fewer ids per call than others.
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
      ${totals.size === 0 ? html`<p>${t("bulk.none")}</p>` : html`<${Outcome} action=${action} words=${totals} />`}`;
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
