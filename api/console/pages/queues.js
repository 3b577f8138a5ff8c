// The owners of queues, their lateness, the reports of nodes and routes, and the progress of resharding.

import { html } from "../vendor/standalone.module.js";
import { Deliveries, lastRate, useDeliveries } from "../parts/deliveries.js";
import { Wrong } from "../parts/findings.js";
import { Refresh, together, useAsked, useRefresh } from "../parts/lists.js";
import { live } from "../parts/live.js";
import { Copy, Loading, Trouble } from "../parts/notices.js";
import { bytes, count, duration, LATE, rate, UNKNOWN, VERY_LATE } from "../parts/numbers.js";
import { filled, href, replace, useSeen } from "../parts/router.js";
import { useStore } from "../parts/store.js";
import { Table } from "../parts/table.js";
import { t } from "../parts/texts.js";
import { Age, Time } from "../parts/times.js";
import { memoryText } from "./overview.js";

/**
 * @typedef {{ queue: number, depth: number, due: number, headDueTime: string | null, headLateness: number, parked: number, dead: number, remembered: number, owner: string | null, epoch: string | null, closed: boolean }} Queue
 * @typedef {{ node: string, address: string | null, version: string | null, since: string | null, seen: string, stale: boolean, coordinator: string | null, handedOver: string | null, queues: { queue: number, epoch: string, since: string | null }[], complaints: string[] }} Node
 * @typedef {{ name: string, target: string | null, circuit: string | null, reason: string | null, since: string | null, nextProbeTime: string | null, openAt: string[], parked: number }} Route
 * @typedef {import("../parts/lists.js").Asked} Asked
 */

/** The checks of each section. */
const OF = {
  queues: ["late", "owners", "accounts", "layout"],
  reshard: ["reshard"],
  nodes: ["worker", "silent", "policies", "clockSkew", "zookeeper", "pullJobs", "ownersChange"],
  routes: ["circuit", "parked", "streams"],
  redis: ["redis", "server", "aof", "eviction", "memory", "durability", "wentBack"],
};

/**
 * The lateness of a queue's head, in a word.
 * @param {Queue} queue
 */
function condition(queue) {
  if (queue.headLateness >= VERY_LATE) return "very_late";
  if (queue.headLateness >= LATE) return "late";
  return queue.depth + queue.parked + queue.dead === 0 ? "empty" : "on_time";
}

/** @param {{ rest: string[], query: Record<string, string> }} props */
export function Queues({ query }) {
  const [every, choose] = useRefresh();
  const queues = useAsked("v1/queues", {}, every);
  const nodes = useAsked("v1/nodes", {}, every);
  const routes = useAsked("v1/routes", {}, every);
  const all = [queues, nodes, routes];
  const again = () => all.forEach((one) => one.again());
  const { at, problem, loading } = together(all);
  useSeen(query.see ?? (query.queue === undefined ? undefined : "queue"), JSON.stringify(query), all.every((one) => one.data !== null));
  return html`<div class="heading">
      <h1 tabindex="-1">${t("page.queues")}</h1>
      <${Refresh} every=${every} choose=${choose} again=${again} loading=${loading} at=${all.every((one) => one.data !== null) ? at : undefined} problem=${problem} />
    </div>
    ${all.some((one) => one.data === null) && html`<${Trouble} problem=${problem} />`}
    <${QueuesPart} asked=${queues} nodes=${nodes.data?.nodes ?? []} query=${query} />
    <${NodesPart} asked=${nodes} node=${query.node} />
    <${RoutesPart} asked=${routes} />
    <${ServersPart} asked=${nodes} />`;
}

/** @param {{ name: string, asked: Asked, children?: any }} props */
function Part({ name, asked, children }) {
  return html`<section>
    <h2 id=${name} tabindex="-1">${t(`queues.${name}`)}</h2>
    ${asked.data === null ? html`${asked.problem ? html`<p class="empty">–</p>` : html`<${Loading} />`}` : children}
  </section>`;
}

/** @param {{ asked: Asked, nodes: Node[], query: Record<string, string> }} props */
function QueuesPart({ asked, nodes, query }) {
  /** @type {Queue[]} */
  const all = asked.data?.queues ?? [];
  const since = new Map(nodes.flatMap((node) => node.queues.map((one) => [`${node.node} ${one.queue}`, one.since])));
  const sinceOf = (/** @type {Queue} */ one) => since.get(`${one.owner} ${one.queue}`) ?? null;
  const chosen = all.filter((one) => wanted(one, query));
  const filtered = chosen.length < all.length || Boolean(query.queue ?? query.node ?? query.only);
  const single = query.queue === undefined ? undefined : all.find((one) => String(one.queue) === query.queue);
  return html`<${Part} name="queues" asked=${asked}>
    <${Wrong} codes=${OF.queues} quiet=${true} />
    <${Filters} query=${query} nodes=${nodes} />
    <${Grid} queues=${all} chosen=${filtered ? chosen : null} />
    <${Reshard} queues=${all} />
    ${single && html`<${QueueCard} queue=${single} since=${sinceOf(single)} />`}
    ${
      query.queue !== undefined && single === undefined
        ? html`<p class="empty">${t("queues.no_such", { queue: query.queue })}</p>`
        : !single && html`<${QueueTable} queues=${chosen} sinceOf=${sinceOf} />`
    }
  <//>`;
}

/**
 * @param {Queue} queue
 * @param {Record<string, string>} query
 */
function wanted(queue, { queue: number, node, only }) {
  if (number !== undefined && String(queue.queue) !== number) return false;
  if (node !== undefined && queue.owner !== node) return false;
  if (only === "late") return queue.headLateness >= LATE;
  if (only === "lacking") return queue.owner === null;
  return only === "closed" ? queue.closed : true;
}

/** @param {{ query: Record<string, string>, nodes: Node[] }} props */
function Filters({ query, nodes }) {
  const set = (/** @type {Record<string, string>} */ change) => replace(["queues"], filled({ ...query, see: "", ...change }));
  const names = nodes.map((one) => one.node);
  if (query.node !== undefined && !names.includes(query.node)) names.push(query.node);
  const choice = (/** @type {string} */ name, /** @type {[string, string][]} */ options) => html`<label
    >${t(`queues.filter_${name}`)}
    <select value=${query[name] ?? ""} onChange=${(/** @type {any} */ e) => set({ queue: "", [name]: e.target.value })}>
      <option value="">${t("queues.all")}</option>
      ${options.map(([value, text]) => html`<option key=${value} value=${value} selected=${value === query[name]}>${text}</option>`)}
    </select></label
  >`;
  return html`<div class="filters">
    ${choice("node", names.map((one) => [one, one]))}
    ${choice("only", ["late", "lacking", "closed"].map((one) => [one, t(`queues.only_${one}`)]))}
    ${(query.queue ?? query.node ?? query.only) !== undefined && html`<a href=${href(["queues"])}>${t("queues.show_all")}</a>`}
  </div>`;
}

/**
 * All queues in one view: a word or a figure, and a color with the same meaning.
 * @param {{ queues: Queue[], chosen: Queue[] | null }} props `chosen`: the queues that match the filter, if there is one
 */
function Grid({ queues, chosen }) {
  return html`<ul class="grid" aria-label=${t("queues.grid")}>
    ${queues.map((one) => {
      const marked = chosen?.includes(one);
      return html`<li key=${one.queue}>
        <a class=${`tile ${one.owner === null ? "lacking" : condition(one)} ${one.closed ? "closed" : ""} ${marked ? "marked" : ""}`} href=${href(["queues"], { queue: one.queue })} aria-current=${marked ? "true" : undefined}>
          <span class="hidden">${t("queues.queue")} </span><b>${one.queue}</b>
          <span class="how">${howText(one)}</span>
          ${one.owner === null && html`<b class="how">${t("queues.how_lacking")}</b>`}
          ${one.closed && html`<small>${t("queues.closed")}</small>`}
        </a>
      </li>`;
    })}
  </ul>`;
}

/** @param {Queue} queue */
function howText(queue) {
  const how = condition(queue);
  return how === "late" || how === "very_late" ? t("queues.how_late", { duration: duration(queue.headLateness) }) : t(`queues.how_${how}`);
}

/** An epoch as its era and number, without the zeros in front. @param {string | null} epoch */
function shortEpoch(epoch) {
  return epoch === null ? null : epoch.split(".").slice(0, 2).map((one) => one.replace(/^0+(?=.)/, "")).join(".");
}

/** @param {{ node: string | null }} props */
function NodeLink({ node }) {
  return node === null ? html`<strong class="lacking">${t("queues.how_lacking")}</strong>` : html`<a href=${href(["queues"], { node, see: "nodes" })}>${node}</a>`;
}

/** @param {{ queue: Queue, since: string | null }} props */
function QueueCard({ queue, since }) {
  return html`<div class="card">
    <h3 id="queue" tabindex="-1">${t("queues.queue")} ${queue.queue}${queue.closed && ` (${t("queues.closed")})`}</h3>
    <dl class="facts">
      <dt>${t("queues.head_lateness")}</dt><dd>${howText(queue)}</dd>
      <dt>${t("queues.head_due")}</dt><dd><${Time} at=${queue.headDueTime} />${queue.headDueTime && html` (<${Age} at=${queue.headDueTime} />)`}</dd>
      <dt>${t("queues.owner")}</dt><dd><${NodeLink} node=${queue.owner} /></dd>
      <dt>${t("queues.since")}</dt><dd><${Time} at=${since} />${since && html` (<${Age} at=${since} />)`}</dd>
      <dt>${t("queues.epoch")}</dt><dd>${queue.epoch === null ? "–" : html`<code>${queue.epoch}</code> <${Copy} text=${queue.epoch} />`}</dd>
      <dt>${t("queues.depth")}</dt><dd>${count(queue.depth)}</dd>
      <dt>${t("queues.due")}</dt><dd>${count(queue.due)}</dd>
      <dt>${t("queues.parked_held")}</dt><dd>${count(queue.parked)}</dd>
      <dt>${t("queues.dead")}</dt><dd>${count(queue.dead)}</dd>
      <dt>${t("queues.remembered")}</dt><dd>${count(queue.remembered)}</dd>
    </dl>
  </div>`;
}

/** @param {{ queues: Queue[], sinceOf: (queue: Queue) => string | null }} props */
function QueueTable({ queues, sinceOf }) {
  const number = (/** @type {"depth" | "due" | "parked" | "dead"} */ name, title = t(`queues.${name}`)) => ({ name, title, number: true, cell: (/** @type {Queue} */ one) => count(one[name]) });
  return html`<${Table}
    caption=${t("queues.table")}
    hideCaption=${true}
    rows=${queues}
    id=${(/** @type {Queue} */ one) => String(one.queue)}
    open=${(/** @type {Queue} */ one) => href(["queues"], { queue: one.queue })}
    empty=${t("queues.none")}
    columns=${[
      { name: "queue", title: t("queues.queue"), cell: (/** @type {Queue} */ one) => html`<a href=${href(["queues"], { queue: one.queue })}>${one.queue}</a>${one.closed && html` <small>${t("queues.closed")}</small>`}` },
      { name: "late", title: t("queues.head_lateness"), number: true, cell: howText },
      { name: "owner", title: t("queues.owner"), cell: (/** @type {Queue} */ one) => html`<${NodeLink} node=${one.owner} />` },
      { name: "since", title: t("queues.since"), cell: (/** @type {Queue} */ one) => html`<${Age} at=${sinceOf(one)} />` },
      { name: "epoch", title: t("queues.epoch"), cell: (/** @type {Queue} */ one) => (one.epoch === null ? "–" : html`<code title=${one.epoch}>${shortEpoch(one.epoch)}</code>`) },
      number("depth"), number("due"), number("parked", t("queues.parked_held")), number("dead"),
    ]}
  />`;
}

/**
 * The progress of resharding: the messages that the closed queues of older layouts still have.
 * @param {{ queues: Queue[] }} props
 */
function Reshard({ queues }) {
  const old = queues.filter((one) => one.closed);
  if (old.length === 0) return html`<${Wrong} codes=${OF.reshard} quiet=${true} />`;
  const left = (/** @type {Queue} */ one) => one.depth + one.parked + one.dead;
  const empty = old.filter((one) => left(one) === 0).length;
  const messages = old.reduce((sum, one) => sum + left(one), 0);
  const dead = old.reduce((sum, one) => sum + one.dead, 0);
  return html`<div class="card">
    <h3 id="reshard" tabindex="-1">${t("queues.reshard")}</h3>
    <${Wrong} codes=${OF.reshard} quiet=${true} />
    <p id="reshard-text">${t("queues.reshard_text", { empty: count(empty), old: count(old.length), messages: count(messages), dead: count(dead) })}</p>
    <progress max=${old.length} value=${empty} aria-labelledby="reshard" aria-describedby="reshard-text"></progress>
    ${empty === old.length && html`<p>${t("queues.reshard_wait")}</p>`}
    <p><a href=${href(["queues"], { only: "closed" })}>${t("queues.show_closed")}</a></p>
  </div>`;
}

/** Numbers as ranges: 0–3, 7. @param {number[]} numbers in order */
function ranges(numbers) {
  /** @type {[number, number][]} */
  const found = [];
  for (const one of numbers) {
    const last = found.at(-1);
    if (last && last[1] === one - 1) last[1] = one;
    else found.push([one, one]);
  }
  return found.map(([from, to]) => (from === to ? String(from) : `${from}–${to}`)).join(", ");
}

/** The queues of a node, or those of its last report. @param {Node} node */
function owned({ queues, stale }) {
  if (queues.length === 0) return t("queues.owns_none");
  const text = `${ranges(queues.map((one) => one.queue))} (${count(queues.length)})`;
  return stale ? t("queues.owned", { queues: text }) : text;
}

/** @param {{ asked: Asked, node: string | undefined }} props */
function NodesPart({ asked, node }) {
  /** @type {Node[]} */
  const all = asked.data?.nodes ?? [];
  const versions = new Set(all.filter((one) => !one.stale).map((one) => one.version));
  return html`<${Part} name="nodes" asked=${asked}>
    <${Wrong} codes=${OF.nodes} quiet=${true} />
    ${versions.size > 1 && html`<p class="caution">${t("queues.versions", { versions: [...versions].map((one) => one ?? "–").join(", ") })}</p>`}
    <${Table}
      caption=${t("queues.nodes")}
      hideCaption=${true}
      rows=${node === undefined ? all : all.filter((one) => one.node === node)}
      id=${(/** @type {Node} */ one) => one.node}
      open=${(/** @type {Node} */ one) => href(["queues"], { node: one.node })}
      empty=${node === undefined ? t("queues.no_nodes") : t("queues.no_such_node", { node })}
      columns=${[
        { name: "node", title: t("queues.node"), cell: (/** @type {Node} */ one) => html`<${NodeLink} node=${one.node} />` },
        { name: "state", title: t("queues.state"), cell: (/** @type {Node} */ one) => html`<span class=${`shape ${one.stale ? "bad" : "good"}`}>${t(one.stale ? "queues.stale" : "queues.live")}</span>` },
        { name: "seen", title: t("queues.seen"), cell: (/** @type {Node} */ one) => html`<${Age} at=${one.seen} />` },
        { name: "complaints", title: t("queues.complaints"), cell: (/** @type {Node} */ one) => (one.complaints.length ? html`<ul class="plain">${one.complaints.map((text) => html`<li key=${text}><bdi>${text}</bdi></li>`)}</ul>` : one.stale ? "–" : t("queues.no_complaint")) },
        { name: "owns", title: t("queues.owns"), cell: (/** @type {Node} */ one) => owned(one) },
        { name: "version", title: t("queues.version"), cell: (/** @type {Node} */ one) => one.version ?? "–" },
        { name: "address", title: t("queues.address"), cell: (/** @type {Node} */ one) => one.address ?? "–" },
        { name: "started", title: t("queues.started"), cell: (/** @type {Node} */ one) => html`<${Age} at=${one.since} />` },
        { name: "coordinator", title: t("queues.coordinator"), cell: (/** @type {Node} */ one) => one.coordinator ?? "–" },
        { name: "handed", title: t("queues.handed_over"), cell: (/** @type {Node} */ one) => html`<${Age} at=${one.handedOver} />` },
      ]}
    />
  <//>`;
}

/** @param {{ asked: Asked }} props */
function RoutesPart({ asked }) {
  const samples = useDeliveries();
  /** @type {Route[]} */
  const all = asked.data?.routes ?? [];
  const busy = all.filter((one) => samples.some((sample) => sample.rates[one.name]));
  const circuit = (/** @type {Route} */ one) =>
    one.circuit === null
      ? html`<span class="shape">${t("queues.circuit_unknown")}</span>`
      : html`<span class=${`shape ${one.circuit === "open" ? "bad" : "good"}`}>${t(`queues.circuit_${one.circuit}`)}</span>`;
  return html`<${Part} name="routes" asked=${asked}>
    <${Wrong} codes=${OF.routes} quiet=${true} />
    <${Table}
      caption=${t("queues.routes")}
      hideCaption=${true}
      rows=${all}
      id=${(/** @type {Route} */ one) => one.name}
      empty=${t("queues.no_routes")}
      columns=${[
        { name: "name", title: t("queues.route"), cell: (/** @type {Route} */ one) => html`<bdi>${one.name}</bdi>` },
        { name: "target", title: t("queues.target"), cell: (/** @type {Route} */ one) => html`<bdi>${one.target ?? "–"}</bdi>` },
        { name: "circuit", title: t("queues.circuit"), cell: circuit },
        { name: "rate", title: t("overview.rate"), number: true, cell: (/** @type {Route} */ one) => rate(lastRate(samples, one.name)) },
        { name: "at", title: t("queues.open_at"), cell: (/** @type {Route} */ one) => (one.openAt.length ? one.openAt.map((node, i) => html`${i > 0 && ", "}<${NodeLink} node=${node} />`) : "–") },
        { name: "reason", title: t("queues.reason"), cell: (/** @type {Route} */ one) => html`<bdi>${one.reason ?? "–"}</bdi>` },
        { name: "since", title: t("queues.open_since"), cell: (/** @type {Route} */ one) => html`<${Age} at=${one.since} />` },
        { name: "probe", title: t("queues.next_probe"), cell: (/** @type {Route} */ one) => html`<${Age} at=${one.nextProbeTime} />` },
        { name: "parked", title: t("queues.parked"), number: true, cell: (/** @type {Route} */ one) => (one.parked ? html`<a href=${href(["messages"], { state: "parked" })}>${count(one.parked)}</a>` : count(one.parked)) },
      ]}
    />
    <p class="age">${t("deliveries.since")}</p>
    ${busy.length > 0 && html`<div class="cards">${busy.map((one) => html`<div class="card" key=${one.name}><${Deliveries} route=${one.name} samples=${samples} /></div>`)}</div>`}
  <//>`;
}

/** The state of Redis and ZooKeeper: the findings, and the coordinators that nodes report. @param {{ asked: Asked }} props */
function ServersPart({ asked }) {
  const memory = useStore(live).data?.memory;
  /** @type {Node[]} */
  const nodes = (asked.data?.nodes ?? []).filter((/** @type {Node} */ one) => !one.stale);
  const by = new Map();
  for (const one of nodes) by.set(one.coordinator, (by.get(one.coordinator) ?? 0) + 1);
  return html`<section>
    <h2 id="servers" tabindex="-1">${t("queues.servers")}</h2>
    <h3>Redis</h3>
    <${Wrong} codes=${OF.redis} well=${t("queues.redis_well")} />
    ${
      memory &&
      html`<dl class="facts">
        <dt>${t("overview.memory")}</dt><dd>${bytes(memory.bytes)} (${memoryText(memory)})</dd>
        <dt>${t("queues.eviction")}</dt><dd>${memory.policy === null ? UNKNOWN : html`<code>${memory.policy}</code>`}</dd>
      </dl>`
    }
    <h3>${t("queues.coordination")}</h3>
    ${
      asked.data === null
        ? html`<p class="empty">–</p>`
        : nodes.length === 0
          ? html`<p class="empty">${t("queues.no_live")}</p>`
          : html`<ul>
              ${[...by].map(([name, n]) => html`<li key=${name}>${t(`queues.by_${["local", "zookeeper"].includes(name) ? name : "unknown"}`, { count: n })}</li>`)}
            </ul>`
    }
    ${by.has("zookeeper") && html`<p class="age">${t("queues.zookeeper_told")}</p>`}
  </section>`;
}
