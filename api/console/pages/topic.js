// One topic: its destination, its settings, its waiting messages, and the causes of their wait.

import { html, useState } from "../vendor/standalone.module.js";
import { Deliveries, lastRate, useDeliveries } from "../parts/deliveries.js";
import { Refresh, useAsked, useRefresh } from "../parts/lists.js";
import { may, mayEverywhere } from "../parts/live.js";
import { Figure } from "../parts/notices.js";
import { count, duration, rate, UNKNOWN } from "../parts/numbers.js";
import { Pause, Resume } from "../parts/pausing.js";
import { LimitTopic, Said } from "../parts/policies.js";
import { href } from "../parts/router.js";
import { at } from "../parts/server.js";
import { TestMessage } from "../parts/test_message.js";
import { t } from "../parts/texts.js";
import { Age, Time } from "../parts/times.js";

const STATES = ["scheduled", "due", "inFlight", "retrying", "parked", "held", "dead"];

/** @param {{ rest: string[], query: Record<string, string> }} props */
export function Topic({ rest: [topic] }) {
  const [every, choose] = useRefresh();
  const asked = useAsked(at`v1/topics/${topic}`, {}, every);
  const [dialog, setDialog] = useState(/** @type {any} */ (null));
  const close = () => {
    setDialog(null);
    asked.again();
  };
  const one = asked.data;
  return html`<div class="heading">
      <h1 tabindex="-1"><span class="id">${topic}</span></h1>
      <${Refresh} every=${every} choose=${choose} again=${asked.again} loading=${asked.loading} at=${asked.at} problem=${asked.problem} />
    </div>
    <p class="actions">
      <a href=${href(["messages"], { topic })}>${t("page.messages")}</a>
      <a href=${href(["timeline"], { topic })}>${t("page.timeline")}</a>
      <a href=${href(["dead-letters"], { topic })}>${t("page.dead-letters")}</a>
      <a href=${href(["consumers"], { match: topic })}>${t("page.consumers")}</a>
      <a href=${href(["audit"], { topic })}>${t("page.audit")}</a>
      ${may("schedule", topic) && html`<button type="button" onClick=${() => setDialog(html`<${TestMessage} topic=${topic} close=${() => setDialog(null)} />`)}>${t("test.title")}…</button>`}
      ${one && may("admin", topic) && html`<button type="button" onClick=${() => setDialog(html`<${LimitTopic} topic=${topic} applied=${one.policy} close=${close} />`)}>${t("topic.limit")}…</button>`}
      ${one && !one.pause && may("admin", topic) && html`<button type="button" onClick=${() => setDialog(html`<${Pause} match=${topic} close=${close} />`)}>${t("pausing.pause")}…</button>`}
      ${
        one?.pause &&
        may("admin", one.pause.match) &&
        html`<button type="button" onClick=${() => setDialog(html`<${Resume} match=${one.pause.match} close=${close} />`)}>${t("pausing.resume")}…</button>`
      }
    </p>
    ${one && html`<${Counts} one=${one} /><div class="cards"><${Goes} one=${one} /><${Stopped} one=${one} /><${Limited} limit=${one.limit} /><${Policy} policy=${one.policy} /></div>`}
    ${one && one.route !== null && mayEverywhere("read") && html`<${RouteRate} route=${one.route} />`}
    ${dialog}`;
}

/** The deliveries of the route of a topic, of all topics of that route. @param {{ route: string }} props */
function RouteRate({ route }) {
  const samples = useDeliveries();
  return html`<section>
    <h2>${t("topic.route_rate", { route })}</h2>
    <p>${t("topic.route_now", { rate: rate(lastRate(samples, route)) })}</p>
    <p class="age">${t("deliveries.since")}</p>
    ${samples.some((one) => (one.rates[route] ?? null) !== null) && html`<div class="card"><${Deliveries} route=${route} samples=${samples} /></div>`}
  </section>`;
}

/** @param {{ one: any }} props */
function Counts({ one }) {
  const { topic, counts, asOf } = one;
  // Held messages are counted now, like all else here; the others by the last count.
  const known = (/** @type {string} */ state) => (state === "held" ? one.held : counts ? (counts[state] ?? 0) : null);
  return html`<h2>${t("topic.messages")}</h2>
    ${!counts && html`<p class="empty">${t("topics.not_counted")}</p>`}
    <dl class="figures">
      ${STATES.map(
        (state) =>
          html`<${Figure}
            key=${state}
            name=${t(`state.${state}`)}
            value=${known(state)}
            asOf=${state === "held" ? undefined : asOf}
            tone=${counts?.[state] && state === "dead" ? "bad" : ""}
            link=${state === "dead" ? href(["dead-letters"], { topic }) : href(["messages"], { topic, state })}
          />`,
      )}
    </dl>`;
}

/** @param {{ title: string, facts: [string, any][], children?: any }} props */
function Card({ title, facts, children }) {
  return html`<section class="card">
    <h2>${title}</h2>
    <dl class="facts">${facts.map(([name, text]) => [html`<dt key=${name}>${name}</dt>`, html`<dd>${text}</dd>`])}</dl>
    ${children}
  </section>`;
}

/** @param {{ one: any }} props */
function Goes({ one }) {
  const route = one.route === null ? html`<span class="caution">${t("topics.no_route")}</span>` : html`<a href=${href(["queues"])}>${one.route}</a>`;
  return html`<${Card} title=${t("topic.goes")} facts=${[
    [t("topics.route"), route],
    [t("topic.aside"), html`${count(one.held)} <small>${t("topic.at_most")}</small>`],
  ]} />`;
}

/** @param {{ one: any }} props */
function Stopped({ one: { topic, pause, arriving = [] } }) {
  if (!pause) return html`<${Card} title=${t("topics.pause")} facts=${[]}><p>${t("topic.not_paused")}</p><//>`;
  const coming = arriving.map((/** @type {any} */ node) => html`<li key=${node.node}>${node.node}: ${node.inFlight === null ? t("topic.not_told") : t("topic.may_arrive", { count: node.inFlight })}</li>`);
  return html`<${Card} title=${t("topics.pause")} facts=${[
    [t("topic.stands"), html`<span class="state held">${t(coming.length ? "topic.pausing" : "topic.paused")}</span>`],
    [t("policy.match"), pause.match === topic ? html`<code>${pause.match}</code>` : html`<a href=${href(["topics"], { match: pause.match })}><code>${pause.match}</code></a>`],
    [t("topics.since"), html`<${Time} at=${pause.since} /> (<${Age} at=${pause.since} />)`],
    [t("topics.until"), pause.until ? html`<${Time} at=${pause.until} />` : t("pausing.until_resumed")],
    [t("topics.reason"), pause.reason ? html`<bdi>${pause.reason}</bdi>` : UNKNOWN],
  ]}>
    ${coming.length > 0 && html`<h3>${t("topic.arriving")}</h3><ul>${coming}</ul>`}
  <//>`;
}

/** @param {{ limit: any }} props */
function Limited({ limit }) {
  if (!limit) return html`<${Card} title=${t("topics.limit")} facts=${[]}><p>${t("topic.no_limit")}</p><//>`;
  return html`<${Card} title=${t("topics.limit")} facts=${[
    [t("topic.rate"), t("topics.limit_rate", { rate: rate(limit.rate) })],
    [t("topic.limit_by"), html`<code>${limit.match}</code>${limit.temporary ? ` (${t("topic.temporary")})` : ""}`],
    [t("topic.granted"), count(limit.grantedLastSecond)],
    [t("topic.waiting"), count(limit.held)],
    [t("topic.wait"), duration(limit.waitMs)],
  ]} />`;
}

/** @param {{ policy: any }} props */
function Policy({ policy }) {
  if (!policy) return html`<${Card} title=${t("topics.policy")} facts=${[]}><p>${t("topic.no_policy")}</p><//>`;
  return html`<${Card} title=${t("topics.policy")} facts=${[
    [t("policy.name"), policy.name],
    [t("policy.match"), html`<a href=${href(["topics"], { match: policy.match })}><code>${policy.match}</code></a>`],
    [t("policy.order"), count(policy.order)],
    [t("topics.since"), html`<${Time} at=${policy.since} />`],
  ]}><h3>${t("policies.said")}</h3><${Said} policy=${policy} /><//>`;
}
