// Tables: real ones, with rows that keys walk and choose.

import { h, html, useEffect, useMemo, useRef, useState } from "../vendor/standalone.module.js";
import { language, t } from "./texts.js";
import { useKeys } from "./keys.js";

/**
 * Rows that are drawn at once, about as many as fit on a screen, and the number in each frame that follows. The page answers
 * meanwhile, and the browser's own search soon finds all rows.
 */
const FIRST = 50;
const SLICE = 320;

/**
 * @template R
 * @typedef {{ name: string, title: any, number?: boolean, cell: (row: R) => any }} Column
 */

/**
 * A table; on a phone a list of cards, one for each row: console.css lays out the same elements, so their roles are written
 * down. `open` returns the link of a row (Enter follows it), `chosen` and `choose` are the ids of selected rows. Without
 * rows it shows `empty`, the reason, and `then`, what to do next.
 * @param {{
 *   caption: string, columns: Column<any>[], rows: any[], id: (row: any) => string, open?: (row: any) => string | null,
 *   chosen?: Set<string>, choose?: (chosen: Set<string>) => void, empty?: any, then?: any, hideCaption?: boolean,
 *   tone?: (row: any) => string,
 * }} props
 */
export function Table({ caption, columns, rows, id, open, chosen, choose, empty, then, hideCaption = false, tone }) {
  const [current, setCurrent] = useState(-1);
  const [most, setMost] = useState(FIRST);
  const body = useRef(/** @type {any} */ (null));
  // If a page has several tables, keys are for the one with the focus, otherwise for the first.
  const meant = () => {
    const all = [...document.querySelectorAll("tbody[data-rows]")];
    return (all.find((one) => one.contains(document.activeElement)) ?? all[0]) === body.current;
  };
  const step = (/** @type {number} */ by) => {
    if (!meant()) return;
    const next = Math.min(rows.length, most, Math.max(1, current + by + 1)) - 1;
    setCurrent(next);
    body.current?.children[next]?.focus();
  };
  const flip = (/** @type {string} */ one) => {
    if (!chosen || !choose) return;
    const next = new Set(chosen);
    if (!next.delete(one)) next.add(one);
    choose(next);
  };
  // Without a template, and without handlers of its own: there may be thousands.
  const draw = (/** @type {any} */ row, /** @type {string} */ one, /** @type {boolean | undefined} */ selected) =>
    h(
      "tr",
      { key: one, role: "row", tabindex: "-1", class: tone ? tone(row) : undefined, "aria-selected": chosen ? String(selected) : undefined },
      chosen && h("td", { role: "cell", class: "pick" }, h("label", null, h("input", { type: "checkbox", "aria-label": t("table.one", { id: one }), checked: selected }))),
      ...columns.map((column, i) => h("td", { role: "cell", class: classOf(column, i), "data-label": labelOf(column) }, column.cell(row))),
    );
  useKeys({
    j: () => step(1),
    k: () => step(-1),
    x: () => meant() && current >= 0 && current < rows.length && flip(id(rows[current])),
  });
  useEffect(() => {
    if (current >= rows.length) setCurrent(rows.length - 1);
  }, [rows.length]);
  // The number of drawn rows only grows: a list that is requested again stays in its place.
  useEffect(() => {
    if (most >= rows.length) return undefined;
    const frame = requestAnimationFrame(() => setMost(most + SLICE));
    return () => cancelAnimationFrame(frame);
  }, [most, rows.length]);
  // None of a thousand rows is drawn again for a step from row to row, for a selection, or for new rows.
  const made = useMemo(() => new WeakMap(), [columns, tone, language.get()]);
  const drawn = rows.slice(0, most).map((row) => {
    const one = id(row);
    const selected = chosen?.has(one);
    let kept = made.get(row);
    if (kept === undefined || kept.selected !== selected) made.set(row, (kept = { selected, node: draw(row, one, selected) }));
    return kept.node;
  });
  const placeOf = (/** @type {any} */ event) => event.target.closest("tr").sectionRowIndex;
  const pressed = (/** @type {any} */ event) => {
    const link = event.key === "Enter" && event.target.tagName === "TR" && open ? open(rows[placeOf(event)]) : null;
    if (link) location.hash = link;
  };
  const changed = (/** @type {any} */ event) => {
    if (chosen && event.target.closest("td") === event.target.closest("tr").firstChild) flip(id(rows[placeOf(event)]));
  };
  if (rows.length === 0 && empty !== undefined) return html`<div class="blank"><p>${empty}</p>${then && html`<p>${then}</p>`}</div>`;
  const all = chosen !== undefined && rows.length > 0 && rows.every((row) => chosen.has(id(row)));
  return html`<div class="scroll rows" tabindex="0" role="region" aria-label=${caption}>
    <table role="table">
      <caption class=${hideCaption ? "hidden" : ""}>${caption}</caption>
      <thead role="rowgroup">
        <tr role="row">
          ${
            chosen &&
            choose &&
            html`<th scope="col" role="columnheader" class="pick">
              <label
                ><input type="checkbox" checked=${all} onChange=${() => choose(all ? new Set() : new Set(rows.map(id)))} />
                <span class="for-phones">${t("table.all")}</span>
              </label>
            </th>`
          }
          ${columns.map((one) => html`<th scope="col" role="columnheader" class=${one.number ? "number" : ""}>${one.title}</th>`)}
        </tr>
      </thead>
      <tbody
        role="rowgroup"
        ref=${body}
        data-rows
        onfocusin=${(/** @type {any} */ event) => setCurrent(placeOf(event))}
        onKeyDown=${pressed}
        onChange=${changed}
      >
        ${drawn}
      </tbody>
    </table>
  </div>`;
}

/**
 * @param {Column<any>} column
 * @param {number} i
 */
function classOf({ number }, i) {
  if (i === 0) return "title"; // of the card
  return number ? "number" : undefined;
}

/** The name before a value of a card; a column whose title is hidden gives its values none. @param {Column<any>} column */
function labelOf({ title }) {
  return typeof title === "string" ? title : undefined;
}

/**
 * The next page of a list. The button stays enabled while rows load, because a disabled one would lose the focus.
 * @param {{ next: (() => void) | null, loading: boolean }} props
 */
export function More({ next, loading }) {
  if (next === null) return null;
  return html`<p><button type="button" onClick=${() => loading || next()} aria-busy=${loading ? "true" : "false"}>${t("table.more")}</button></p>`;
}
