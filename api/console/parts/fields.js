// Fields of filters.

import { html, useEffect, useState } from "../vendor/standalone.module.js";
import { t } from "./texts.js";

/** The width of a phone, as in console.css. */
const narrow = matchMedia("(max-width: 48rem)");

/**
 * The filters of a list: on a phone they unfold, so that the list comes first. `set` is the number of filters in use.
 * @param {{ set: number, children?: any }} props
 */
export function Narrow({ set, children }) {
  const [open, setOpen] = useState(!narrow.matches);
  useEffect(() => {
    const fit = () => setOpen(!narrow.matches);
    narrow.addEventListener("change", fit);
    return () => narrow.removeEventListener("change", fit);
  }, []);
  return html`<details class="narrow" open=${open} onToggle=${(/** @type {any} */ e) => setOpen(e.currentTarget.open)}>
    <summary>${set > 0 ? t("filter.some", { count: set }) : t("filter.name")}</summary>
    ${children}
  </details>`;
}

/**
 * A text to search for, which no browser completes or corrects.
 * @param {{ label: string, text: string, set: (text: string) => void, hint?: string }} props
 */
export function TextField({ label, text, set, hint = "" }) {
  return html`<label
    >${label}
    <input
      value=${text}
      placeholder=${hint}
      autocomplete="off"
      spellcheck=${false}
      onInput=${(/** @type {any} */ e) => set(e.target.value)}
  /></label>`;
}
