// Dead letters by topic and reason, and one by one; redrive or discard some of them or an entire group.

import { html, useEffect, useRef, useState } from "../vendor/standalone.module.js";
import { Bulk } from "../parts/bulk.js";
import { Narrow, TextField } from "../parts/fields.js";
import { Refresh, useAsked, useHold, usePages, useRefresh } from "../parts/lists.js";
import { may, mayEverywhere } from "../parts/live.js";
import { Freshness } from "../parts/notices.js";
import { count, UNKNOWN } from "../parts/numbers.js";
import { filled, go, href } from "../parts/router.js";
import { ask } from "../parts/server.js";
import { More, Table } from "../parts/table.js";
import { t } from "../parts/texts.js";
import { Age, ms, Time, TimeField } from "../parts/times.js";

const FILTER = ["topic", "group", "reason", "from", "to", "order"];

/** The default rate of redriven or discarded letters per second: it protects a target that has just recovered. */
const RATE = 200;

/** The API counts groups at most once per second, so a change is visible after this many ms. */
const COUNTED_EVERY = 1_100;

/** Letters of a group that are requested at a time. */
const PAGE = 200;

const PATHS = { redrive: "v1/dead-letters:redrive", discard: "v1/dead-letters:discard" };

/** @typedef {{ topic: string | null, reason: string, count: number, firstTime: string, lastTime: string, examples: string[] }} Group */

/** @param {string | null | undefined} topic null: of letters that cannot be read */
function mayAdmin(topic) {
  return typeof topic === "string" ? may("admin", topic) : mayEverywhere("admin");
}

/** @param {{ rest: string[], query: Record<string, string> }} props */
export function DeadLetters({ query }) {
  const filter = Object.fromEntries(FILTER.filter((name) => query[name] || (name === "group" && query.group === "")).map((name) => [name, query[name]]));
  const [changes, setChanges] = useState(0);
  const changed = () => setChanges(changes + 1);
  return html`<h1 tabindex="-1">${t("page.dead-letters")}</h1>
    <${Groups} filter=${filter} changes=${changes} changed=${changed} />
    <h2>${t("dead.letters")}</h2>
    <${Filter} filter=${filter} />
    <${Letters} key=${JSON.stringify(filter)} filter=${filter} changes=${changes} changed=${changed} />`;
}

/** @typedef {{ filter: Record<string, string>, changes: number, changed: () => void }} Part  of the page, which changes what the other shows */

/** @param {Part} props */
function Groups({ filter, changes, changed }) {
  const [every, choose] = useRefresh();
  const { data, problem, at, loading, again } = useAsked("v1/dead-letters:groups", {}, every);
  useEffect(() => {
    if (changes === 0) return undefined;
    const timer = setTimeout(again, COUNTED_EVERY);
    return () => clearTimeout(timer);
  }, [changes]);
  const [doing, setDoing] = useState(/** @type {{ what: string, group: Group } | null} */ (null));
  const shown = (/** @type {Group} */ one) => filter.group === one.reason && (filter.topic ?? null) === one.topic;
  const name = (/** @type {Group} */ one) => `${one.topic ?? t("dead.unreadable")}: ${one.reason}`;
  const button = (/** @type {string} */ what, /** @type {Group} */ group) => html`<button
    type="button"
    class="small"
    onClick=${() => setDoing({ what, group })}
  >
    ${t(`message.${what}`)} …<span class="hidden"> ${name(group)}</span>
  </button>`;
  const columns = [
    { name: "topic", title: t("message.topic"), cell: (/** @type {Group} */ one) => one.topic ?? html`<em>${t("dead.unreadable")}</em>` },
    {
      name: "reason",
      title: t("message.reason"),
      cell: (/** @type {Group} */ one) =>
        html`<a href=${href(["dead-letters"], { topic: one.topic, group: one.reason })} aria-current=${shown(one) ? "true" : undefined}
          >${one.reason || UNKNOWN}</a
        >`,
    },
    { name: "count", title: t("dead.count"), number: true, cell: (/** @type {Group} */ one) => count(one.count) },
    { name: "first", title: t("dead.first"), cell: (/** @type {Group} */ one) => html`<${Time} at=${one.firstTime} />` },
    { name: "last", title: t("dead.last"), cell: (/** @type {Group} */ one) => html`<${Age} at=${one.lastTime} />` },
    {
      name: "examples",
      title: t("dead.examples"),
      cell: (/** @type {Group} */ one) => one.examples.map((id) => html`<a key=${id} class="id" href=${href(["messages", id])}>${id}</a> `),
    },
    {
      name: "actions",
      title: t("dead.actions"),
      cell: (/** @type {Group} */ one) =>
        mayAdmin(one.topic) && html`<span class="row-actions">${button("redrive", one)} ${button("discard", one)}</span>`,
    },
  ];
  return html`<div class="heading">
      <p>
        <${Freshness} at=${at} problem=${problem} />
        ${data && data.looked > 0 && html` · ${t(data.complete ? "dead.complete" : "dead.newest", { count: count(data.looked) })}`}
      </p>
      <${Refresh} every=${every} choose=${choose} again=${again} loading=${loading} />
    </div>
    ${
      data !== null &&
      html`<${Table}
        caption=${t("dead.groups")}
        columns=${columns}
        rows=${data.groups}
        id=${(/** @type {Group} */ one) => JSON.stringify([one.topic, one.reason])}
        open=${(/** @type {Group} */ one) => href(["dead-letters"], { topic: one.topic, group: one.reason })}
        tone=${(/** @type {Group} */ one) => (shown(one) ? "shown" : "")}
        empty=${t(data.complete ? "dead.none" : "dead.no_groups")}
        then=${data.complete && t("dead.none_then")}
      />`
    }
    ${
      doing !== null &&
      html`<${Bulk}
        title=${t(`dead.${doing.what}_group`, { count: count(doing.group.count) })}
        verb=${t(`message.${doing.what}`)}
        action=${doing.what}
        total=${doing.group.count}
        path=${PATHS[/** @type {keyof typeof PATHS} */ (doing.what)]}
        danger=${doing.what === "discard"}
        rate=${RATE}
        text=${html`<strong>${name(doing.group)}</strong><br />${t(`message.${doing.what}_text`)} ${t("dead.group_text")}`}
        pages=${() => idsOf(doing.group)}
        close=${() => {
          setDoing(null);
          changed();
        }}
      />`
    }`;
}

/**
 * The ids of a group's counted letters; later deaths are excluded. The request always names the group, even one without a
 * reason: otherwise it would get all letters of the topic.
 * @param {Group} group
 */
async function* idsOf({ topic, reason, firstTime, lastTime }) {
  const query = { topic, group: reason, from: firstTime, to: Number(ms(lastTime)) + 1, limit: PAGE };
  for (let pageToken = null; ; ) {
    const { deadLetters, nextPageToken } = await ask("GET", "v1/dead-letters", { query: { ...query, pageToken } });
    yield deadLetters
      .filter((/** @type {any} */ one) => (one.message?.topic ?? null) === topic)
      .map((/** @type {any} */ one) => one.id);
    if (nextPageToken === null) return;
    pageToken = nextPageToken;
  }
}

/** @param {{ filter: Record<string, string> }} props */
function Filter({ filter }) {
  const [draft, setDraft] = useState(filter);
  const applied = JSON.stringify(filter);
  useEffect(() => setDraft(filter), [applied]);
  const set = (/** @type {string} */ name, /** @type {string} */ value) => setDraft((before) => ({ ...before, [name]: value }));
  const field = (/** @type {string} */ name, hint = "") =>
    html`<${TextField} label=${t(`dead.${name}`)} text=${draft[name] ?? ""} hint=${hint} set=${(/** @type {string} */ one) => set(name, one)} />`;
  const submit = (/** @type {Event} */ event) => {
    event.preventDefault();
    const wanted = filled({ ...draft, topic: draft.topic?.trim(), order: draft.order === "newest" ? "" : draft.order });
    // A group may have no reason; but clearing the field of another group means no group.
    go(["dead-letters"], draft.group === "" && filter.group === "" ? { ...wanted, group: "" } : wanted);
  };
  return html`<${Narrow} set=${Object.keys(filter).length}><form class="card" onSubmit=${submit}>
    <div class="filters">
      ${field("topic", "orders.*")} ${field("reason")} ${draft.group !== undefined && field("group", UNKNOWN)}
      <${TimeField} label=${t("dead.from")} at=${draft.from} set=${(/** @type {string} */ one) => set("from", one)} />
      <${TimeField} label=${t("dead.to")} at=${draft.to} set=${(/** @type {string} */ one) => set("to", one)} />
      <label
        >${t("dead.order")}
        <select value=${draft.order ?? "newest"} onChange=${(/** @type {any} */ e) => set("order", e.target.value)}>
          ${["newest", "oldest"].map(
            (one) => html`<option value=${one} selected=${one === (draft.order ?? "newest")}>${t(`dead.${one}_first`)}</option>`,
          )}
        </select></label
      >
    </div>
    <div class="actions">
      <button type="submit" class="primary">${t("messages.search")}</button>
      <a href=${href(["dead-letters"])}>${t("messages.clear")}</a>
    </div>
  </form><//>`;
}

/** @param {Part} props */
function Letters({ filter, changes, changed }) {
  const [chosen, setChosen] = useState(/** @type {Set<string>} */ (new Set()));
  const [doing, setDoing] = useState("");
  useHold(chosen.size > 0);
  const { rows, next, loading, data, problem, at, again } = usePages("v1/dead-letters", { order: "newest", ...filter }, (answer) => answer.deadLetters);
  const first = useRef(changes);
  useEffect(() => {
    if (changes !== first.current) again();
  }, [changes]);
  const selected = rows.filter((one) => chosen.has(one.id));
  const acts = may("admin");
  const allowed = selected.filter((one) => mayAdmin(one.message?.topic));
  const columns = [
    { name: "id", title: t("messages.id"), cell: (/** @type {any} */ one) => html`<a class="id" href=${href(["messages", one.id])}>${one.id}</a>` },
    { name: "topic", title: t("message.topic"), cell: (/** @type {any} */ one) => one.message?.topic ?? html`<em>${t("dead.unreadable")}</em>` },
    { name: "died", title: t("dead.died"), cell: (/** @type {any} */ one) => html`<${Time} at=${one.deadTime} exact />` },
    { name: "attempts", title: t("messages.attempts"), number: true, cell: (/** @type {any} */ one) => count(one.attempts) },
    { name: "reason", title: t("message.reason"), cell: (/** @type {any} */ one) => one.reason },
  ];
  return html`<div class="heading">
      <p><${Freshness} at=${at} problem=${problem} /></p>
      <button type="button" onClick=${again} aria-busy=${loading ? "true" : "false"}>${t("refresh.now")}</button>
    </div>
    ${
      acts &&
      html`<div class="actions">
        ${["redrive", "discard"].map(
          (what) => html`<button type="button" key=${what} disabled=${allowed.length === 0} onClick=${() => setDoing(what)}>
            ${t(`dead.${what}_selected`, { count: count(allowed.length) })}
          </button>`,
        )}
      </div>`
    }
    ${
      data !== null &&
      html`<${Table}
        caption=${t("dead.letters")}
        hideCaption
        columns=${columns}
        rows=${rows}
        id=${(/** @type {any} */ one) => one.id}
        open=${(/** @type {any} */ one) => href(["messages", one.id])}
        chosen=${acts ? chosen : undefined}
        choose=${setChosen}
        empty=${t(next === null ? "dead.none_such" : "messages.none_yet")}
      />`
    }
    <${More} next=${next} loading=${loading} />
    ${
      doing !== "" &&
      html`<${Bulk}
        title=${t(`dead.${doing}_selected`, { count: count(allowed.length) })}
        verb=${t(`message.${doing}`)}
        action=${doing}
        total=${allowed.length}
        path=${PATHS[/** @type {keyof typeof PATHS} */ (doing)]}
        danger=${doing === "discard"}
        rate=${RATE}
        text=${t(`message.${doing}_text`)}
        pages=${() => [allowed.map((one) => one.id)]}
        close=${() => {
          setDoing("");
          setChosen(new Set());
          changed();
        }}
      />`
    }`;
}
