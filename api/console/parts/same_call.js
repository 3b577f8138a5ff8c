// The same call as a program, in the language of the reader, to copy.

import { html, useState } from "../vendor/standalone.module.js";
import { isComplete, LANGUAGES } from "./calls.js";
import { prefix } from "./frame.js";
import { me } from "./live.js";
import { Copy } from "./notices.js";
import { remember, remembered, t } from "./texts.js";

const KEPT = "delayq.program";

/**
 * The program of a call, below its action. A half-typed call has none yet.
 * @param {{ call: import("./calls.js").Call, title?: string }} props
 */
export function SameCall({ call, title }) {
  const [chosen, setChosen] = useState(remembered(KEPT) ?? "curl");
  const language = Object.hasOwn(LANGUAGES, chosen) ? chosen : "curl";
  const choose = (/** @type {string} */ one) => {
    remember(KEPT, one);
    setChosen(one);
  };
  const api = { url: location.origin + prefix().replace(/\/$/, ""), key: me.get()?.name != null };
  const program = isComplete(call) ? LANGUAGES[language].write(call, api) : null;
  return html`<details class="program">
    <summary>${title ?? t("call.title")}</summary>
    <div class="heading">
      <span role="group" aria-label=${t("call.language")} class="choice">
        ${Object.entries(LANGUAGES).map(
          ([one, { name }]) => html`<button key=${one} type="button" aria-pressed=${one === language ? "true" : "false"} onClick=${() => choose(one)}>${name}</button>`,
        )}
      </span>
      ${program !== null && html`<${Copy} text=${program} label=${LANGUAGES[language].name} />`}
    </div>
    ${program === null ? html`<p class="empty">${t("call.incomplete")}</p>` : html`<pre class="body" tabindex="0" dir="ltr">${program}</pre>`}
    ${api.key && html`<p class="age">${t("call.key")}</p>`}
  </details>`;
}
