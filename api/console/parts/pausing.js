// Pausing and resuming topics, one or all that a pattern covers.

import { html, useEffect, useState } from "../vendor/standalone.module.js";
import { Act } from "./dialog.js";
import { useAsked } from "./lists.js";
import { look, may, serverNow } from "./live.js";
import { Trouble } from "./notices.js";
import { count, duration } from "./numbers.js";
import { ask, Problem } from "./server.js";
import { t } from "./texts.js";
import { Time, TimeField } from "./times.js";

const PATTERN = /^[A-Za-z0-9._:*?-]{1,255}$/;
const MINUTE = 60_000; // ms

/** The durations of a pause that ends by itself. */
const LENGTHS = [15 * MINUTE, 60 * MINUTE, 4 * 60 * MINUTE, 24 * 60 * MINUTE];

/** ms between two checks of a pause, while messages may still arrive. */
const AGAIN = 1_000;

/**
 * The number of known topics that a pattern covers. `confirm` is the number to type if there are several; `blocked` means
 * that it is unknown yet.
 * @param {string} match
 */
export function useCovered(match) {
  const [asked, setAsked] = useState(match);
  useEffect(() => {
    const timer = setTimeout(() => setAsked(match), 300); // not for each letter
    return () => clearTimeout(timer);
  }, [match]);
  const wild = /[*?]/.test(match);
  const { data, problem } = useAsked(wild && PATTERN.test(asked) ? "v1/topics" : null, { match: asked, limit: 1 });
  const topics = !wild ? 1 : asked === match ? (data?.total ?? null) : null;
  return { topics, problem, confirm: topics !== null && topics > 1 ? topics : undefined, blocked: topics === null };
}

/**
 * The topics that a pattern covers, in words.
 * @param {{ match: string, covered: ReturnType<typeof useCovered> }} props
 */
export function Covered({ match, covered }) {
  if (!/[*?]/.test(match)) return null;
  const text = covered.topics === null ? t("pausing.counting") : t("pausing.covers", { match, count: count(covered.topics) });
  return html`<p>${text}</p>
    <${Trouble} problem=${covered.problem} />`;
}

/**
 * Pause a topic, or with `open` any typed pattern.
 * @param {{ match: string, open?: boolean, close: () => void }} props
 */
export function Pause({ match: first, open = false, close }) {
  const [match, setMatch] = useState(first);
  const [length, setLength] = useState("");
  const [end, setEnd] = useState("");
  const covered = useCovered(match);
  const run = async (/** @type {string} */ reason) => {
    const until = length === "at" ? end : length ? new Date(serverNow() + Number(length)).toISOString() : null;
    const body = { match, reason: reason || null, until };
    const snapshot = await ask("POST", "v1/topics:pause", { body });
    void look();
    return html`<${Pausing} first=${{ ...snapshot, asked: body }} />`;
  };
  return html`<${Act}
    title=${open ? t("pausing.pause_some") : t("pausing.pause_one", { match })}
    verb=${t("pausing.pause")}
    text=${t("pausing.means")}
    close=${close}
    run=${run}
    danger=${true}
    confirm=${covered.confirm}
    blocked=${covered.blocked}
  >
    ${
      open &&
      html`<label
        >${t("pausing.match")}
        <input value=${match} required maxlength="255" autocapitalize="off" spellcheck="false" onInput=${(/** @type {any} */ e) => setMatch(e.target.value.trim())} />
      </label>`
    }
    <${Covered} match=${match} covered=${covered} />
    <label
      >${t("pausing.until")}
      <select value=${length} onChange=${(/** @type {any} */ e) => setLength(e.target.value)}>
        <option value="">${t("pausing.until_resumed")}</option>
        ${LENGTHS.map((one) => html`<option key=${one} value=${String(one)}>${t("pausing.for", { duration: duration(one) })}</option>`)}
        <option value="at">${t("pausing.until_time")}</option>
      </select>
    </label>
    ${length === "at" && html`<${TimeField} label=${t("pausing.time")} at=${end} set=${setEnd} required=${true} />`}
  <//>`;
}

/** @param {string | null | undefined} at */
const time = (at) => (at ? Date.parse(at) : null);

/**
 * The current state of a pause, or that it is over. It is only read: a pause that was resumed meanwhile must not be made
 * again.
 * @param {any} snapshot as it stood before, and what was `asked` for
 * @param {AbortSignal} signal
 * @returns {Promise<any>}
 */
async function standing(snapshot, signal) {
  const { match, since, asked } = snapshot;
  const { pauses } = await ask("GET", "v1/policies", { signal });
  const lasts = pauses.find((/** @type {any} */ one) => one.match === match);
  if (lasts === undefined) return { ...snapshot, over: "resumed" };
  const same = lasts.since === since && (lasts.reason ?? "") === (asked.reason ?? "") && time(lasts.until) === time(asked.until);
  if (!same) return { ...snapshot, over: "changed" };
  const { arriving } = await ask("GET", "v1/topics", { query: { match, limit: 1 }, signal });
  if (arriving === undefined) return { ...snapshot, over: "resumed" };
  const counts = arriving.map((/** @type {any} */ one) => one.inFlight);
  const inFlight = counts.includes(null) ? null : counts.reduce((/** @type {number} */ sum, /** @type {number} */ n) => sum + n, 0);
  return { ...snapshot, inFlight, state: inFlight === 0 ? "paused" : "pausing" };
}

/**
 * The state of a pause, checked until no message may arrive.
 * @param {{ first: any }} props
 */
function Pausing({ first }) {
  const [snapshot, setTold] = useState(first);
  const [problem, setProblem] = useState(/** @type {Problem | null} */ (null));
  const { match, state, inFlight, over } = snapshot;
  const reads = may("read", match);
  useEffect(() => {
    if (state === "paused" || over || !reads) return undefined;
    const leaving = new AbortController();
    const { signal } = leaving;
    const again = async () => {
      try {
        setTold(await standing(snapshot, signal));
        return setProblem(null);
      } catch (error) {
        if (signal.aborted) return undefined;
        if (!(error instanceof Problem)) throw error;
        setTold({ ...snapshot });
        return setProblem(error);
      }
    };
    const timer = setTimeout(again, AGAIN);
    return () => {
      clearTimeout(timer);
      leaving.abort();
    };
  }, [snapshot]);
  if (over) return html`<p>${t(over === "changed" ? "pausing.changed" : "pausing.over", { match })}</p>`;
  const text = state === "paused" ? t("pausing.paused", { match }) : inFlight === null ? t("pausing.not_told", { match }) : t("pausing.pausing", { match, count: inFlight });
  return html`<p>${text}</p>
    ${state !== "paused" && !reads && html`<p>${t("pausing.told_once")}</p>`}
    ${!snapshot.changed && html`<p>${t("pausing.before")} <${Time} at=${snapshot.since} /></p>`}
    <${Trouble} problem=${problem} />`;
}

/**
 * End the pause with exactly this pattern.
 * @param {{ match: string, close: () => void }} props
 */
export function Resume({ match, close }) {
  const [perSecond, setPerSecond] = useState("");
  const covered = useCovered(match);
  const run = async (/** @type {string} */ reason) => {
    const body = { match, reason: reason || null, rate: perSecond === "" ? null : Number(perSecond) };
    const snapshot = await ask("POST", "v1/topics:resume", { body });
    void look();
    return html`<p>${snapshot.changed ? t("pausing.resumed", { match, count: snapshot.held, n: count(snapshot.held) }) : t("pausing.no_pause", { match })}</p>`;
  };
  return html`<${Act} title=${t("pausing.resume_one", { match })} verb=${t("pausing.resume")} close=${close} run=${run}>
    <${Covered} match=${match} covered=${covered} />
    <label
      >${t("pausing.rate")}
      <input type="number" min="1" step="any" value=${perSecond} aria-describedby="resume-rate" onInput=${(/** @type {any} */ e) => setPerSecond(e.target.value)} />
      <small id="resume-rate">${t("pausing.rate_hint")}</small>
    </label>
  <//>`;
}
