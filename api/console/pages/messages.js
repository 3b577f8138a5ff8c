// Messages by filters, by an id or a business key; and actions on selected ones.

import { html, useEffect, useMemo, useRef, useState } from "../vendor/standalone.module.js";
import { Bulk } from "../parts/bulk.js";
import { Narrow, TextField } from "../parts/fields.js";
import { Refresh, useAsked, useHold, usePages, useRefresh } from "../parts/lists.js";
import { may } from "../parts/live.js";
import { State, Trouble } from "../parts/notices.js";
import { count, UNKNOWN } from "../parts/numbers.js";
import { filled, go, href, replace } from "../parts/router.js";
import { ask, at, Problem } from "../parts/server.js";
import { useStore } from "../parts/store.js";
import { Table } from "../parts/table.js";
import { language, t } from "../parts/texts.js";
import { Age, TimeField, timeTag, today, zone } from "../parts/times.js";

const STATES = ["scheduled", "due", "inFlight", "retrying", "parked", "held", "dead"];
const FILTER = ["topic", "state", "dueFrom", "dueTo", "tags", "property", "idPrefix", "key"];

/** Filters that the API can count by; tags only if a policy indexes them. */
const COUNTED = ["topic", "state", "dueFrom", "dueTo"];
const LIMITS = ["50", "100", "500", "1000"];

/** The time in ms that a search continues by itself, page by page: each answers with its matches after 200 ms. */
const ONWARD = 5_000;

/** The patterns of an id and of a business key. */
const ID = /^(?!\.{1,2}$)[A-Za-z0-9._:-]{1,128}$/;
const KEY = /^[^\s\p{Cc}]{1,255}$/u;

/** @param {{ rest: string[], query: Record<string, string> }} props */
export function Messages({ query }) {
  if (query.find !== undefined) return html`<${Find} key=${query.find} text=${query.find} />`;
  const filter = Object.fromEntries(FILTER.filter((name) => query[name]).map((name) => [name, query[name]]));
  const limit = LIMITS.includes(query.limit) ? query.limit : "100";
  return html`<h1 tabindex="-1">${t("page.messages")}</h1>
    <${Filter} filter=${filter} limit=${limit} />
    <${Found} key=${JSON.stringify([filter, limit])} filter=${filter} limit=${limit} />`;
}

/**
 * An id, otherwise a business key; a single match is shown at once.
 * @param {{ text: string }} props
 */
function Find({ text }) {
  const [problem, setProblem] = useState(/** @type {Problem | null} */ (null));
  const [nothing, setNothing] = useState(false);
  useEffect(() => {
    const leaving = new AbortController();
    find(text, leaving.signal).then(
      (ids) => {
        if (ids.length === 1) replace(["messages", ids[0]]);
        else if (ids.length) replace(["messages"], { key: text });
        else setNothing(true);
      },
      (error) => {
        if (leaving.signal.aborted) return;
        if (!(error instanceof Problem)) throw error;
        setProblem(error);
      },
    );
    return () => leaving.abort();
  }, []);
  return html`<h1 tabindex="-1">${t("page.messages")}</h1>
    <div role="status">
      ${
        nothing
          ? html`<p>${t("messages.unknown", { text })}</p>
              ${ID.test(text) && html`<p><a href=${href(["messages"], { idPrefix: text })}>${t("messages.begins", { text })}</a></p>`}
              <p><a href=${href(["messages"])}>${t("messages.all")}</a></p>`
          : problem === null && html`<p>${t("messages.finding", { text })}</p>`
      }
    </div>
    <${Trouble} problem=${problem} />`;
}

/**
 * The ids of the messages with this id, otherwise with this business key.
 * @param {string} text
 * @param {AbortSignal} signal
 * @returns {Promise<string[]>}
 */
async function find(text, signal) {
  if (ID.test(text)) {
    try {
      return [(await ask("GET", at`v1/messages/${text}`, { signal })).id];
    } catch (error) {
      // The caller may not read its topic, but may still find the key of other messages.
      if (!(error instanceof Problem && [403, 404].includes(error.status))) throw error;
    }
  }
  if (!KEY.test(text)) return [];
  const { messages } = await ask("GET", "v1/messages", { query: { key: text }, signal });
  return messages.map((/** @type {any} */ one) => one.id);
}

/**
 * The filter. It is in the address once it is requested.
 * @param {{ filter: Record<string, string>, limit: string }} props
 */
function Filter({ filter, limit }) {
  const [draft, setDraft] = useState(filter);
  const [rows, setRows] = useState(limit);
  const figures = JSON.stringify([filter, limit]);
  useEffect(() => {
    setDraft(filter);
    setRows(limit);
  }, [figures]);
  const set = (/** @type {string} */ name, /** @type {string} */ value) => setDraft((before) => ({ ...before, [name]: value }));
  const states = (draft.state ?? "").split(",").filter(Boolean);
  const flip = (/** @type {string} */ one) =>
    set("state", (states.includes(one) ? states.filter((other) => other !== one) : [...states, one]).join(","));
  const field = (/** @type {string} */ name, hint = "") =>
    html`<${TextField} label=${t(`messages.${name}`)} text=${draft[name] ?? ""} hint=${hint} set=${(/** @type {string} */ one) => set(name, one)} />`;
  const submit = (/** @type {Event} */ event) => {
    event.preventDefault();
    const trimmed = Object.fromEntries(Object.entries(draft).map(([name, value]) => [name, value.trim()]));
    go(["messages"], filled({ ...trimmed, limit: rows === "100" ? "" : rows }));
  };
  return html`<${Narrow} set=${Object.keys(filter).length}><form class="card" onSubmit=${submit}>
    <div class="filters">
      ${field("topic", "orders.*")}
      <${TimeField} label=${t("messages.dueFrom")} at=${draft.dueFrom} set=${(/** @type {string} */ one) => set("dueFrom", one)} />
      <${TimeField} label=${t("messages.dueTo")} at=${draft.dueTo} set=${(/** @type {string} */ one) => set("dueTo", one)} />
    </div>
    <fieldset class="filters">
      <legend>${t("messages.state")}</legend>
      ${STATES.map(
        (one) => html`<label class="check" key=${one}
          ><input type="checkbox" checked=${states.includes(one)} onChange=${() => flip(one)} /><${State} state=${one}
        /></label>`,
      )}
    </fieldset>
    <details open=${["tags", "property", "idPrefix", "key"].some((name) => filter[name])}>
      <summary>${t("messages.more")}</summary>
      <div class="filters">
        ${field("key")} ${field("idPrefix")} ${field("tags")} ${field("property", t("messages.property_hint"))}
        <label
          >${t("messages.limit")}
          <select value=${rows} onChange=${(/** @type {any} */ e) => setRows(e.target.value)}>
            ${LIMITS.map((one) => html`<option value=${one} selected=${one === rows}>${count(Number(one))}</option>`)}
          </select></label
        >
      </div>
    </details>
    <div class="actions">
      <button type="submit" class="primary">${t("messages.search")}</button>
      <a href=${href(["messages"])}>${t("messages.clear")}</a>
    </div>
  </form><//>`;
}

/** @param {{ filter: Record<string, string>, limit: string }} props */
function Found({ filter, limit }) {
  const clock = useStore(zone);
  const day = useStore(today);
  const tongue = useStore(language);
  const [every, choose] = useRefresh();
  const [chosen, setChosen] = useState(/** @type {Set<string>} */ (new Set()));
  const [doing, setDoing] = useState("");
  const most = Number(limit);
  const [wanted, setWanted] = useState(() => ({ rows: most, until: performance.now() + ONWARD }));
  useHold(chosen.size > 0);
  // Messages with a key are requested in larger pages.
  const query = filter.key ? filter : { ...filter, limit };
  const found = usePages("v1/messages", query, (answer) => answer.messages, every);
  const { rows, answers, next, loading, problem } = found;
  const onward = next !== null && problem === null && rows.length < wanted.rows && performance.now() < wanted.until;
  useEffect(() => {
    if (onward && !loading) void next();
  });
  const further = () => {
    setWanted({ rows: rows.length + most, until: performance.now() + ONWARD });
    if (problem !== null && next !== null) void next();
  };
  const again = () => {
    setChosen(new Set());
    setWanted({ rows: most, until: performance.now() + ONWARD });
    found.again();
  };
  const looked = answers.reduce((sum, one) => sum + one.looked, 0);
  const shown = useMemo(() => columns(rows), [rows, clock, tongue, day]);
  const selected = rows.filter((one) => chosen.has(one.id));
  const done = () => {
    setDoing("");
    again();
  };
  const figures = { shown: count(rows.length), looked: count(looked) };
  return html`<div class="heading">
      <p role="status">
        ${found.data !== null && (rows.length > 0 || next !== null) && t(next === null ? "messages.found" : onward ? "messages.looking" : "messages.looked", figures)}${" "}
        <${Total} filter=${filter} answer=${found.data} />
      </p>
      <${Refresh} every=${every} choose=${choose} again=${again} loading=${loading} at=${found.at} problem=${problem} />
    </div>
    ${
      may("cancel") &&
      html`<div class="actions">
        <button type="button" disabled=${selected.length === 0} onClick=${() => setDoing("cancel")}>
          ${t("messages.cancel", { count: count(selected.length) })}
        </button>
        <button type="button" disabled=${selected.length === 0} onClick=${() => setDoing("deliver")}>
          ${t("messages.deliver", { count: count(selected.length) })}
        </button>
      </div>`
    }
    ${
      found.data !== null &&
      html`<${Table}
        caption=${t("page.messages")}
        hideCaption
        columns=${shown}
        rows=${rows}
        id=${(/** @type {any} */ one) => one.id}
        open=${(/** @type {any} */ one) => href(["messages", one.id])}
        chosen=${may("cancel") ? chosen : undefined}
        choose=${setChosen}
        empty=${next === null ? t("messages.none") : t("messages.none_yet")}
        then=${next === null && t("messages.none_then")}
      />`
    }
    ${
      next !== null &&
      html`<p>
        <button type="button" onClick=${further} disabled=${onward} aria-busy=${onward ? "true" : "false"}>
          ${rows.length >= wanted.rows ? t("table.more") : t("messages.look_on")}
        </button>
      </p>`
    }
    ${
      doing !== "" &&
      html`<${Bulk}
        title=${t(`messages.${doing}`, { count: count(selected.length) })}
        verb=${t(`message.${doing}`)}
        action=${doing}
        total=${selected.length}
        path=${doing === "cancel" ? "v1/messages:cancel" : "v1/messages:deliverNow"}
        danger=${doing === "cancel"}
        text=${t(`messages.${doing}_text`)}
        pages=${() => [selected.map((one) => one.id)]}
        close=${done}
      />`
    }`;
}

/**
 * The number of all matches, if the API can count by the filter; counted again with each answer of the list.
 * @param {{ filter: Record<string, string>, answer: any }} props
 */
function Total({ filter, answer }) {
  const counts = Object.keys(filter).every((name) => COUNTED.includes(name));
  const { data, problem, loading, again } = useAsked(counts ? "v1/messages:count" : null, filter);
  const counted = useRef(answer); // the answer of the list beside which it was requested
  useEffect(() => {
    // A running count ends even if the list changes: a slow API would otherwise never show one.
    if (answer === null || loading || counted.current === answer) return;
    const first = counted.current === null;
    counted.current = answer;
    if (!first) again();
  }, [answer, loading]);
  if (!counts) return null;
  const n = data === null || problem !== null ? UNKNOWN : count(data.count);
  return html`<span
    >${t("messages.total", { count: n })}${data?.asOf && html` (${t("messages.census")} <${Age} at=${data.asOf} />)`}</span
  >`;
}

/**
 * The columns of messages; a column that none of them has is omitted. A thousand rows are drawn at once, so nothing in them
 * is a component of its own.
 * @param {any[]} rows
 */
function columns(rows) {
  /** @type {(import("../parts/table.js").Column<any> & { has?: (row: any) => unknown })[]} */
  const all = [
    { name: "id", title: t("messages.id"), cell: (one) => html`<a class="id" href=${href(["messages", one.id])}>${one.id}</a>` },
    { name: "topic", title: t("messages.topic"), cell: (one) => one.message?.topic ?? UNKNOWN },
    { name: "state", title: t("messages.state"), cell: State },
    { name: "due", title: t("messages.due"), cell: (one) => timeTag(one.dueTime ?? one.endedTime ?? one.message?.expectDate, true) },
    { name: "attempts", title: t("messages.attempts"), number: true, cell: (one) => count(one.attempts), has: (one) => one.attempts },
    {
      name: "keys",
      title: t("messages.keys"),
      cell: (one) => one.message?.keys?.map((/** @type {string} */ key) => html`<a key=${key} href=${href(["messages"], { key })}>${key}</a> `),
      has: (one) => one.message?.keys,
    },
    { name: "tags", title: t("messages.tags"), cell: (one) => one.message?.tags, has: (one) => one.message?.tags },
    { name: "reason", title: t("messages.reason"), cell: (one) => one.reason, has: (one) => one.reason },
  ];
  return all.filter(({ has }) => has === undefined || rows.some(has));
}
