// Schedule a test message, and follow it.

import { html, useMemo, useState } from "../vendor/standalone.module.js";
import { Act } from "./dialog.js";
import { go } from "./router.js";
import { SameCall } from "./same_call.js";
import { ask } from "./server.js";
import { t } from "./texts.js";

/** An id for this content: a repeat after a lost answer makes no second message. `crypto.randomUUID` needs HTTPS. */
function newId() {
  return `test-${[...crypto.getRandomValues(new Uint8Array(12))].map((one) => one.toString(16).padStart(2, "0")).join("")}`;
}

/**
 * The dialog; afterwards the page of the message is shown.
 * @param {{ topic?: string, close: () => void }} props
 */
export function TestMessage({ topic: first = "", close }) {
  const [topic, setTopic] = useState(first);
  const [body, setBody] = useState("");
  const [delay, setDelay] = useState("10s");
  const id = useMemo(newId, [topic, body, delay]);
  const given = { topic: topic.trim(), delay: delay.trim() };
  const run = async () => {
    const delayTime = /^\d+$/.test(given.delay) ? Number(given.delay) : given.delay;
    const scheduled = await ask("POST", "v1/messages", { body: { id, topic: given.topic, ...(body && { body }), delayTime } });
    close();
    go(["messages", scheduled.id]);
  };
  const typed = (/** @type {(text: string) => void} */ set) => (/** @type {any} */ e) => set(e.target.value);
  return html`<${Act} title=${t("test.title")} verb=${t("test.send")} text=${t("test.means")} close=${close} run=${run} why=${false}>
    <label
      >${t("message.topic")}
      <input required maxlength="255" autocapitalize="off" spellcheck="false" placeholder="orders.unpaid" value=${topic} onInput=${typed(setTopic)}
    /></label>
    <label
      >${t("test.body")}
      <textarea rows="4" spellcheck="false" dir="auto" value=${body} onInput=${typed(setBody)}></textarea>
    </label>
    <label
      >${t("message.delay_hint")}
      <input required autocomplete="off" value=${delay} onInput=${typed(setDelay)}
    /></label>
    <${SameCall} call=${{ does: "schedule", body, ...given }} />
  <//>`;
}
