// Dialogs: forms for actions, which show the API's answer. Destructive actions are confirmed by typing the count.

import { html, useEffect, useRef, useState } from "../vendor/standalone.module.js";
import { useHold } from "./lists.js";
import { Trouble } from "./notices.js";
import { Problem } from "./server.js";
import { t } from "./texts.js";

/** The page's heading has the focus, as after a link. */
export function focusHeading() {
  /** @type {HTMLElement | null} */ (document.querySelector("main h1"))?.focus();
}

/**
 * A native dialog, open as long as it is drawn: Escape and the cross close it, focus stays within.
 * @param {{ title: string, close: () => void, children?: any }} props
 */
export function Dialog({ title, close, children }) {
  const own = useRef(/** @type {any} */ (null));
  const over = useRef(false);
  useHold(true);
  useEffect(() => {
    const before = /** @type {HTMLElement | null} */ (document.activeElement);
    const dialog = own.current;
    dialog.showModal();
    return () => {
      over.current = true;
      dialog.close(); // until then nothing outside of it takes the focus
      // The element that opened it may be gone, because the action may have changed the page.
      if (before?.isConnected) before.focus();
      else focusHeading();
    };
  }, []);
  return html`<dialog
    ref=${own}
    aria-labelledby="dialog-title"
    onClose=${() => over.current || close()}
    onCancel=${close}
  >
    <header>
      <h2 id="dialog-title">${title}</h2>
      <button type="button" class="small" aria-label=${t("dialog.close")} onClick=${close}>✕</button>
    </header>
    ${children}
  </dialog>`;
}

/** Whether the API itself answered; otherwise the outcome of the action is unknown. @param {Problem} problem */
function toldByApi({ status, kind }) {
  return status !== 0 && kind !== "";
}

/**
 * An action: its fields, the reason (for the audit), and for a destructive one the typed count. The API's answer stays until
 * the dialog is closed. Nothing is sent while it is `blocked`. `run` gets the reason; it returns the result to show, or
 * raises Problem.
 * @param {{
 *   title: string, verb: string, close: () => void, run: (reason: string) => Promise<any>, text?: any, children?: any,
 *   confirm?: number, danger?: boolean, why?: boolean, blocked?: boolean,
 * }} props
 */
export function Act({ title, verb, close, run, text, children, confirm, danger = false, why = true, blocked = false }) {
  const [reason, setReason] = useState("");
  const [typed, setTyped] = useState("");
  const [busy, setBusy] = useState(false);
  const [done, setDone] = useState(/** @type {any} */ (null));
  const [problem, setProblem] = useState(/** @type {Problem | null} */ (null));
  const ready = !busy && !blocked && (confirm === undefined || typed.trim() === String(confirm));
  const submit = async (/** @type {Event} */ event) => {
    event.preventDefault();
    if (!ready) return;
    setBusy(true);
    setProblem(null);
    try {
      setDone((await run(reason.trim())) ?? t("dialog.done"));
    } catch (error) {
      if (!(error instanceof Problem)) throw error;
      setProblem(error);
    } finally {
      setBusy(false);
    }
  };
  return html`<${Dialog} title=${title} close=${close}>
    <form onSubmit=${submit}>
      ${done === null &&
      html`<div class="fields">
        ${text && html`<p>${text}</p>`} ${children}
        ${why &&
        html`<label
          >${t("dialog.why")}
          <input maxlength="200" value=${reason} onInput=${(/** @type {any} */ e) => setReason(e.target.value)}
        /></label>`}
        ${confirm !== undefined &&
        html`<label
          >${t("dialog.confirm", { count: confirm })}
          <input
            inputmode="numeric"
            autocomplete="off"
            value=${typed}
            onInput=${(/** @type {any} */ e) => setTyped(e.target.value)}
        /></label>`}
      </div>`}
      <div role="status" aria-live="polite">${done}</div>
      <${Trouble} problem=${problem} />
      ${problem !== null && !toldByApi(problem) && html`<p>${t("dialog.unsure")}</p>`}
      <footer>
        <button type="button" onClick=${close}>${done === null ? t("dialog.cancel") : t("dialog.close")}</button>
        ${done === null &&
        html`<button type="submit" class=${danger ? "danger" : "primary"} disabled=${!ready} aria-busy=${busy ? "true" : "false"}>
          ${verb}
        </button>`}
      </footer>
    </form>
  <//>`;
}
