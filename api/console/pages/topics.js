// The topics, their settings and waiting messages; their pauses and policies.

import { html, useEffect, useState } from "../vendor/standalone.module.js";
import { Narrow } from "../parts/fields.js";
import { Refresh, together, useAsked, useRefresh } from "../parts/lists.js";
import { may } from "../parts/live.js";
import { count, duration, rate, UNKNOWN } from "../parts/numbers.js";
import { Pause, Resume } from "../parts/pausing.js";
import { DeletePolicy, PutPolicy, Said } from "../parts/policies.js";
import { filled, href, replace, useSeen } from "../parts/router.js";
import { Table } from "../parts/table.js";
import { TestMessage } from "../parts/test_message.js";
import { t } from "../parts/texts.js";
import { Age, Time } from "../parts/times.js";

/** Rows of a page. A page of the list replaces the previous one, so that ten thousand topics are as light as a hundred. */
const LIMIT = 100;

/** Pauses that are listed above the topics. */
const MOST_PAUSES = 20;

/** The states with a column of counts; `held` is counted now, the others by the last count. */
const STATES = ["scheduled", "due", "retrying", "parked", "dead"];

/** @param {{ rest: string[], query: Record<string, string> }} props */
export function Topics({ query }) {
  const [every, choose] = useRefresh();
  const { match, paused, after } = filled(query);
  const listed = useAsked("v1/topics", { match, paused, limit: LIMIT, pageToken: after }, every);
  const held = useAsked("v1/policies", {}, every);
  const { at, problem, loading } = together([listed, held]);
  const [dialog, setDialog] = useState(/** @type {any} */ (null));
  const again = () => {
    listed.again();
    held.again();
  };
  const close = () => {
    setDialog(null);
    again();
  };
  const pause = (/** @type {string} */ one, /** @type {boolean} */ open) => setDialog(html`<${Pause} match=${one} open=${open} close=${close} />`);
  const resume = (/** @type {string} */ one) => setDialog(html`<${Resume} match=${one} close=${close} />`);
  const put = (/** @type {any} */ policy) => setDialog(html`<${PutPolicy} policy=${policy} version=${held.data.version} names=${held.data.policies.map((/** @type {any} */ one) => one.name)} close=${close} />`);
  const remove = (/** @type {any} */ policy) => setDialog(html`<${DeletePolicy} policy=${policy} version=${held.data.version} close=${close} />`);
  useSeen(query.see, JSON.stringify(query), listed.data !== null && held.data !== null);
  return html`<div class="heading">
      <h1 tabindex="-1">${t("page.topics")}</h1>
      <${Refresh} every=${every} choose=${choose} again=${again} loading=${loading} at=${at} problem=${problem} />
    </div>
    <p class="actions">
      ${held.data && html`<a href=${href(["topics"], { ...query, see: "policies" })}>${t("topics.policies")} (${count(held.data.policies.length)})</a>`}
      ${may("schedule") && html`<button type="button" onClick=${() => setDialog(html`<${TestMessage} close=${() => setDialog(null)} />`)}>${t("test.title")}…</button>`}
      ${may("admin") && html`<button type="button" onClick=${() => pause(match ?? "", true)}>${t("topics.pause_some")}</button>`}
    </p>
    ${held.data?.pauses.length > 0 && html`<${Pauses} pauses=${held.data.pauses} resume=${resume} /><h2>${t("page.topics")}</h2>`}
    <${Filter} query=${query} />
    ${listed.data && html`<${Found} data=${listed.data} query=${query} pause=${pause} resume=${resume} />`}
    ${held.data && html`<${Policies} policies=${held.data.policies} put=${put} remove=${remove} />`}
    ${dialog}`;
}

/** @param {{ query: Record<string, string> }} props */
function Filter({ query }) {
  const [match, setMatch] = useState(query.match ?? "");
  useEffect(() => setMatch(query.match ?? ""), [query.match]);
  const choose = (/** @type {Record<string, string>} */ given) => replace(["topics"], filled({ ...query, after: "", see: "", ...given }));
  const submit = (/** @type {Event} */ event) => {
    event.preventDefault();
    if (match.trim() !== (query.match ?? "")) choose({ match: match.trim() });
  };
  return html`<${Narrow} set=${Number(Boolean(query.match)) + Number(Boolean(query.paused))}><form class="filters" onSubmit=${submit}>
    <label
      >${t("topics.match")}
      <input value=${match} maxlength="255" placeholder="orders.*" autocapitalize="off" spellcheck="false" onInput=${(/** @type {any} */ e) => setMatch(e.target.value)} onBlur=${submit} />
    </label>
    <label
      >${t("topics.paused")}
      <select value=${query.paused ?? ""} onChange=${(/** @type {any} */ e) => choose({ paused: e.target.value })}>
        ${["", "yes", "no"].map((one) => html`<option key=${one} value=${one} selected=${one === (query.paused ?? "")}>${t(`paused.${one || "any"}`)}</option>`)}
      </select>
    </label>
    <button type="submit">${t("topics.filter")}</button>
  </form><//>`;
}

/**
 * @param {{ data: any, query: Record<string, string>, pause: (match: string, open: boolean) => void, resume: (match: string) => void }} props
 */
function Found({ data, query, pause, resume }) {
  const { topics, total, nextPageToken: next } = data;
  const counted = topics.find((/** @type {any} */ one) => one.asOf)?.asOf;
  const columns = [
    { name: "topic", title: t("topics.topic"), cell: (/** @type {any} */ one) => html`<a href=${href(["topics", one.topic])}>${one.topic}</a>` },
    { name: "route", title: t("topics.route"), cell: (/** @type {any} */ one) => one.route ?? html`<span class="caution">${t("topics.no_route")}</span>` },
    ...STATES.map((state) => ({
      name: state,
      title: t(`state.${state}`),
      number: true,
      cell: (/** @type {any} */ one) => (one.counts ? count(one.counts[state] ?? 0) : UNKNOWN),
    })),
    { name: "held", title: t("state.held"), number: true, cell: (/** @type {any} */ one) => count(one.held) },
    { name: "pause", title: t("topics.pause"), cell: (/** @type {any} */ one) => html`<${PauseOf} pause=${one.pause} />` },
    {
      name: "limit",
      title: t("topics.limit"),
      cell: (/** @type {any} */ one) => one.limit && t(one.limit.held ? "topics.limit_waits" : "topics.limit_rate", { rate: rate(one.limit.rate), wait: duration(one.limit.waitMs) }),
    },
    { name: "policy", title: t("topics.policy"), cell: (/** @type {any} */ one) => one.policy?.name },
    {
      name: "acts",
      title: html`<span class="hidden">${t("topics.acts")}</span>`,
      cell: (/** @type {any} */ one) =>
        one.pause
          ? may("admin", one.pause.match) && html`<${Button} text=${t("pausing.resume")} of=${one.pause.match} act=${() => resume(one.pause.match)} />`
          : may("admin", one.topic) && html`<${Button} text=${t("pausing.pause")} of=${one.topic} act=${() => pause(one.topic, false)} />`,
    },
  ];
  return html`<p class="age">
      ${t("topics.shown", { shown: count(topics.length), count: total, all: count(total) })}
      ${" "}${counted ? html`${t("topics.counted")} <${Age} at=${counted} />.` : total > 0 && t("topics.not_counted")}
    </p>
    <${Table}
      caption=${t("page.topics")}
      hideCaption=${true}
      columns=${columns}
      rows=${topics}
      id=${(/** @type {any} */ one) => one.topic}
      open=${(/** @type {any} */ one) => href(["topics", one.topic])}
      empty=${t(query.match || query.paused ? "topics.none_fit" : "topics.none")}
      then=${t(query.match || query.paused ? "topics.none_fit_then" : "topics.none_then")}
    />
    <p class="actions">
      ${query.after && html`<a href=${href(["topics"], filled({ ...query, see: "", after: "" }))}>${t("topics.first")}</a>`}
      ${next && html`<a href=${href(["topics"], filled({ ...query, see: "", after: next }))}>${t("topics.next")}</a>`}
    </p>`;
}

/** @param {{ text: string, of: string, act: () => void }} props */
function Button({ text, of, act }) {
  return html`<button type="button" class="small" onClick=${act}>${text}<span class="hidden"> ${of}</span></button>`;
}

/** @param {{ pause: any }} props */
function PauseOf({ pause }) {
  if (!pause) return null;
  return html`<span class="state held">${pause.match}</span> <${Age} at=${pause.since} />${pause.until && html`, ${t("pauses.until")} <${Time} at=${pause.until} />`}${pause.reason && html`: <bdi>${pause.reason}</bdi>`}`;
}

/** @param {{ pauses: any[], resume: (match: string) => void }} props */
function Pauses({ pauses, resume }) {
  return html`<h2>${t("topics.pauses")}</h2>
    <ul class="plain">
      ${pauses.slice(0, MOST_PAUSES).map(
        (one) => html`<li key=${one.match} class="actions">
          <a class="state held" href=${href(["topics"], { match: one.match })}><code>${one.match}</code></a>
          <span>
            ${t("pauses.since")} <${Time} at=${one.since} />, ${t("pauses.until")} ${one.until ? html`<${Time} at=${one.until} />` : t("pausing.until_resumed")}${one.reason && html`: <bdi>${one.reason}</bdi>`}
          </span>
          ${may("admin", one.match) && html`<${Button} text=${t("pausing.resume")} of=${one.match} act=${() => resume(one.match)} />`}
        </li>`,
      )}
    </ul>
    ${pauses.length > MOST_PAUSES && html`<p><a href=${href(["topics"], { paused: "yes" })}>${t("pauses.more", { count: pauses.length - MOST_PAUSES })}</a></p>`}`;
}

/** @param {{ policies: any[], put: (policy: any) => void, remove: (policy: any) => void }} props */
function Policies({ policies, put, remove }) {
  const columns = [
    { name: "name", title: t("policy.name"), cell: (/** @type {any} */ one) => one.name },
    { name: "match", title: t("policy.match"), cell: (/** @type {any} */ one) => html`<a href=${href(["topics"], { match: one.match })}><code>${one.match}</code></a>` },
    { name: "order", title: t("policy.order"), number: true, cell: (/** @type {any} */ one) => count(one.order) },
    { name: "said", title: t("policies.said"), cell: (/** @type {any} */ one) => html`<${Said} policy=${one} />` },
    { name: "since", title: t("topics.since"), cell: (/** @type {any} */ one) => html`<${Time} at=${one.since} />` },
    {
      name: "acts",
      title: html`<span class="hidden">${t("topics.acts")}</span>`,
      cell: (/** @type {any} */ one) =>
        may("admin", one.match) &&
        html`<${Button} text=${t("policies.change")} of=${one.name} act=${() => put(one)} />${" "}<${Button} text=${t("policies.delete")} of=${one.name} act=${() => remove(one)} />`,
    },
  ];
  return html`<h2 id="policies" tabindex="-1">${t("topics.policies")}</h2>
    <p class="age">${t("policies.order_means")}</p>
    ${may("admin") && html`<p class="actions"><button type="button" onClick=${() => put(null)}>${t("policies.make")}…</button></p>`}
    <${Table} caption=${t("topics.policies")} hideCaption=${true} columns=${columns} rows=${policies} id=${(/** @type {any} */ one) => one.name} empty=${t("policies.none")} then=${t("policies.none_then")} />`;
}
