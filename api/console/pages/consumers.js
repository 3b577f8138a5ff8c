// The consumer groups: how far each is, its oldest message, and what its consumers hold.

import { html, useState } from "../vendor/standalone.module.js";
import { Narrow, TextField } from "../parts/fields.js";
import { Refresh, useAsked, useRefresh } from "../parts/lists.js";
import { count, UNKNOWN } from "../parts/numbers.js";
import { filled, href, replace } from "../parts/router.js";
import { SameCall } from "../parts/same_call.js";
import { Table } from "../parts/table.js";
import { t } from "../parts/texts.js";
import { Age } from "../parts/times.js";

const LIMIT = 100;

/** @typedef {{ topic: string, group: string, since: string, filter: string[], lag: number | null, waiting: number | null, leased: number, handedBack: number, oldest: { id: string, dueTime: string, deliveredTime: string, state: string } | null, readyTime: string | null, lastReceiveTime: string | null }} Group */

/** @param {{ query: Record<string, string> }} props */
export function Consumers({ query }) {
  const [every, choose] = useRefresh();
  const { match, after } = filled(query);
  const asked = useAsked("v1/consumers", { match, limit: LIMIT, pageToken: after }, every);
  const [draft, setDraft] = useState(match ?? "");
  const submit = (/** @type {Event} */ event) => {
    event.preventDefault();
    replace(["consumers"], filled({ match: draft.trim() }));
  };
  /** @type {Group[]} */
  const groups = asked.data?.groups ?? [];
  const next = asked.data?.nextPageToken;
  return html`<div class="heading">
      <h1 tabindex="-1">${t("page.consumers")}</h1>
      <${Refresh} every=${every} choose=${choose} again=${asked.again} loading=${asked.loading} at=${asked.at} problem=${asked.problem} />
    </div>
    <${Narrow} set=${Number(Boolean(match))}><form class="filters" onSubmit=${submit}>
      <${TextField} label=${t("topics.match")} text=${draft} hint="orders.*" set=${setDraft} />
      <button type="submit">${t("topics.filter")}</button>
    </form><//>
    ${asked.data && groups.length === 0 && html`<${None} match=${match} />`}
    ${groups.length > 0 && html`<${Table} caption=${t("page.consumers")} hideCaption=${true} columns=${columns()} rows=${groups} id=${(/** @type {Group} */ one) => `${one.topic}/${one.group}`} />`}
    <p class="actions">
      ${after && html`<a href=${href(["consumers"], filled({ match }))}>${t("topics.first")}</a>`}
      ${next && html`<a href=${href(["consumers"], filled({ match, after: next }))}>${t("topics.next")}</a>`}
    </p>`;
}

function columns() {
  return [
    { name: "group", title: t("consumers.group"), cell: (/** @type {Group} */ one) => html`<strong>${one.group}</strong>` },
    { name: "topic", title: t("topics.topic"), cell: (/** @type {Group} */ one) => html`<a href=${href(["topics", one.topic])}>${one.topic}</a>` },
    { name: "lag", title: t("consumers.lag"), number: true, cell: (/** @type {Group} */ one) => count(one.lag) },
    { name: "oldest", title: t("consumers.oldest"), cell: (/** @type {Group} */ one) => html`<${Oldest} oldest=${one.oldest} />` },
    { name: "waiting", title: t("consumers.waiting"), number: true, cell: (/** @type {Group} */ one) => count(one.waiting) },
    { name: "leased", title: t("consumers.leased"), number: true, cell: (/** @type {Group} */ one) => count(one.leased) },
    { name: "handed", title: t("consumers.handedBack"), number: true, cell: (/** @type {Group} */ one) => count(one.handedBack) },
    { name: "last", title: t("consumers.last"), cell: (/** @type {Group} */ one) => html`<${Age} at=${one.lastReceiveTime} />` },
    { name: "filter", title: t("messages.tags"), cell: (/** @type {Group} */ one) => one.filter.join(", ") },
  ];
}

/** @param {{ oldest: Group["oldest"] }} props */
function Oldest({ oldest }) {
  if (oldest === null) return UNKNOWN;
  return html`<a class="id" href=${href(["messages", oldest.id])}>${oldest.id}</a> <span class="age">${t(`consumers.${oldest.state}`)}, <${Age} at=${oldest.dueTime} /></span>`;
}

/** There is no group yet: how to become one. @param {{ match: string | undefined }} props */
function None({ match }) {
  if (match) return html`<p class="empty">${t("topics.none_fit")}</p>`;
  return html`<section class="card">
    <h2>${t("consumers.none")}</h2>
    <p>${t("consumers.how")}</p>
    <p>${t("consumers.external")}</p>
    <${SameCall} call=${{ does: "receive", topic: "orders.unpaid", group: "mail" }} title=${t("consumers.program")} />
  </section>`;
}
