// Tables: real ones, with rows that keys walk and choose.

import { h, html, useEffect, useMemo, useRef, useState } from "../vendor/standalone.module.js";
import { language, t } from "./texts.js";
import { useKeys } from "./keys.js";

/**
 * Rows that are drawn at once, about as many as fit on a screen, and how many more in each frame that follows: the page answers to
 * hands meanwhile, and the browser's own search soon finds all.
 */
const FIRST = 50;
const SLICE = 320;

/**
 * @template R
 * @typedef {{ name: string, title: any, number?: boolean, cell: (row: R) => any }} Column
 */

/**
 * A table. `open` tells the link of a row (Enter follows it), `chosen` and `choose` are the ids of selected rows.
 * @param {{
 *   caption: string, columns: Column<any>[], rows: any[], id: (row: any) => string, open?: (row: any) => string | null,
 *   chosen?: Set<string>, choose?: (chosen: Set<string>) => void, empty?: any, hideCaption?: boolean,
 *   tone?: (row: any) => string,
 * }} props
 */
export function Table({ caption, columns, rows, id, open, chosen, choose, empty, hideCaption = false, tone }) {
  const [current, setCurrent] = useState(-1);
  const [most, setMost] = useState(FIRST);
  const body = useRef(/** @type {any} */ (null));
  // Of several tables on a page, keys are for the one that has the focus, else for the first.
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
      { key: one, tabindex: "-1", class: tone ? tone(row) : undefined, "aria-selected": chosen ? String(selected) : undefined },
      chosen && h("td", null, h("input", { type: "checkbox", "aria-label": t("table.one", { id: one }), checked: selected })),
      ...columns.map((column) => h("td", { class: column.number ? "number" : undefined }, column.cell(row))),
    );
  useKeys({
    j: () => step(1),
    k: () => step(-1),
    x: () => meant() && current >= 0 && current < rows.length && flip(id(rows[current])),
  });
  useEffect(() => {
    if (current >= rows.length) setCurrent(rows.length - 1);
  }, [rows.length]);
  // How many are drawn only grows: a list that is asked for anew stands as it stood.
  useEffect(() => {
    if (most >= rows.length) return undefined;
    const frame = requestAnimationFrame(() => setMost(most + SLICE));
    return () => cancelAnimationFrame(frame);
  }, [most, rows.length]);
  // Of a thousand rows none is drawn again for a step from row to row, for another one that is selected, or for those that follow.
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
  if (rows.length === 0 && empty !== undefined) return html`<p class="empty">${empty}</p>`;
  const all = chosen !== undefined && rows.length > 0 && rows.every((row) => chosen.has(id(row)));
  return html`<div class="scroll" tabindex="0" role="region" aria-label=${caption}>
    <table>
      <caption class=${hideCaption ? "hidden" : ""}>${caption}</caption>
      <thead>
        <tr>
          ${
            chosen &&
            choose &&
            html`<th scope="col">
              <input
                type="checkbox"
                aria-label=${t("table.all")}
                checked=${all}
                onChange=${() => choose(all ? new Set() : new Set(rows.map(id)))}
              />
            </th>`
          }
          ${columns.map((one) => html`<th scope="col" class=${one.number ? "number" : ""}>${one.title}</th>`)}
        </tr>
      </thead>
      <tbody
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
 * The way on in a list of pages. The button is not disabled while more comes: whoever stands on it would lose his place.
 * @param {{ next: (() => void) | null, loading: boolean }} props
 */
export function More({ next, loading }) {
  if (next === null) return null;
  return html`<p><button type="button" onClick=${() => loading || next()} aria-busy=${loading ? "true" : "false"}>${t("table.more")}</button></p>`;
}
