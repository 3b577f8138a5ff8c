// One message: the cause of its wait, its history and next steps, and the possible actions.

import { html, useEffect, useMemo, useRef, useState } from "../vendor/standalone.module.js";
import { Body, member } from "../parts/body.js";
import { outcomeOf } from "../parts/bulk.js";
import { Act, focusHeading } from "../parts/dialog.js";
import { Refresh, together, useAsked, usePages, useRefresh } from "../parts/lists.js";
import { may, mayEverywhere, serverNow } from "../parts/live.js";
import { Copy, PauseText, State, Trouble } from "../parts/notices.js";
import { count, duration, rate, UNKNOWN } from "../parts/numbers.js";
import { href } from "../parts/router.js";
import { SameCall } from "../parts/same_call.js";
import { ask, askText, at } from "../parts/server.js";
import { More } from "../parts/table.js";
import { t } from "../parts/texts.js";
import { Age, ms, Time, TimeField, timeText } from "../parts/times.js";

/** The states in which a message may still be delivered. */
const ALIVE = ["scheduled", "due", "inFlight", "retrying", "parked", "held"];

/**
 * The answer, and its text, in which numbers have all their digits.
 * @type {typeof ask}
 */
async function askBoth(method, path, asked) {
  const text = await askText(method, path, asked);
  return { ...JSON.parse(text), text };
}

/** @param {{ rest: string[], query: Record<string, string> }} props */
export function Message({ rest }) {
  const id = rest.join("/");
  const [every, choose] = useRefresh();
  const asked = useAsked(at`v1/messages/${id}`, { explain: true }, every, askBoth);
  const { data, problem } = asked;
  const known = data ?? { id, message: null };
  const audit = usePages("v1/audit", { id: known.id }, (answer) => answer.entries);
  const topic = data?.message?.topic;
  const reads = topic !== undefined && may("read", topic);
  const about = useAsked(reads ? at`v1/topics/${topic}` : null, {}, every);
  const routes = useAsked(reads && mayEverywhere("read") ? "v1/routes" : null, {}, every);
  const fresh = together([asked, about, routes]);
  const gone = problem !== null && problem.status === 404;
  const refresh = () => {
    for (const one of [asked, about, routes, audit]) one.again();
  };
  return html`<div class="heading">
      <div class="named">
        <h1 tabindex="-1"><span class="id">${known.id}</span></h1>
        <${Copy} text=${known.id} />
      </div>
      <${Refresh} every=${every} choose=${choose} again=${refresh} loading=${fresh.loading} at=${gone ? undefined : fresh.at} problem=${fresh.problem} />
    </div>
    ${
      gone
        ? html`<${Trouble} problem=${problem} />
            <${Unknown} id=${id} entries=${audit.rows} />`
        : data !== null && html`<${Known} snapshot=${data} audit=${audit} reads=${reads} about=${about} routes=${routes.data} again=${refresh} />`
    }`;
}

/**
 * The id is no longer known: only the audit may have entries about it.
 * @param {{ id: string, entries: any[] }} props
 */
function Unknown({ id, entries }) {
  return html`<p><a href=${href(["messages"], { find: id })}>${t("message.find")}</a></p>
    ${entries.length > 0 && html`<h2>${t("message.timeline")}</h2>
      <ol class="timeline">${entries.map(ofAudit).reverse().map(event)}</ol>`}`;
}

/**
 * @param {{
 *   snapshot: any, audit: any, reads: boolean, about: import("../parts/lists.js").Asked, routes: any, again: () => void,
 * }} props `reads`: the caller may read its topic; `about` has the facts of the topic
 */
function Known({ snapshot, audit, reads, about: { data: about }, routes, again }) {
  const route = routes?.routes.find((/** @type {any} */ one) => one.name === about?.route);
  const explain = snapshot.explain;
  return html`<p class=${`why ${snapshot.state}`}>
      <${State} state=${snapshot.state} />
      ${explain && html`<span>${explain.text}</span>`}
    </p>
    <${Actions} snapshot=${snapshot} about=${about} again=${again} />
    <div class="cards">
      <section class="card">
        <h2>${t("message.timeline")}</h2>
        <ol class="timeline">${eventsOf(snapshot, audit.rows).map(event)}</ol>
        <${More} next=${audit.next} loading=${audit.loading} />
        <${Trouble} problem=${audit.problem} />
      </section>
      <section class="card">
        <h2>${t("message.facts")}</h2>
        <dl class="facts"><${Facts} snapshot=${snapshot} /></dl>
      </section>
      ${
        reads &&
        html`<section class="card">
          <h2>${t("message.way")}</h2>
          ${about && html`<dl class="facts"><${Way} about=${about} route=${route} /></dl>`}
        </section>`
      }
      ${snapshot.message !== null && html`<${Content} text=${snapshot.text} message=${snapshot.message} />`}
      <section class="card whole"><${SameCall} call=${{ does: "get", id: snapshot.id }} title=${t("call.read")} /></section>
    </div>`;
}

/**
 * @typedef {{ at: number | null, text: any, kind: string }} Event  `at` Unix ms; `kind` past, now or next
 */

/** @param {Event} one */
function event({ at: then, text, kind }) {
  return html`<li class=${kind} aria-current=${kind === "now" ? "step" : undefined}>
    <span class="when"
      >${
        kind === "now"
          ? t("message.now")
          : then === null
            ? UNKNOWN
            : html`<${Time} at=${then} exact /> <span class="age"><${Age} at=${then} /></span>`
      }</span
    >
    <span>${text}</span>
  </li>`;
}

/** @param {any} entry of the audit @returns {Event} */
function ofAudit(entry) {
  const what = t("message.did", { action: t(`audit.action_${entry.action}`), actor: entry.actor });
  return { at: ms(entry.time), kind: "past", text: entry.reason ? `${what}: ${entry.reason}` : what };
}

/**
 * The history, the present and the next steps, as far as the API knows them.
 * @param {any} snapshot
 * @param {any[]} entries
 * @returns {Event[]}
 */
function eventsOf(snapshot, entries) {
  const { state, message, explain } = snapshot;
  const now = serverNow();
  const asked = ms(message?.expectDate);
  const ended = ms(snapshot.endedTime);
  const due = ms(snapshot.dueTime);
  const since = ms(explain?.since);
  const until = ms(explain?.until);
  /** @type {(Event | false)[]} */
  const dated = [
    ...entries.map(ofAudit),
    asked !== null && { at: asked, kind: "", text: t("message.asked") },
    ended !== null && { at: ended, kind: "past", text: t(`message.ended.${state}`) },
    // The start of a wait is shown with its cause: a pause or a circuit may be older than the wait.
    since !== null && since !== asked && ended === null && { at: since, kind: "past", text: t(`message.since.${explain.waitsFor}`) },
    state === "retrying" && due !== null && { at: due, kind: "next", text: t("message.attempt", { n: snapshot.attempts + 1 }) },
    state === "scheduled" && due !== null && due !== asked && { at: due, kind: "next", text: t("message.due") },
    // A reported next probe may be over already; the node's next report has its outcome.
    until !== null && until !== due && until > now && { at: until, kind: "next", text: t(`message.until.${explain.waitsFor}`) },
    ALIVE.includes(state) &&
      asked !== null &&
      message.expireAfter !== undefined && { at: asked + message.expireAfter, kind: "next", text: t("message.expires") },
  ];
  const known = /** @type {Event[]} */ (dated.filter(Boolean)).map((one) => ({ ...one, kind: one.at !== null && one.at > now ? "next" : "past" }));
  known.sort((a, b) => Number(a.at) - Number(b.at));
  const past = known.filter((one) => one.kind === "past");
  const next = known.filter((one) => one.kind === "next");
  // The times of failed attempts are not stored; a dead letter died with its last attempt.
  if (snapshot.attempts > 0) past.splice(ended === null ? past.length : -1, 0, { at: null, kind: "past", text: attempts(snapshot) });
  const middle = ALIVE.includes(state) ? [{ at: now, kind: "now", text: html`<${State} state=${state} />` }] : [];
  return [...past, ...middle, ...next];
}

/** @param {any} snapshot */
function attempts({ attempts: n, reason, state }) {
  const text = t("message.failed", { count: n });
  return reason && state === "dead" ? `${text}: ${reason}` : text;
}

/** @param {{ snapshot: any }} props */
function Facts({ snapshot }) {
  const { message, explain } = snapshot;
  return html`<dt>${t("message.queue")}</dt>
    <dd><a href=${href(["queues"], { queue: snapshot.queue })}>${count(snapshot.queue)}</a></dd>
    <dt>${t("message.owner")}</dt>
    <dd>${explain?.owner ?? UNKNOWN}</dd>
    <dt>${t("message.attempts")}</dt>
    <dd>${count(snapshot.attempts)}${message?.maxAttempts !== undefined && ` / ${count(message.maxAttempts)}`}</dd>
    ${
      message !== null &&
      html`<dt>${t("message.topic")}</dt>
        <dd>
          <a href=${href(["topics", message.topic])}>${message.topic}</a>${" "}
          (<a href=${href(["messages"], { topic: message.topic })}>${t("message.others")}</a>)
        </dd>
        ${
          message.keys &&
          html`<dt>${t("message.keys")}</dt>
            <dd class="links">
              ${message.keys.map((/** @type {string} */ key) => html`<a key=${key} href=${href(["messages"], { key })}>${key}</a> `)}
            </dd>`
        }
        ${
          message.tags &&
          html`<dt>${t("message.tags")}</dt>
            <dd><a href=${href(["messages"], { topic: message.topic, tags: message.tags })}>${message.tags}</a></dd>`
        }
        ${message.orderingKey && html`<dt>${t("message.ordering_key")}</dt><dd>${message.orderingKey}</dd>`}
        ${message.expireAfter !== undefined && html`<dt>${t("message.expire_after")}</dt><dd>${duration(message.expireAfter)}</dd>`}
        ${Object.entries(message.properties ?? {}).map(
          ([name, value]) =>
            html`<dt key=${name}><span class="hidden">${t("message.property")} </span><code>${name}</code></dt>
              <dd><a href=${href(["messages"], { topic: message.topic, property: `${name}:${value}` })}>${value}</a></dd>`,
        )}`
    }`;
}

/**
 * The way to the target: the route of the topic, its state, and the policy that applies.
 * @param {{ about: any, route: any }} props
 */
function Way({ about, route }) {
  const { pause, policy, limit } = about;
  return html`<dt>${t("message.route")}</dt>
    <dd>${about.route ?? t("message.no_route")}</dd>
    ${
      route &&
      html`<dt>${t("message.target")}</dt>
        <dd>${route.target ?? UNKNOWN}</dd>
        <dt>${t("message.circuit")}</dt>
        <dd>
          ${route.circuit === null ? UNKNOWN : t(`message.circuit.${route.circuit}`)}
          ${route.since && html` ${t("pauses.since")} <${Time} at=${route.since} />`}${route.reason && html`: <bdi>${route.reason}</bdi>`}
        </dd>
        ${route.nextProbeTime && html`<dt>${t("message.probe")}</dt><dd><${Time} at=${route.nextProbeTime} /> <${Age} at=${route.nextProbeTime} /></dd>`}
        <dt>${t("message.parked")}</dt>
        <dd>${count(route.parked)}</dd>`
    }
    ${
      pause &&
      html`<dt>${t("pauses.paused")}</dt>
        <dd>
          <a href=${href(["topics"], { match: pause.match })}>${pause.match}</a> <${PauseText} pause=${pause} />
        </dd>`
    }
    ${limit && html`<dt>${t("message.limit")}</dt><dd>${t("message.a_second", { rate: rate(limit.rate) })}, ${t("message.held", { count: count(limit.held) })}</dd>`}
    ${
      policy &&
      html`<dt>${t("message.policy")}</dt>
        <dd>${policy.name} (<code>${policy.match}</code>): ${policyText(policy)}</dd>`
    }`;
}

/** @param {any} policy @returns {string} its settings for a message, by the names of the API's fields */
function policyText({ rate: aSecond, maxInFlight, maxAttempts, backoff, expireAfter, window }) {
  const times = (/** @type {number[]} */ all) => all.map(duration).join(", ");
  return [
    aSecond !== undefined && t("message.a_second", { rate: rate(aSecond) }),
    maxInFlight !== undefined && `maxInFlight ${count(maxInFlight)}`,
    maxAttempts !== undefined && `maxAttempts ${count(maxAttempts)}`,
    backoff?.length && `backoff ${times(backoff)}`,
    expireAfter !== undefined && `expireAfter ${duration(expireAfter)}`,
    window !== undefined && `window ${duration(window)}`,
  ]
    .filter(Boolean)
    .join("; ");
}

/**
 * The body, with every digit unchanged.
 * @param {{ text: string, message: any }} props
 */
function Content({ text, message }) {
  const body = useMemo(() => bodyOf(text, message), [text]);
  return html`<section class="card whole">
    <div class="heading">
      <h2>${t("message.body")}</h2>
      ${body !== null && html`<span>${t(`message.${body.kind}`, { count: count(body.size) })} <${Copy} text=${body.text} label=${t("message.body")} /></span>`}
    </div>
    ${body === null ? html`<p class="empty">${t("message.no_body")}</p>` : html`<${Body} text=${body.text} json=${body.json} />`}
    ${body?.base64 && html`<h3>${t("message.base64")}</h3><${Body} text=${body.base64} json=${false} />`}
  </section>`;
}

/**
 * @param {string} text
 * @param {any} message
 * @returns {{ kind: string, text: string, size: number, json: boolean, base64?: string } | null}
 */
function bodyOf(text, message) {
  const base64 = message.bodyBase64;
  if (base64 !== undefined) {
    const bytes = Uint8Array.from(atob(base64), (one) => one.charCodeAt(0));
    try {
      const decoded = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(bytes);
      return { kind: "bytes_text", text: decoded, size: bytes.length, json: isJson(decoded), base64 };
    } catch {
      return { kind: "bytes", text: base64, size: bytes.length, json: false };
    }
  }
  const raw = member(text, ["message", "body"]);
  if (raw === undefined) return null;
  if (!raw.startsWith('"')) return { kind: "json", text: raw, size: raw.length, json: true };
  const snapshot = JSON.parse(raw);
  return { kind: "text", text: snapshot, size: snapshot.length, json: isJson(snapshot) };
}

/** @param {string} text */
function isJson(text) {
  if (!/^\s*[{[]/.test(text)) return false;
  try {
    JSON.parse(text);
    return true;
  } catch {
    return false;
  }
}

/** @param {{ snapshot: any, about: any, again: () => void }} props */
function Actions({ snapshot, about, again }) {
  const [doing, setDoing] = useState("");
  const { id, state, message } = snapshot;
  const before = useRef(state);
  useEffect(() => {
    // The pressed button may have disappeared with the state that offered it.
    if (before.current !== state && document.activeElement === document.body) focusHeading();
    before.current = state;
  });
  if (message === null) return null;
  const { topic } = message;
  const cancels = may("cancel", topic);
  const admin = may("admin", topic);
  const held = state === "held" || Boolean(about?.pause);
  const offered = [
    cancels && ALIVE.includes(state) && "cancel",
    cancels && ["scheduled", "held"].includes(state) && "move",
    (state === "held" ? admin : cancels) && ["scheduled", "retrying", "parked", "held"].includes(state) && "deliver",
    admin && state === "dead" && "redrive",
    admin && state === "dead" && "discard",
  ].filter((one) => typeof one === "string");
  if (offered.length === 0 && doing === "") return null;
  // A parked or held message waits for its target or for a pause: to send it now is an exception, so nothing stands out.
  const first = { dead: "redrive", retrying: "deliver" }[/** @type {string} */ (state)];
  const done = () => {
    setDoing("");
    again();
  };
  const toOne = (/** @type {string} */ path) => async (/** @type {string} */ reason) =>
    outcomeOf(doing, await ask("POST", path, { body: { ids: [id], ...(reason && { reason }) } }));
  const dialog = { title: t("message.title", { action: t(`message.${doing}`), id }), verb: t(`message.${doing}`), close: done };
  const same = html`<${SameCall} call=${{ does: doing, id }} />`;
  const dialogs = {
    cancel: () => html`<${Act} ...${dialog} danger text=${t(`message.cancel.${state}`)} run=${toOne("v1/messages:cancel")}>${same}<//>`,
    redrive: () => html`<${Act} ...${dialog} text=${t("message.redrive_text")} run=${toOne("v1/dead-letters:redrive")}>${same}<//>`,
    discard: () => html`<${Act} ...${dialog} danger text=${t("message.discard_text")} run=${toOne("v1/dead-letters:discard")}>${same}<//>`,
    move: () => html`<${Move} dialog=${dialog} snapshot=${snapshot} />`,
    deliver: () => html`<${Deliver} dialog=${dialog} snapshot=${snapshot} force=${admin && held} />`,
  };
  return html`<div class="actions">
    ${offered.map((one) => html`<button type="button" key=${one} class=${one === first ? "primary" : ""} onClick=${() => setDoing(one)}>${t(`message.${one}`)} …</button>`)}
    ${doing !== "" && dialogs[/** @type {keyof typeof dialogs} */ (doing)]()}
  </div>`;
}

/** The answer of the API about a message with a new due time. @param {any} answer */
function scheduled(answer) {
  return html`<p><code>${answer.state}</code>: ${t("message.due_now", { time: timeText(answer.dueTime, true) })}</p>`;
}

/** @param {{ dialog: any, snapshot: any }} props */
function Move({ dialog, snapshot }) {
  const [by, setBy] = useState("expectDate");
  const [date, setDate] = useState(/** @type {string} */ (snapshot.dueTime ?? snapshot.message.expectDate));
  const [delay, setDelay] = useState("");
  const given = by === "expectDate" ? { expectDate: date } : { delayTime: delay.trim() };
  const choice = (/** @type {string} */ one) => html`<label class="check"
    ><input type="radio" name="by" value=${one} checked=${by === one} onChange=${() => setBy(one)} />${t(`message.${one}`)}</label
  >`;
  const run = async (/** @type {string} */ reason) =>
    scheduled(await ask("PATCH", at`v1/messages/${snapshot.id}`, { body: { ...given, ...(reason && { reason }) } }));
  return html`<${Act} ...${dialog} text=${t(`message.move.${snapshot.state}`)} run=${run}>
    <fieldset>
      <legend>${t("message.to")}</legend>
      ${choice("expectDate")} ${choice("delayTime")}
    </fieldset>
    ${
      by === "expectDate"
        ? html`<${TimeField} label=${t("message.expectDate")} at=${date} set=${setDate} required />`
        : html`<label
            >${t("message.delay_hint")}
            <input required autocomplete="off" value=${delay} onInput=${(/** @type {any} */ e) => setDelay(e.target.value)}
          /></label>`
    }
    <p>${t("message.sends")} <code>${JSON.stringify(given)}</code></p>
    <${SameCall} call=${{ does: "reschedule", id: snapshot.id, date: given.expectDate, delay: given.delayTime }} />
  <//>`;
}

/** @param {{ dialog: any, snapshot: any, force: boolean }} props */
function Deliver({ dialog, snapshot, force }) {
  const [forced, setForced] = useState(force && snapshot.state === "held");
  const run = async (/** @type {string} */ reason) =>
    scheduled(await ask("POST", at`v1/messages/${snapshot.id}:deliverNow`, { body: { force: forced, ...(reason && { reason }) } }));
  return html`<${Act} ...${dialog} text=${t(`message.deliver.${snapshot.state}`)} run=${run}>
    ${
      force &&
      html`<label class="check"
        ><input type="checkbox" checked=${forced} onChange=${(/** @type {any} */ e) => setForced(e.target.checked)} />${t("message.force")}</label
      >`
    }
    <${SameCall} call=${{ does: "deliverNow", id: snapshot.id, force: forced }} />
  <//>`;
}
