// Fields of filters.

import { html } from "../vendor/standalone.module.js";

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
