// Charts: a figure with a name, drawn on a canvas, and the same numbers as a table beside it for readers without a canvas.

import { html, useEffect, useRef, useState } from "../vendor/standalone.module.js";
import { serverNow } from "./live.js";
import { useStore } from "./store.js";
import { language, t } from "./texts.js";
import { isDark, theme } from "./theme.js";
import { clockText, dayText, timeText, zone } from "./times.js";

const DAY = 86_400_000; // ms

/** Lines differ by more than their color. */
const DASHES = [[], [7, 3], [2, 3]];
const BORDERS = ["solid", "dashed", "dotted"];

/** A count has integers at its axis. */
const WHOLE = Array.from({ length: 13 }, (_, i) => [1, 2, 5].map((n) => n * 10 ** i)).flat();

/**
 * Numbers over the times: null is unknown, and leaves a gap. `text` is for the table, `short` for the axis; `tone` is a color
 * of console.css; `whole`: the numbers are integers.
 * @typedef {{
 *   name: string, values: (number | null)[], text: (n: number | null) => string, short?: (n: number) => string, bars?: boolean,
 *   tone?: string, whole?: boolean,
 * }} Series
 */

/**
 * @typedef {{
 *   name: string, times: number[], series: Series[], height?: number, log?: boolean, line?: { at: number, name: string } | null,
 *   zoom?: (from: number, to: number) => void, pick?: (index: number) => void, step?: number,
 * }} Drawn
 */

/**
 * A chart of points or bars. `times`: Unix ms of the points, or of the starts of bars. `step`: ms of a bar. `line`: a level
 * that is drawn across, unless it is far above all values. `zoom` is called with the selected range, and `pick` with the clicked bar.
 * @param {Drawn} props
 */
export function Chart(props) {
  const { name, times, series, height = 160, log = false, line = null, pick, step } = props;
  const own = useRef(/** @type {any} */ (null));
  const values = useRef(/** @type {any} */ (null));
  const plot = useRef(/** @type {any} */ (null));
  const current = useRef(props);
  current.current = props;
  const look = useStore(theme);
  const tongue = useStore(language);
  const clock = useStore(zone);
  const drawable = useLibrary();
  const shape = JSON.stringify([
    series.map((one) => [one.name, one.bars, one.tone, one.whole]), log, look, isDark(), tongue, clock, height,
  ]);
  const data = [times, ...series.map((one) => (log ? one.values.map((n) => ((n ?? 0) > 0 ? n : null)) : one.values))];
  useEffect(() => {
    if (!drawable) return undefined;
    const tell = (/** @type {number | null} */ index) => {
      const { series: all, times: begins, step: wide } = current.current;
      const cells = values.current?.children ?? [];
      for (const [i, cell] of [...cells].entries()) {
        if (i === 0) cell.textContent = index === null ? "" : timeText(begins[index], (wide ?? 1_000) < 1_000);
        else if (i <= all.length) cell.lastChild.textContent = index === null ? "" : all[i - 1].text(all[i - 1].values[index]);
      }
    };
    const made = new uPlot(optionsOf(own.current, current, height, log, clock, tell), data, own.current);
    made.over.addEventListener("click", () => {
      const index = indexAt(current.current.times, made.posToVal(made.cursor.left, "x"));
      if (index !== null) current.current.pick?.(index);
    });
    made.over.style.cursor = current.current.pick ? "pointer" : "";
    plot.current = made;
    const sized = new ResizeObserver(() => {
      const width = widthOf(own.current);
      if (width !== made.width) made.setSize({ width, height });
    });
    sized.observe(own.current);
    return () => {
      sized.disconnect();
      made.destroy();
    };
  }, [shape, drawable]);
  useEffect(() => plot.current?.setData(data), [JSON.stringify([data, step, line?.at])]);
  return html`<figure class="chart">
    <figcaption>${name}</figcaption>
    <div class="plot" ref=${own} aria-hidden="true"></div>
    <p class="legend" aria-hidden="true" ref=${values}>
      <span class="when"></span>
      ${series.map(
        (one, i) => html`<span key=${one.name}>
          <i class=${one.bars ? "bar" : ""} style=${swatch(one.tone ?? "accent", one.bars ? "solid" : BORDERS[i % 3])}></i>${one.name} <b></b>
        </span>`,
      )}
      ${line && html`<span><i style=${swatch("warn", "dashed")}></i>${line.name}</span>`}
    </p>
    <${Numbers} name=${name} times=${times} series=${series} pick=${pick} step=${step} />
  </figure>`;
}

/** Whether uPlot is loaded: the page runs without waiting for it. */
function useLibrary() {
  const [there, setThere] = useState("uPlot" in window);
  useEffect(() => {
    if (there) return undefined;
    const look = () => setThere("uPlot" in window);
    addEventListener("load", look);
    return () => removeEventListener("load", look);
  }, [there]);
  return there;
}

/**
 * The same as a table, which is made only when it is opened.
 * @param {{ name: string, times: number[], series: Series[], pick?: (index: number) => void, step?: number }} props
 */
function Numbers({ name, times, series, pick, step = 1_000 }) {
  const [open, setOpen] = useState(false);
  const exact = step < 1_000;
  const row = (/** @type {number} */ one, /** @type {number} */ i) => html`<tr key=${one}>
    <th scope="row">
      ${pick ? html`<button type="button" class="link" onClick=${() => pick(i)}>${timeText(one, exact)}</button>` : timeText(one, exact)}
    </th>
    ${series.map((s) => html`<td class="number">${s.text(s.values[i])}</td>`)}
  </tr>`;
  return html`<details onToggle=${(/** @type {any} */ e) => setOpen(e.currentTarget.open)}>
    <summary>${t("chart.table")}</summary>
    ${
      open &&
      html`<div class="scroll numbers" tabindex="0" role="region" aria-label=${name}>
        <table>
          <caption class="hidden">${name}</caption>
          <thead>
            <tr>
              <th scope="col">${t("chart.time")}</th>
              ${series.map((one) => html`<th scope="col" class="number">${one.name}</th>`)}
            </tr>
          </thead>
          <tbody>${times.map(row)}</tbody>
        </table>
      </div>`
    }
  </details>`;
}

/**
 * @param {string} tone
 * @param {string} border
 */
function swatch(tone, border) {
  return { borderTopColor: `var(--${tone})`, borderTopStyle: border };
}

/** @param {HTMLElement} own */
function widthOf(own) {
  return Math.max(200, own.clientWidth);
}

/**
 * The index of a bar or point: the last one that does not begin later.
 * @param {number[]} times
 * @param {number} at
 */
function indexAt(times, at) {
  let found = null;
  for (let i = 0; i < times.length && times[i] <= at; i += 1) found = i;
  return found;
}

/**
 * @param {HTMLElement} own
 * @param {{ current: Drawn }} drawn
 * @param {number} height
 * @param {boolean} log
 * @param {string} clock
 * @param {(index: number | null) => void} tell
 */
function optionsOf(own, drawn, height, log, clock, tell) {
  const { series, zoom } = drawn.current;
  const colour = (/** @type {string} */ one) => colourOf(own, one);
  const grid = { stroke: colour("grid"), width: 1 };
  const axis = { stroke: colour("ink-2"), grid, ticks: grid };
  const bars = series.some((one) => one.bars);
  const whole = series.every((one) => one.whole);
  return {
    width: widthOf(own),
    height,
    ms: 1,
    padding: [8, 42, 0, 0], // half of the last time's text
    legend: { show: false },
    tzDate: (/** @type {number} */ at) => (clock === "UTC" ? uPlot.tzDate(new Date(at), "Etc/UTC") : new Date(at)),
    cursor: { y: false, drag: { x: Boolean(zoom), y: false, setScale: false }, points: { show: false } },
    scales: {
      x: { range: (/** @type {any} */ _u, /** @type {number | null} */ min, /** @type {number | null} */ max) => spanOf(min, max, bars ? (drawn.current.step ?? 0) : 0) },
      y: { distr: log ? 3 : 1, range: (/** @type {any} */ _u, /** @type {number | null} */ min, /** @type {number | null} */ max) => levelsOf(min, max, log, drawn.current.line?.at) },
    },
    axes: [
      { ...axis, size: 52, space: 70, values: (/** @type {any} */ _u, /** @type {number[]} */ at, /** @type {number} */ _i, /** @type {number} */ _space, /** @type {number} */ step) => timesAt(at, step) },
      {
        ...axis,
        // Wide enough for its longest number, at 12 px. A letter beyond Latin, such as a Chinese one, is as wide as two.
        size: (/** @type {any} */ _u, /** @type {string[] | null} */ texts) => 18 + 7 * Math.max(3, ...(texts ?? []).map((one) => one.replace(/[^ -\xff]/g, "..").length)),
        values: (/** @type {any} */ u, /** @type {(number | null)[]} */ at) => at.map((n) => (n === null || (n < 1 && u.scales.y.min === 0.5) ? "" : (series[0].short ?? series[0].text)(n))),
        ...(whole && !log ? { incrs: WHOLE } : {}),
        ...(log ? { splits: decades } : {}),
      },
    ],
    series: [
      {},
      ...series.map((one, i) => ({
        label: one.name,
        stroke: colour(one.tone ?? "accent"),
        width: one.bars ? 0 : 2,
        dash: one.bars ? undefined : DASHES[i % 3],
        fill: one.bars ? colour(one.tone ?? "accent") : undefined,
        paths: one.bars ? uPlot.paths.bars({ size: [0.9], align: 1 }) : undefined,
        points: { show: false, filter: one.bars ? null : alone, fill: colour(one.tone ?? "accent") },
      })),
    ],
    hooks: {
      setCursor: [
        (/** @type {any} */ u) => tell(u.cursor.left < 0 ? null : bars ? indexAt(drawn.current.times, u.posToVal(u.cursor.left, "x")) : u.cursor.idx),
      ],
      setSelect: [
        (/** @type {any} */ u) => {
          const { left, width } = u.select;
          if (width === 0) return;
          u.setSelect({ left: 0, width: 0, top: 0, height: 0 }, false);
          if (width >= 4) drawn.current.zoom?.(Math.floor(u.posToVal(left, "x")), Math.ceil(u.posToVal(left + width, "x")));
        },
      ],
      draw: [(/** @type {any} */ u) => drawLevel(u, drawn.current.line?.at, colour("warn"))],
    },
  };
}

/**
 * Points without a visible line, because their neighbors are unknown.
 * @param {any} u
 * @param {number} i
 */
function alone(u, i) {
  const values = u.data[i];
  const known = (/** @type {number} */ at) => (values[at] ?? null) !== null;
  const found = [...values.keys()].filter((at) => known(at) && !known(at - 1) && !known(at + 1));
  return found.length ? found : null;
}

/**
 * A color of console.css for a canvas: a choice of light and dark must be computed.
 * @param {HTMLElement} own
 * @param {string} name
 */
function colourOf(own, name) {
  own.style.color = `var(--${name})`;
  const found = getComputedStyle(own).color;
  own.style.color = "";
  return found;
}

/**
 * From the first to the last, and to the end of the last bar.
 * @param {number | null} min
 * @param {number | null} max
 * @param {number} step
 */
function spanOf(min, max, step) {
  if (min === null || max === null) return [0, 1];
  return [min, max + step > min ? max + step : min + 1];
}

/**
 * @param {number | null} min
 * @param {number | null} max
 * @param {boolean} log
 * @param {number} [level]
 */
function levelsOf(min, max, log, level) {
  const most = max ?? 0;
  if (log) return [(min ?? 1) >= 1 ? 0.5 : (min ?? 1) / 2, Math.max(10, 1.5 * Math.max(most, level ?? 0))];
  // A level far above all else would flatten everything else; a sentence replaces it.
  const shown = level !== undefined && level <= 3 * most ? Math.max(most, level) : most;
  return [0, shown > 0 ? shown * 1.1 : 1];
}

/**
 * The powers of ten: more lines would be a gray wall.
 * @param {any} _u
 * @param {number} _axis
 * @param {number} min
 * @param {number} max
 */
function decades(_u, _axis, min, max) {
  const first = Math.ceil(Math.log10(min));
  return Array.from({ length: Math.floor(Math.log10(max)) - first + 1 }, (_, i) => 10 ** (first + i));
}

/**
 * Texts of an axis of times, with the day below where it changes.
 * @param {number[]} at
 * @param {number} step ms from one to the next
 */
function timesAt(at, step) {
  let before = dayText(serverNow());
  return at.map((one) => {
    const day = dayText(one);
    if (step >= DAY) return day;
    const text = day === before ? clockText(one, step) : `${clockText(one, step)}\n${day}`;
    before = day;
    return text;
  });
}

/**
 * @param {any} u
 * @param {number | undefined} level
 * @param {string} colour
 */
function drawLevel(u, level, colour) {
  if (level === undefined) return;
  const y = u.valToPos(level, "y", true);
  if (!(y >= u.bbox.top && y <= u.bbox.top + u.bbox.height)) return;
  const { ctx } = u;
  ctx.save();
  ctx.strokeStyle = colour;
  ctx.lineWidth = 2 * devicePixelRatio;
  ctx.setLineDash([6 * devicePixelRatio, 4 * devicePixelRatio]);
  ctx.beginPath();
  ctx.moveTo(u.bbox.left, y);
  ctx.lineTo(u.bbox.left + u.bbox.width, y);
  ctx.stroke();
  ctx.restore();
}
