// Policies: their settings, in words, and the dialogs that create, change and delete one.

import { html, useState } from "../vendor/standalone.module.js";
import { Act } from "./dialog.js";
import { useAsked } from "./lists.js";
import { count, duration, rate } from "./numbers.js";
import { Covered, useCovered } from "./pausing.js";
import { ask, at, Problem, reasonHeader } from "./server.js";
import { t } from "./texts.js";

/**
 * The fields of a policy in groups, and how each is typed.
 * @typedef {"text" | "number" | "duration" | "durations" | "lines" | string[]} Kind  an array: one of these
 * @type {[string, [string, Kind][]][]}
 */
const GROUPS = [
  ["topics", [["match", "text"], ["order", "number"]]],
  ["limits", [["rate", "number"], ["burst", "number"], ["per", ["topic", "policy"]], ["maxInFlight", "number"], ["window", "duration"]]],
  ["retries", [["maxAttempts", "number"], ["backoff", "durations"], ["expireAfter", "duration"]]],
  ["consumers", [["maxHandBacks", "number"], ["maxDeliveries", "number"]]],
  [
    "accepting",
    [["pending", "number"], ["minReplicas", "number"], ["fsync", ["", "everysec", "always"]], ["index", ["", "topic", "tags", "topic,tags"]], ["redact", "lines"]],
  ],
  ["retention", [["retentionAge", "duration"], ["retentionLength", "number"], ["retentionForce", ["false", "true"]]]],
];

/** @type {[string, Kind][]} */
const FIELDS = GROUPS.flatMap(([, fields]) => fields);

/** @type {[number, string][]} */
const UNITS = [
  [86_400_000, "d"],
  [3_600_000, "h"],
  [60_000, "m"],
  [1_000, "s"],
  [1, "ms"],
];

/**
 * A duration in the API's format: 1h30m.
 * @param {number} ms
 */
function typed(ms) {
  let left = ms;
  let text = "";
  for (const [size, unit] of UNITS) {
    const n = Math.floor(left / size);
    if (n) text += `${n}${unit}`;
    left -= n * size;
  }
  return text || "0s";
}

/** @param {string} text */
function read(text) {
  return /^\d+$/.test(text) ? Number(text) : text;
}

/**
 * The text in a field, for a value of the API.
 * @param {Kind} kind
 * @param {any} value
 */
function shownOf(kind, value) {
  if (value === undefined || value === null) return Array.isArray(kind) ? kind[0] : "";
  if (kind === "duration") return typed(value);
  if (kind === "durations") return value.map(typed).join(", ");
  if (kind === "lines") return value.join("\n");
  return Array.isArray(value) ? [...value].sort().reverse().join(",") : String(value); // as the choices of `index` write it
}

/**
 * The value for the API, from the typed text.
 * @param {string} name
 * @param {Kind} kind
 * @param {string} text
 */
function valueOf(name, kind, text) {
  const given = text.trim();
  if (given === "") return null;
  if (kind === "number") return Number(given);
  if (name === "retentionForce") return given === "true";
  if (kind === "duration") return read(given);
  const all = given.split(kind === "lines" ? /\s*\n\s*/ : /[\s,]+/).filter(Boolean);
  if (kind === "durations") return all.map(read);
  return kind === "lines" || name === "index" ? all : given;
}

/**
 * The settings of a policy, each in words.
 * @param {{ policy: any }} props
 */
export function Said({ policy }) {
  const one = policy;
  /** @type {[string, any][]} */
  const said = [
    ["rate", one.rate && t(one.per === "policy" ? "policy.rate_of_all" : "policy.rate_of_each", { rate: rate(one.rate) })],
    ["burst", one.burst && count(one.burst)],
    ["maxInFlight", one.maxInFlight && count(one.maxInFlight)],
    ["window", one.window && duration(one.window)],
    ["maxAttempts", one.maxAttempts && count(one.maxAttempts)],
    ["backoff", one.backoff?.map(duration).join(", ")],
    ["maxHandBacks", one.maxHandBacks !== undefined && count(one.maxHandBacks)],
    ["maxDeliveries", one.maxDeliveries && count(one.maxDeliveries)],
    ["expireAfter", one.expireAfter !== undefined && duration(one.expireAfter)],
    ["pending", one.pending && count(one.pending)],
    ["index", one.index?.join(", ")],
    ["redact", one.redact?.map((/** @type {string} */ path) => html`<code>${path}</code> `)],
    ["minReplicas", one.minReplicas !== undefined && count(one.minReplicas)],
    ["fsync", one.fsync],
    ["retentionAge", one.retentionAge && duration(one.retentionAge)],
    ["retentionLength", one.retentionLength && count(one.retentionLength)],
    ["retentionForce", one.retentionForce && "true"],
  ];
  return html`<dl class="facts">
    ${said.filter(([, text]) => text).map(([name, text]) => [html`<dt key=${name}>${t(`policy.${name}`)}</dt>`, html`<dd>${text}</dd>`])}
  </dl>`;
}

/**
 * Create a policy, or change an existing one.
 * @param {{ policy: any | null, version: number, names: string[], close: () => void, draft?: any }} props `version` of the
 *   policies, as they were seen, and the names that there are; `draft`: the first values of a new one
 */
export function PutPolicy({ policy, version, names, close, draft = null }) {
  const before = policy ?? draft;
  const [name, setName] = useState(before?.name ?? "");
  const [given, setGiven] = useState(() => Object.fromEntries(FIELDS.map(([field, kind]) => [field, shownOf(kind, before?.[field])])));
  const [seen, setSeen] = useState(version);
  const [changed, setChanged] = useState(/** @type {any} */ (null));
  const run = async (/** @type {string} */ reason) => {
    const body = Object.fromEntries(FIELDS.map(([field, kind]) => [field, valueOf(field, kind, given[field])]).filter(([, value]) => value !== null));
    const headers = { "If-Match": String(seen), ...reasonHeader(reason) };
    try {
      const stored = await ask("PUT", at`v1/policies/${name}`, { body, headers });
      return stored.changed ? t("policies.holds", { version: stored.version }) : t("policies.same");
    } catch (error) {
      if (error instanceof Problem && error.status === 412) {
        // The typed text stays; changes of others are shown beside it, and the next attempt builds on them.
        const all = await ask("GET", "v1/policies");
        setSeen(all.version);
        setChanged(all.policies.find((/** @type {any} */ one) => one.name === name) ?? {});
      }
      throw error;
    }
  };
  const taken = !policy && names.includes(name);
  const set = (/** @type {string} */ field) => (/** @type {any} */ e) => setGiven({ ...given, [field]: e.target.value });
  return html`<${Act} title=${policy ? t("policies.change_one", { name }) : t("policies.make")} verb=${t("policies.save")} close=${close} run=${run} blocked=${taken}>
    ${
      changed !== null &&
      html`<section aria-label=${t("policies.now")}>
        <p>${changed.name ? t("policies.now") : t("policies.now_gone")}</p>
        ${changed.name && html`<p><code>${changed.match}</code></p><${Said} policy=${changed} />`}
      </section>`
    }
    ${
      !policy &&
      html`<label
        >${t("policy.name")}
        <input value=${name} required maxlength="64" pattern="(?![.]{1,2}$)[A-Za-z0-9._\\-]+" autocapitalize="off" spellcheck="false" onInput=${(/** @type {any} */ e) => setName(e.target.value.trim())} />
        ${taken && html`<small role="alert">${t("policies.taken")}</small>`}
      </label>`
    }
    ${GROUPS.map(
      ([group, fields]) => html`<fieldset key=${group} class="fields">
        <legend>${t(`group.${group}`)}</legend>
        ${fields.map(([field, kind]) => html`<${Field} key=${field} name=${field} kind=${kind} value=${given[field]} set=${set(field)} />`)}
      </fieldset>`,
    )}
  <//>`;
}

/**
 * Limit one topic: change its own policy, or create one. Policies are never merged, so a new one begins with the settings of
 * the policy that applied before, and goes before it.
 * @param {{ topic: string, applied: any | null, close: () => void }} props `applied`: the policy that the topic follows now
 */
export function LimitTopic({ topic, applied, close }) {
  const { data } = useAsked("v1/policies");
  if (data === null) return null;
  const names = data.policies.map((/** @type {any} */ one) => one.name);
  const own = data.policies.find((/** @type {any} */ one) => one.match === topic && one.name === applied?.name) ?? null;
  const follows = data.policies.find((/** @type {any} */ one) => one.name === applied?.name);
  const draft = { ...follows, name: topic.replace(/[^A-Za-z0-9._-]/g, "-").slice(0, 64), match: topic, order: follows && Math.max(0, follows.order - 1) };
  return html`<${PutPolicy} policy=${own} version=${data.version} names=${names} close=${close} draft=${draft} />`;
}

/**
 * A field, with its meaning.
 * @param {{ name: string, kind: Kind, value: string, set: (event: any) => void }} props
 */
function Field({ name, kind, value, set }) {
  const hint = `policy-${name}`;
  const more = { "aria-describedby": hint, value, onInput: set };
  let input;
  if (Array.isArray(kind)) {
    input = html`<select ...${more}>
      ${kind.map((one) => html`<option key=${one} value=${one} selected=${one === value}>${one === "" ? t("policies.not_given") : one}</option>`)}
    </select>`;
  } else if (kind === "lines") input = html`<textarea rows="2" spellcheck="false" ...${more}></textarea>`;
  else if (kind === "number") input = html`<input type="number" min="0" step="any" ...${more} />`;
  else input = html`<input required=${name === "match"} autocapitalize="off" spellcheck="false" ...${more} />`;
  return html`<div class="field">
    <label>${t(`policy.${name}`)} ${input}</label>
    <small id=${hint}>${t(`meaning.${name}`)}</small>
  </div>`;
}

/**
 * Delete a policy.
 * @param {{ policy: any, version: number, close: () => void }} props
 */
export function DeletePolicy({ policy, version, close }) {
  const covered = useCovered(policy.match);
  const run = async (/** @type {string} */ reason) => {
    const stored = await ask("DELETE", at`v1/policies/${policy.name}`, { headers: { "If-Match": String(version), ...reasonHeader(reason) } });
    return stored.changed ? t("policies.deleted", { version: stored.version }) : t("policies.not_there");
  };
  return html`<${Act}
    title=${t("policies.delete_one", { name: policy.name })}
    verb=${t("policies.delete")}
    text=${t("policies.delete_means")}
    close=${close}
    run=${run}
    danger=${true}
    confirm=${covered.confirm}
    blocked=${covered.blocked}
  >
    <${Covered} match=${policy.match} covered=${covered} />
    <${Said} policy=${policy} />
  <//>`;
}
