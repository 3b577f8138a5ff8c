// Due messages over time, and whether the workers can deliver them: bars of the forecast to zoom into.

import { html, useEffect, useRef, useState } from "../vendor/standalone.module.js";
import { Chart } from "../parts/chart.js";
import { announced } from "../parts/frame.js";
import { Refresh, useAsked, useRefresh } from "../parts/lists.js";
import { serverNow } from "../parts/live.js";
import { Figure } from "../parts/notices.js";
import { compact, count, duration, rate } from "../parts/numbers.js";
import { filled, go, href, replace } from "../parts/router.js";
import { t } from "../parts/texts.js";
import { Age, ms, timeText, TimeField } from "../parts/times.js";

const SECOND = 1_000;
const MINUTE = 60 * SECOND;
const HOUR = 60 * MINUTE;
const DAY = 24 * HOUR;

/** The ranges from now on, by their names in the address. @type {Record<string, number>} */
const RANGES = { "15m": 15 * MINUTE, "1h": HOUR, "6h": 6 * HOUR, "24h": DAY, "7d": 7 * DAY };
const USUAL = "24h";

/** The possible lengths of a bar, in ms. */
const STEPS = [
  ...[1, 2, 5, 10, 20, 50, 100, 200, 500],
  ...[1, 2, 5, 10, 15, 30].map((n) => n * SECOND),
  ...[1, 2, 5, 10, 15, 30].map((n) => n * MINUTE),
  ...[1, 2, 3, 6, 12].map((n) => n * HOUR),
  ...[1, 2, 7, 14, 28, 84, 364].map((n) => n * DAY),
];

/** The shortest and the longest range. */
const SHORTEST = 20; // ms
const LONGEST = 40 * 364 * DAY;

/** The states in the forecast: parked and held messages have no time of delivery. */
const STATES = "scheduled,due,inFlight,retrying";

/** The number of peaks that are described in words, and the lateness from which they are. */
const MOST_TOLD = 3;
const WORTH_TELLING = SECOND;

/**
 * @typedef {{ from: number, to: number, messages: number, late: number, highest: number, goesOn: boolean }} Jam
 *   more messages fall due than are delivered; `late`: the lateness of the last one in ms; `highest`: its highest bar
 */

/** @param {{ rest: string[], query: Record<string, string> }} props */
export function Timeline({ query }) {
  const [every, choose] = useRefresh();
  const span = spanOf(query);
  const { topic } = filled(query);
  const asked = useAsked("v1/forecast", { topic, dueFrom: span.from, dueTo: span.to, step: span.step }, every);
  // While the next bars load, the earlier ones stay, unless they are of other topics. If none arrive, they stay as long as
  // the range is the same, which moves with the clock.
  const view = span.range || `${span.from} ${span.to}`;
  const last = useRef(/** @type {{ data: any, step: number, at: number, topic: string | undefined, view: string } | null} */ (null));
  if (asked.data) last.current = { data: asked.data, step: span.step, at: asked.at, topic, view };
  const same = last.current !== null && last.current.topic === topic && (asked.problem === null || last.current.view === view);
  const shown = same ? last.current : null;
  // Messages due before the first bar are overdue if that bar is now. They are delivered first, and the forecast excludes
  // them.
  const begins = span.from <= serverNow() && serverNow() < span.from + span.step;
  const overdue = useAsked(begins && !topic ? "v1/messages:count" : null, { state: STATES, dueTo: span.from }, every);
  const before = useRef(/** @type {number | null} */ (null));
  if (overdue.data) before.current = overdue.data.count;

  const show = (/** @type {number} */ from, /** @type {number} */ to, /** @type {typeof go} */ how = go) => {
    const wide = Math.min(LONGEST, Math.max(SHORTEST, Math.round(to - from)));
    const begin = Math.max(0, Math.round((from + to - wide) / 2));
    how(["timeline"], { ...filled({ ...query, range: "" }), dueFrom: new Date(begin).toISOString(), dueTo: new Date(begin + wide).toISOString() });
    announced.set(spanText(begin, begin + wide));
  };
  const listed = (/** @type {number} */ from, /** @type {number} */ to) => ({
    topic, state: STATES, dueFrom: new Date(from).toISOString(), dueTo: new Date(to).toISOString(),
  });

  return html`<div class="heading">
      <h1 tabindex="-1">${t("page.timeline")}</h1>
      <${Refresh} every=${every} choose=${choose} again=${asked.again} loading=${asked.loading} at=${shown?.at ?? asked.at} problem=${asked.problem ?? overdue.problem} />
    </div>
    <${Choices} query=${query} span=${span} />
    <${Free} span=${span} show=${show} />
    <${Steps} span=${span} show=${show} />
    <p>
      ${spanText(span.from, span.to)}, ${t("timeline.bars", { step: duration(span.step) })}.
      ${" "}<a href=${href(["messages"], listed(span.from, span.to))}>${t("timeline.list")}</a>
    </p>
    ${
      shown &&
      html`<${Forecast}
        data=${shown.data}
        step=${shown.step}
        overdue=${begins && !topic ? before.current : null}
        topic=${topic}
        log=${query.log === "yes"}
        show=${show}
        pick=${(/** @type {number} */ from, /** @type {number} */ to) => go(["messages"], listed(from, to))}
        listed=${(/** @type {number} */ from, /** @type {number} */ to) => href(["messages"], listed(from, to))}
      />`
    }`;
}

/**
 * The range in the address: between two times, or from now on.
 * @param {Record<string, string>} query
 */
function spanOf(query) {
  const from = ms(query.dueFrom);
  const to = ms(query.dueTo);
  if (from !== null && to !== null && to > from && to - from <= LONGEST) return { from, to, step: stepOf(to - from), range: "" };
  const range = Object.hasOwn(RANGES, query.range) ? query.range : USUAL;
  const wide = RANGES[range];
  const step = stepOf(wide);
  // Bars begin at the same times as a second ago: they grow and disappear, but do not creep.
  const begin = Math.floor(serverNow() / step) * step;
  return { from: begin, to: begin + wide + step, step, range };
}

/** @param {number} wide ms */
function stepOf(wide) {
  const most = innerWidth < 600 ? 45 : 120;
  return STEPS.find((one) => wide / one <= most) ?? STEPS[STEPS.length - 1];
}

/**
 * @param {number} from
 * @param {number} to
 */
function spanText(from, to) {
  const exact = to - from < 10 * SECOND;
  return t("timeline.span", { from: timeText(from, exact), to: timeText(to, exact) });
}

/** The topics, the beginning, and the scale. @param {{ query: Record<string, string>, span: ReturnType<typeof spanOf> }} props */
function Choices({ query, span }) {
  const [topic, setTopic] = useState(query.topic ?? "");
  useEffect(() => setTopic(query.topic ?? ""), [query.topic]);
  const choose = (/** @type {Record<string, string>} */ given) => replace(["timeline"], filled({ ...query, ...given }));
  const submit = (/** @type {Event} */ event) => {
    event.preventDefault();
    choose({ topic: topic.trim() });
  };
  return html`<form class="filters" onSubmit=${submit}>
    <label
      >${t("timeline.topic")}
      <input value=${topic} maxlength="255" placeholder="orders.*" autocapitalize="off" spellcheck="false" onInput=${(/** @type {any} */ e) => setTopic(e.target.value)} onBlur=${submit} />
    </label>
    <span role="group" aria-label=${t("timeline.range")} class="choice">
      ${Object.keys(RANGES).map(
        (one) => html`<button key=${one} type="button" aria-pressed=${span.range === one ? "true" : "false"} onClick=${() => choose({ range: one, dueFrom: "", dueTo: "" })}>
          ${duration(RANGES[one])}
        </button>`,
      )}
    </span>
    <label class="check">
      <input type="checkbox" checked=${query.log === "yes"} onChange=${(/** @type {any} */ e) => choose({ log: e.target.checked ? "yes" : "" })} />
      ${t("timeline.log")}
    </label>
  </form>`;
}

/**
 * A range between any two times.
 * @param {{ span: ReturnType<typeof spanOf>, show: (from: number, to: number) => void }} props
 */
function Free({ span, show }) {
  const [from, setFrom] = useState("");
  const [to, setTo] = useState("");
  const [wrong, setWrong] = useState(false);
  // A moving clock must not change a field while its reader types.
  useEffect(() => {
    setFrom(new Date(span.from).toISOString());
    setTo(new Date(span.to).toISOString());
  }, [span.range || `${span.from} ${span.to}`]);
  const submit = (/** @type {Event} */ event) => {
    event.preventDefault();
    const [begin, end] = [ms(from), ms(to)];
    const right = begin !== null && end !== null && end > begin;
    setWrong(!right);
    if (right) show(begin, end);
  };
  return html`<details>
    <summary>${t("timeline.free")}</summary>
    <form class="filters" onSubmit=${submit}>
      <${TimeField} label=${t("timeline.from")} at=${from} set=${setFrom} required=${true} />
      <${TimeField} label=${t("timeline.to")} at=${to} set=${setTo} required=${true} />
      <button type="submit">${t("timeline.show")}</button>
      <span role="status">${wrong && t("timeline.wrong")}</span>
    </form>
  </details>`;
}

/**
 * Zoom and move: by buttons, and by keys while one of them has the focus.
 * @param {{ span: ReturnType<typeof spanOf>, show: (from: number, to: number, how?: typeof go) => void }} props
 */
function Steps({ span: { from, to }, show }) {
  const wide = to - from;
  const move = (/** @type {number} */ by) => show(Math.max(0, from + by * wide), Math.max(0, from + by * wide) + wide, replace);
  const zoom = (/** @type {number} */ by) => show(from + (wide * (1 - by)) / 2, to - (wide * (1 - by)) / 2, replace);
  /** @type {[string, string, () => void][]} */
  const acts = [
    ["timeline.earlier", "ArrowLeft", () => move(-0.5)],
    ["timeline.closer", "+", () => zoom(0.5)],
    ["timeline.farther", "-", () => zoom(2)],
    ["timeline.later", "ArrowRight", () => move(0.5)],
  ];
  const pressed = (/** @type {KeyboardEvent} */ event) => {
    const act = acts.find(([, key]) => key === event.key);
    if (!act || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    act[2]();
  };
  return html`<div class="actions" role="group" aria-label=${t("timeline.steps")} onKeyDown=${pressed}>
    ${acts.map(([name, key, act]) => html`<button key=${name} type="button" aria-keyshortcuts=${key} title=${t("timeline.key", { key })} onClick=${act}>${t(name)}</button>`)}
  </div>`;
}

/**
 * `overdue`: the number of messages that are delivered first; null if it is unknown.
 * @param {{
 *   data: any, step: number, overdue: number | null, topic?: string, log: boolean, show: (from: number, to: number) => void,
 *   pick: (from: number, to: number) => void, listed: (from: number, to: number) => string,
 * }} props
 */
function Forecast({ data, step, overdue, topic, log, show, pick, listed }) {
  if (data.buckets === null) return html`<p class="empty" role="status">${t("timeline.unknown")}</p>`;
  /** @type {number[]} */
  const times = data.buckets.map((/** @type {any} */ one) => ms(one.dueFrom));
  /** @type {number[]} */
  const values = data.buckets.map((/** @type {any} */ one) => one.messages);
  const drain = data.drainRate || null;
  const capacity = data.capacity || null; // known only if messages had to wait for each other
  const total = values.reduce((sum, n) => sum + n, 0);
  const peak = values.indexOf(Math.max(...values));
  const line = capacity === null ? null : { at: (capacity * step) / SECOND, name: t("timeline.level", { rate: rate(capacity), count: rate((capacity * step) / SECOND) }) };
  return html`<${Chart}
      name=${t(topic ? "timeline.chart_of" : "timeline.chart", { topic, step: duration(step) })}
      times=${times}
      step=${step}
      height=${260}
      log=${log}
      line=${line}
      series=${[{ name: t("timeline.messages"), values, text: count, short: compact, bars: true, whole: true }]}
      zoom=${show}
      pick=${(/** @type {number} */ i) => pick(times[i], times[i] + step)}
    />
    <p class="age">
      ${data.exact ? t("timeline.exact") : html`${t("timeline.counted")} <${Age} at=${data.asOf} />. ${t("timeline.spread")}`}${" "}${t("timeline.hint")}
    </p>
    <dl class="figures">
      <${Figure} name=${t("timeline.total")} value=${total} asOf=${data.asOf} />
      <${Figure} name=${t("timeline.peak")} value=${values[peak]} link=${total ? listed(times[peak], times[peak] + step) : undefined} asOf=${data.asOf} />
      <${Figure} name=${t("timeline.drain")} value=${data.drainRate} text=${rate(data.drainRate)} />
      <${Figure} name=${t("timeline.takes")} value=${null} text=${capacity === null ? undefined : duration((((overdue ?? 0) + total) / capacity) * SECOND)} />
    </dl>
    ${drain === null && html`<p>${t(data.drainRate === 0 ? "timeline.nothing_went" : "timeline.no_rate")}</p>`}
    ${drain !== null && overdue !== 0 && html`<p>${overdue === null ? t("timeline.without_overdue") : t("timeline.overdue", { count: overdue, n: count(overdue) })}</p>`}
    ${drain !== null && html`<${Verdict} times=${times} values=${values} step=${step} overdue=${overdue ?? 0} known=${drain} measured=${capacity !== null} topic=${topic} show=${show} listed=${listed} />`}`;
}

/**
 * Whether the workers can deliver that, in sentences. `measured`: the rate is the limit of the workers, so it shows how long
 * deliveries take.
 * @param {{
 *   times: number[], values: number[], step: number, overdue: number, known: number, measured: boolean, topic?: string,
 *   show: (from: number, to: number) => void, listed: (from: number, to: number) => string,
 * }} props
 */
function Verdict({ times, values, step, overdue, known, measured, topic, show, listed }) {
  const jams = measured ? jamsOf(times, values, step, known, overdue).filter((one) => one.late >= WORTH_TELLING) : highBars(times, values, step, known);
  const exact = step < SECOND;
  const peak = values.indexOf(Math.max(...values));
  const basis = [t("timeline.basis", { rate: rate(known) }), !measured && t("timeline.not_measured"), topic && t("timeline.basis_all")].filter(Boolean).join(" ");
  if (jams.length === 0) {
    const takes = duration(Math.ceil((values[peak] / known) * SECOND));
    return html`<p class=${measured ? "well" : "card"}>
      ${values[peak] > 0 ? t(measured ? "timeline.enough" : "timeline.enough_so_far", { count: count(values[peak]), from: timeText(times[peak], exact), takes }) : t("timeline.none")}${" "}${basis}
      ${values[peak] > 0 && step > 1 && html`${" "}<button type="button" class="link" onClick=${() => show(times[peak], times[peak] + step)}>${t("timeline.look")}</button>`}
    </p>`;
  }
  // The rate of idle workers is no limit: then there is no warning, and no duration.
  const largest = [...jams].sort((a, b) => b.messages - a.messages).slice(0, MOST_TOLD);
  return html`<section>
    <h2>${t("timeline.jams", { count: jams.length })}</h2>
    <ul class="findings">
      ${largest.map(
        (one) => html`<li key=${one.from} class=${measured ? "finding" : "card"}>
          ${t(!measured ? "timeline.more" : one.goesOn ? "timeline.jam_goes_on" : "timeline.jam", {
            count: count(one.messages),
            from: timeText(one.from, exact),
            to: timeText(one.to, exact),
            takes: duration(Math.ceil((one.messages / known) * SECOND)),
            late: duration(Math.ceil(one.late)),
          })}${" "}
          ${step > 1 && html`<button type="button" class="link" onClick=${() => show(times[one.highest], times[one.highest] + step)}>${t("timeline.look")}</button>`}${" "}
          <a href=${listed(one.from, one.to)}>${t("timeline.list")}</a>
        </li>`,
      )}
    </ul>
    <p class="age">${jams.length > largest.length ? t("timeline.jams_more", { count: jams.length - largest.length }) : ""} ${basis}</p>
  </section>`;
}

/**
 * Bars above the best measured rate of such a time: the duration of their delivery is unknown.
 * @param {number[]} times
 * @param {number[]} values
 * @param {number} step
 * @param {number} perSecond
 * @returns {Jam[]}
 */
function highBars(times, values, step, perSecond) {
  const room = (perSecond * step) / SECOND;
  return values.flatMap((messages, i) =>
    messages > room ? [{ from: times[i], to: times[i] + step, messages, late: 0, highest: i, goesOn: false }] : [],
  );
}

/**
 * Ranges in which more messages fall due than are delivered, each until all of them are delivered.
 * @param {number[]} times
 * @param {number[]} values
 * @param {number} step
 * @param {number} perSecond
 * @param {number} overdue goes out before the first of them
 * @returns {Jam[]}
 */
function jamsOf(times, values, step, perSecond, overdue) {
  const room = (perSecond * step) / SECOND;
  /** @type {Jam[]} */
  const found = [];
  let left = 0;
  let one = /** @type {Jam | null} */ (null);
  for (const [i, falls] of values.entries()) {
    const n = i === 0 ? falls + overdue : falls;
    if (one === null && n > room) {
      one = { from: times[i], to: times[i], messages: 0, late: 0, highest: i, goesOn: true };
      found.push(one);
    }
    if (one === null) continue;
    left = Math.max(0, left + n - room);
    one.messages += n;
    if (falls > values[one.highest]) one.highest = i;
    one.to = times[i] + step;
    one.late = Math.max(one.late, (left / perSecond) * SECOND);
    if (left === 0) {
      one.goesOn = false;
      one = null;
    }
  }
  return found;
}
