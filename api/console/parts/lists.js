// Lists that are requested once, again on demand or every few seconds, and page by page.

import { html, useCallback, useEffect, useMemo, useRef, useState } from "../vendor/standalone.module.js";
import { Freshness } from "./notices.js";
import { ask, Problem } from "./server.js";
import { remember, remembered, t } from "./texts.js";

const KEPT = "delayq.refresh";

/** The choices of seconds between two requests; 0 is never. */
const CHOICES = [0, 2, 5, 15, 60];

/** The reasons why lists do not refresh: rows are selected, a dialog is open. */
const holds = new Set();

/**
 * Stop refreshing while `held`: nothing moves under the hand that selects.
 * @param {boolean} held
 */
export function useHold(held) {
  const own = useRef({});
  useEffect(() => {
    if (!held) return undefined;
    const one = own.current;
    holds.add(one);
    return () => holds.delete(one);
  }, [held]);
}

/**
 * @typedef {{ data: any, problem: Problem | null, at: number, loading: boolean, again: () => void }} Asked
 *   `at`: the time of `data`, by this page's steady clock
 */

/**
 * The answer of the API, requested again when the question changes.
 * @param {string | null} path null: nothing is asked
 * @param {Record<string, unknown>} [query]
 * @param {number} [every] seconds; 0: only once
 * @param {typeof ask} [how] to ask, where the parsed answer is not enough
 * @returns {Asked}
 */
export function useAsked(path, query = {}, every = 0, how = ask) {
  const key = JSON.stringify([path, query]);
  const first = { data: null, problem: /** @type {Problem | null} */ (null), at: 0, loading: path !== null, key };
  const [state, setState] = useState(first);
  const [turn, setTurn] = useState(0);
  const asking = useRef(false);
  const again = useCallback(() => setTurn((n) => n + 1), []);
  useEffect(() => {
    if (path === null) return undefined;
    const leaving = new AbortController();
    asking.current = true;
    // The old data stay on the page until the new answer arrives, unless they answer another question.
    setState((before) => (before.key === key ? { ...before, loading: true } : { ...first }));
    how("GET", path, { query, signal: leaving.signal })
      .then(
        (data) => setState({ data, problem: null, at: performance.now(), loading: false, key }),
        (error) => {
          if (leaving.signal.aborted) return;
          if (!(error instanceof Problem)) throw error;
          setState((before) => ({ ...before, problem: error, loading: false }));
        },
      )
      .finally(() => {
        if (!leaving.signal.aborted) asking.current = false;
      });
    return () => leaving.abort();
  }, [key, turn]);
  useEffect(() => {
    if (!every || path === null) return undefined;
    const timer = setInterval(() => {
      // A slow answer is not requested again: it would never arrive.
      if (document.visibilityState === "visible" && holds.size === 0 && !asking.current) again();
    }, every * 1_000);
    return () => clearInterval(timer);
  }, [every, key]);
  return { ...(state.key === key ? state : first), again };
}

/**
 * The age of a page with several requests: that of the oldest data, and outdated if one of them fails.
 * @param {Pick<Asked, "at" | "problem" | "loading">[]} all
 */
export function together(all) {
  const heard = all.map((one) => one.at).filter((at) => at > 0);
  return {
    at: heard.length ? Math.min(...heard) : 0,
    problem: all.find((one) => one.problem !== null)?.problem ?? null,
    loading: all.some((one) => one.loading),
  };
}

/**
 * A list with pages: the rows so far, and the next page. `rows` returns the rows of an answer; `answers` are those so far.
 * @param {string | null} path
 * @param {Record<string, unknown>} query
 * @param {(answer: any) => any[]} rows
 * @param {number} [every] seconds, as long as only the first page is shown
 */
export function usePages(path, query, rows, every = 0) {
  const nothing = { of: /** @type {any} */ (null), answers: /** @type {any[]} */ ([]), problem: /** @type {Problem | null} */ (null) };
  const [more, setMore] = useState(nothing);
  const shown = useRef(/** @type {any} */ (null));
  const first = useAsked(path, query, more.of !== null && more.of === shown.current ? 0 : every);
  shown.current = first.data;
  const [busy, setBusy] = useState(false);
  const { answers: onward, problem } = more.of === first.data ? more : nothing;
  const answers = first.data === null ? [] : [first.data, ...onward];
  const last = answers.at(-1) ?? null;
  const token = last?.nextPageToken ?? null;
  const next = async () => {
    if (path === null || token === null || busy) return;
    setBusy(true);
    try {
      const answer = await ask("GET", path, { query: { ...query, pageToken: token } });
      setMore({ of: first.data, answers: [...onward, answer], problem: null });
    } catch (error) {
      if (!(error instanceof Problem)) throw error;
      setMore({ of: first.data, answers: onward, problem: error });
    } finally {
      setBusy(false);
    }
  };
  return {
    // The same rows are the same list: a thousand drawn rows are not drawn again for nothing.
    rows: useMemo(() => answers.flatMap(rows), [first.data, onward.length]),
    answers,
    last,
    next: token === null ? null : next,
    loading: first.loading || busy,
    problem: problem ?? first.problem,
    at: first.at,
    data: first.data,
    again: first.again,
  };
}

/** The interval of refreshes, as it was chosen last: [seconds, choose]. @returns {[number, (s: number) => void]} */
export function useRefresh() {
  const [every, setEvery] = useState(Number(remembered(KEPT) ?? 5));
  const choose = (/** @type {number} */ seconds) => {
    remember(KEPT, String(seconds));
    setEvery(seconds);
  };
  return [CHOICES.includes(every) ? every : 5, choose];
}

/**
 * The age of the data with `at` and `problem`, and the control for it: the interval, and a refresh now.
 * @param {{
 *   every: number, choose: (seconds: number) => void, again: () => void, loading?: boolean, at?: number,
 *   problem?: Problem | null,
 * }} props
 */
export function Refresh({ every, choose, again, loading = false, at, problem = null }) {
  return html`<span class="refresh">
    ${at !== undefined && html`<${Freshness} at=${at} problem=${problem} />`}
    <label
      ><span class="wide-only">${t("refresh.every")}</span>
      <select value=${String(every)} onChange=${(/** @type {any} */ e) => choose(Number(e.target.value))}>
        ${CHOICES.map((s) => html`<option value=${String(s)}>${s ? t("refresh.seconds", { s }) : t("refresh.off")}</option>`)}
      </select></label
    >
    <button type="button" onClick=${again} aria-busy=${loading ? "true" : "false"}>${t("refresh.now")}</button>
  </span>`;
}
