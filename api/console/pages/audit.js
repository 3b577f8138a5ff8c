// The manual changes, newest first.

import { html, useEffect, useState } from "../vendor/standalone.module.js";
import { Narrow } from "../parts/fields.js";
import { usePages } from "../parts/lists.js";
import { Freshness, Loading, Trouble } from "../parts/notices.js";
import { href, replace } from "../parts/router.js";
import { More, Table } from "../parts/table.js";
import { t } from "../parts/texts.js";
import { Age, Time, TimeField } from "../parts/times.js";

/**
 * @typedef {{ id: string, topic: string, keys: string[] }} Changed
 * @typedef {{ time: string, action: string, actor: string, key?: string, address?: string, reason?: string, queue?: number, messages?: Changed[], detail?: string, count?: number, run?: string }} Entry
 */

/** The filters, with the API's own names. */
const FILTERS = ["id", "key", "topic", "actor", "action", "from", "to"];

const ACTIONS = [
  "cancel", "reschedule", "deliverNow", "redrive", "discard", "pause", "resume", "putPolicy", "deletePolicy",
  "deleteGroup", "repair",
  "writeOff", "reshard", "bumpEra", "undoBackfill",
];

/** The number of messages of an entry that are shown at first. */
const FEW = 3;

/** @param {{ rest: string[], query: Record<string, string> }} props */
export function Audit({ query }) {
  const wanted = Object.fromEntries(FILTERS.filter((name) => query[name]).map((name) => [name, query[name]]));
  const list = usePages("v1/audit", wanted, (answer) => answer.entries);
  return html`<div class="heading">
      <h1 tabindex="-1">${t("page.audit")}</h1>
      ${list.data && html`<${Freshness} at=${list.at} problem=${list.problem} />`}
    </div>
    <${Filters} wanted=${wanted} again=${list.again} loading=${list.loading} />
    ${list.data === null ? (list.problem ? html`<${Trouble} problem=${list.problem} />` : html`<${Loading} />`) : html`<${Entries} list=${list} wanted=${wanted} />`}`;
}

/**
 * @param {{ wanted: Record<string, string>, again: () => void, loading: boolean }} props
 */
function Filters({ wanted, again, loading }) {
  const [draft, setDraft] = useState(wanted);
  useEffect(() => setDraft(wanted), [JSON.stringify(wanted)]);
  const set = (/** @type {string} */ name, /** @type {string} */ value) => setDraft({ ...draft, [name]: value });
  const submit = (/** @type {Event} */ event) => {
    event.preventDefault();
    const next = Object.fromEntries(FILTERS.map((name) => [name, (draft[name] ?? "").trim()]).filter(([, value]) => value !== ""));
    if (JSON.stringify(next) === JSON.stringify(wanted)) again();
    else replace(["audit"], next);
  };
  const text = (/** @type {string} */ name, /** @type {number} */ most) => html`<label
    >${t(`audit.${name}`)}
    <input type="search" maxlength=${most} value=${draft[name] ?? ""} onInput=${(/** @type {any} */ e) => set(name, e.target.value)}
  /></label>`;
  const actions = wanted.action === undefined || ACTIONS.includes(wanted.action) ? ACTIONS : [...ACTIONS, wanted.action];
  return html`<${Narrow} set=${Object.keys(wanted).length}><form class="filters" onSubmit=${submit}>
    ${text("topic", 255)} ${text("id", 128)} ${text("key", 1_024)} ${text("actor", 1_024)}
    <label
      >${t("audit.action")}
      <select value=${draft.action ?? ""} onChange=${(/** @type {any} */ e) => set("action", e.target.value)}>
        <option value="">${t("audit.any")}</option>
        ${actions.map((one) => html`<option key=${one} value=${one} selected=${one === draft.action}>${actionText(one)}</option>`)}
      </select></label
    >
    <${TimeField} label=${t("audit.from")} at=${draft.from} set=${(/** @type {string} */ one) => set("from", one)} />
    <${TimeField} label=${t("audit.to")} at=${draft.to} set=${(/** @type {string} */ one) => set("to", one)} />
    <button type="submit" class="primary" aria-busy=${loading ? "true" : "false"}>${t("audit.look")}</button>
    ${Object.keys(wanted).length > 0 && html`<a href=${href(["audit"])}>${t("audit.all")}</a>`}
  </form><//>`;
}

/** @param {string} action an action that this console does not know is shown as the API names it */
function actionText(action) {
  return ACTIONS.includes(action) ? t(`audit.action_${action}`) : action;
}

/** @param {{ list: ReturnType<typeof usePages>, wanted: Record<string, string> }} props */
function Entries({ list, wanted }) {
  /** @type {Entry[]} */
  const entries = list.rows;
  const names = entryNames(entries);
  const filtered = Object.keys(wanted).length > 0;
  const empty = list.next !== null ? t("audit.none_yet") : filtered ? t("audit.none_so") : t("audit.none");
  return html`<${Table}
      caption=${t("page.audit")}
      hideCaption=${true}
      rows=${entries}
      id=${(/** @type {Entry} */ one) => names.get(one) ?? ""}
      open=${(/** @type {Entry} */ one) => (one.messages?.length === 1 ? href(["messages", one.messages[0].id]) : null)}
      empty=${empty}
      then=${list.next === null && !filtered && t("audit.none_then")}
      columns=${[
        { name: "time", title: t("audit.time"), cell: (/** @type {Entry} */ one) => html`<${Time} at=${one.time} exact=${true} /> <small class="age"><${Age} at=${one.time} /></small>` },
        { name: "action", title: t("audit.action"), cell: (/** @type {Entry} */ one) => actionText(one.action) },
        { name: "actor", title: t("audit.actor"), cell: (/** @type {Entry} */ one) => html`<${Actor} entry=${one} />` },
        { name: "what", title: t("audit.what"), cell: (/** @type {Entry} */ one) => html`<${What} entry=${one} />` },
        { name: "reason", title: t("audit.reason"), cell: (/** @type {Entry} */ one) => html`<bdi>${one.reason || "–"}</bdi>` },
      ]}
    />
    ${list.problem && html`<${Trouble} problem=${list.problem} />`}
    <${More} next=${list.next} loading=${list.loading} />`;
}

/** A name for each entry; the API gives none. @param {Entry[]} entries */
function entryNames(entries) {
  /** @type {Map<string, number>} */
  const seen = new Map();
  return new Map(
    entries.map((one) => {
      const name = JSON.stringify([one.time, one.queue, one.action, one.actor, one.messages?.[0]?.id]);
      const n = (seen.get(name) ?? 0) + 1;
      seen.set(name, n);
      return [one, `${name} ${n}`];
    }),
  );
}

/** @param {{ entry: Entry }} props */
function Actor({ entry }) {
  return html`<a href=${href(["audit"], { actor: entry.actor })}><bdi>${entry.actor || "–"}</bdi></a>
    ${entry.key && html`<br /><small class="age">${t("audit.with_key")} <code>${entry.key}</code></small>`}
    ${entry.address && html`<br /><small class="age">${entry.address}</small>`}`;
}

/** The change of an entry: its messages, each with its page, or a change that concerns none. @param {{ entry: Entry }} props */
function What({ entry }) {
  const [open, setOpen] = useState(false);
  const { messages = [], detail, queue, count, run } = entry;
  const shown = open ? messages : messages.slice(0, FEW);
  return html`${
      messages.length > 0 &&
      html`<ul class="plain">
        ${shown.map(
          (one) => html`<li key=${one.id}>
            <a class="id" href=${href(["messages", one.id])}>${one.id}</a> <small class="age">${one.topic}${one.keys.map((key) => html` <bdi>${key}</bdi>`)}</small>
          </li>`,
        )}
      </ul>`
    }
    ${
      messages.length > FEW &&
      html`<button type="button" class="link" aria-expanded=${open ? "true" : "false"} onClick=${() => setOpen(!open)}>
        ${open ? t("audit.fewer") : t("audit.more", { count: messages.length - FEW })}
      </button>`
    }
    ${count !== undefined && html`<small class="age">${t("audit.in_all", { count })}</small>`}
    ${run && html`<code class="detail">${run}</code>`}
    ${detail && html`<code class="detail">${detail}</code>`}
    ${queue !== undefined && html`<small class="age"><a href=${href(["queues"], { queue })}>${t("findings.queue", { queue })}</a></small>`}
    ${messages.length === 0 && !detail && queue === undefined && "–"}`;
}
