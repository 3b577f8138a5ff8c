// Late messages and their causes, the counts by state, and the deliveries of the last ten minutes.

import { html } from "../vendor/standalone.module.js";
import { Chart } from "../parts/chart.js";
import { DUE, Wrong } from "../parts/findings.js";
import { live } from "../parts/live.js";
import { Figure, Freshness } from "../parts/notices.js";
import { bytes, duration, LATE, rate, share, VERY_LATE } from "../parts/numbers.js";
import { href } from "../parts/router.js";
import { useStore } from "../parts/store.js";
import { t } from "../parts/texts.js";
import { ms } from "../parts/times.js";

/** @typedef {{ from: string, stepMs: number, overMs: number, complete: boolean, delivered: (number | null)[], p50Ms: (number | null)[], p99Ms: (number | null)[], total: { delivered: number, p50Ms: number | null, p99Ms: number | null } }} Traffic */

export function Overview() {
  const { data, at, problem } = useStore(live);
  return html`<div class="heading">
      <h1 tabindex="-1">${t("page.overview")}</h1>
      ${at > 0 && !problem && html`<${Freshness} at=${at} problem=${null} />`}
    </div>
    <section>
      <h2 id="wrong">${t("overview.wrong")}</h2>
      <${Wrong} codes=${null} />
    </section>
    ${data && html`<${Figures} data=${data} old=${problem !== null} /><${LastMinutes} traffic=${data.traffic} />`}`;
}

/**
 * The counts by state; each leads to its list.
 * @param {{ data: any, old: boolean }} props `old`: the API no longer answers
 */
function Figures({ data, old }) {
  const messages = (/** @type {string} */ state) => href(["messages"], { state });
  const { headLateness: late, liveNodes, staleNodes, traffic } = data;
  const now = lastTold(traffic);
  return html`<section>
    <h2 id="figures">${t("overview.now")}</h2>
    <dl class=${old ? "figures old" : "figures"}>
      <${Figure} name=${t("overview.scheduled")} value=${data.scheduled.count} asOf=${data.scheduled.asOf} link=${messages("scheduled,retrying")} />
      <${Figure} name=${t("overview.due")} value=${data.due.count} asOf=${data.due.asOf} link=${messages(DUE)} />
      <${Figure} name=${t("overview.held")} value=${data.held.count} asOf=${data.held.asOf} link=${messages("held")} tone=${data.held.count ? "warn" : ""} />
      <${Figure} name=${t("overview.parked")} value=${data.parked.count} asOf=${data.parked.asOf} link=${messages("parked")} tone=${data.parked.count ? "warn" : ""} />
      <${Figure} name=${t("overview.dead")} value=${data.dead.count} asOf=${data.dead.asOf} link=${href(["dead-letters"])} tone=${data.dead.count ? "bad" : ""} />
      <${Figure} name=${t("overview.late")} value=${late} text=${duration(late)} asOf=${data.now} link=${messages(DUE)} tone=${late >= VERY_LATE ? "bad" : late >= LATE ? "warn" : ""} />
      <${Figure} name=${t("overview.live")} value=${liveNodes} asOf=${data.now} link=${href(["queues"], { see: "nodes" })} tone=${liveNodes === 0 ? "bad" : ""} />
      <${Figure} name=${t("overview.stale")} value=${staleNodes} asOf=${data.now} link=${href(["queues"], { see: "nodes" })} tone=${staleNodes ? "warn" : ""} />
      <${Figure} name=${t("overview.rate")} value=${now?.rate ?? null} text=${rate(now?.rate)} asOf=${now?.at} />
      <${Figure} name=${t("overview.memory")} value=${null} text=${bytes(data.memory.bytes)} note=${memoryText(data.memory)} link=${href(["queues"], { see: "servers" })} />
    </dl>
  </section>`;
}

/**
 * The share of maxmemory that is used.
 * @param {{ bytes: number | null, maxBytes: number | null }} memory null: unknown; a maximum of 0: none
 */
export function memoryText({ bytes: used, maxBytes }) {
  if (maxBytes === 0) return t("overview.no_maxmemory");
  return t("overview.memory_of", { share: share(used === null || maxBytes === null ? null : used / maxBytes), max: bytes(maxBytes) });
}

/**
 * The rate in the last reported slot, and the end of that slot.
 * @param {Traffic | null} traffic
 */
function lastTold(traffic) {
  const i = traffic === null ? -1 : traffic.delivered.findLastIndex((one) => one !== null);
  if (traffic === null || i < 0) return null;
  const end = (ms(traffic.from) ?? 0) + (i + 1) * traffic.stepMs;
  return { rate: traffic.delivered[i], at: new Date(end).toISOString() };
}

/** @param {{ traffic: Traffic | null }} props */
function LastMinutes({ traffic }) {
  if (traffic === null) {
    return html`<section><h2 id="traffic">${t("overview.traffic")}</h2><p class="empty">${t("overview.untold")}</p></section>`;
  }
  const { from, stepMs, overMs, total, delivered } = traffic;
  // Null in a slot with messages is more than the workers measure: it is drawn at their last bound, and named so.
  const drawn = (/** @type {(number | null)[]} */ all) => all.map((one, i) => (one === null && (delivered[i] ?? 0) > 0 ? overMs + 1 : one));
  const late = (/** @type {number | null} */ one, rate = 0) =>
    (one === null && rate > 0) || (one ?? 0) > overMs ? t("overview.over", { time: duration(overMs) }) : duration(one);
  const times = traffic.delivered.map((_, i) => (ms(from) ?? 0) + i * stepMs);
  return html`<section>
    <h2 id="traffic">${t("overview.traffic")}</h2>
    <p>${t("overview.total", { rate: rate(total.delivered), p50: late(total.p50Ms, total.delivered), p99: late(total.p99Ms, total.delivered) })}</p>
    ${!traffic.complete && html`<p class="caution">${t("overview.incomplete")}</p>`}
    <div class="cards">
      <div class="card">
        <${Chart} name=${t("overview.delivered")} times=${times} height=${200} series=${[{ name: t("overview.rate"), values: traffic.delivered, text: rate }]} />
      </div>
      <div class="card">
        <${Chart}
          name=${t("overview.lateness")}
          times=${times}
          log=${true}
          height=${200}
          series=${[
            { name: "p50", values: drawn(traffic.p50Ms), text: late },
            { name: "p99", values: drawn(traffic.p99Ms), text: late, tone: "warn" },
          ]}
        />
      </div>
    </div>
  </section>`;
}
