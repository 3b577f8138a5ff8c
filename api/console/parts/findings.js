// The problems, in the API's sentences, with links to their subjects.

import { html } from "../vendor/standalone.module.js";
import { live } from "./live.js";
import { Copy, Loading, why } from "./notices.js";
import { href } from "./router.js";
import { useStore } from "./store.js";
import { Age, Time } from "./times.js";
import { t } from "./texts.js";

/** @typedef {{ severity: string, code: string, text?: string, since?: string, topic?: string, queue?: number, node?: string, runbook: string }} Finding */

/** The states that count as due: a message in a worker's memory is still due. */
export const DUE = "due,inFlight";

/**
 * The pages with details of a finding: the name of the link's text, and the link.
 * @type {Record<string, [string, string][]>}
 */
const SEE = {
  lateness: [["findings.due", href(["messages"], { state: DUE })]],
  deadLetters: [["findings.dead", href(["dead-letters"])]],
  late: [["findings.due", href(["messages"], { state: DUE })], ["findings.queues", href(["queues"], { only: "late" })]],
  owners: [["findings.queues", href(["queues"], { only: "lacking" })]],
  circuit: [["findings.routes", href(["queues"], { see: "routes" })], ["findings.parked", href(["messages"], { state: "parked" })]],
  parked: [["findings.routes", href(["queues"], { see: "routes" })], ["findings.parked", href(["messages"], { state: "parked" })]],
  streams: [["findings.routes", href(["queues"], { see: "routes" })], ["findings.parked", href(["messages"], { state: "parked" })]],
  paused: [["findings.paused", href(["topics"], { paused: "yes" })], ["findings.who", href(["audit"], { action: "pause" })]],
  reshard: [["findings.reshard", href(["queues"], { see: "reshard" })]],
  silent: [["findings.nodes", href(["queues"], { see: "nodes" })]],
};

/**
 * Findings in the order of the API, worst first. Each keeps its place in the document while its words change, so that the
 * focus on its link stays.
 * @param {{ findings: Finding[] }} props
 */
function Findings({ findings }) {
  /** @type {Map<string, number>} */
  const alike = new Map();
  return html`<ul class="findings">
    ${findings.map((one) => {
      const about = JSON.stringify([one.code, one.topic, one.queue, one.node]);
      const n = alike.get(about) ?? 0;
      alike.set(about, n + 1);
      return html`<${FindingItem} key=${`${about} ${n}`} finding=${one} />`;
    })}
  </ul>`;
}

/** @param {{ finding: Finding }} props */
function FindingItem({ finding }) {
  const { severity, code, text, since, topic, queue, node, runbook } = finding;
  /** @type {[any, string][]} */
  const links = [];
  if (topic !== undefined) links.push([t("findings.topic", { topic }), href(["topics", topic])]);
  if (queue !== undefined) links.push([t("findings.queue", { queue }), href(["queues"], { queue })]);
  if (node !== undefined) links.push([t("findings.node", { node }), href(["queues"], { node, see: "nodes" })]);
  for (const [name, link] of SEE[code] ?? []) {
    if (!(name === "findings.queues" && queue !== undefined) && !(name === "findings.nodes" && node !== undefined)) links.push([t(name), link]);
  }
  const section = /^docs\/runbook\.md#(.+)$/.exec(runbook)?.[1];
  const word = ["critical", "warning", "info"].includes(severity) ? t(`severity.${severity}`) : severity;
  return html`<li class=${`finding ${severity}`}>
    <p class="sentence"><strong class="severity">${word}</strong>${" "}<bdi>${text ?? code}</bdi></p>
    <p class="more">
      ${since && html`<span class="age">${t("findings.since")} <${Time} at=${since} /> (<${Age} at=${since} />)</span>`}
      ${links.map(([name, link]) => html`<a key=${link} href=${link}>${name}</a>`)}
      ${
        section === undefined
          ? html`<span class="age">${t("findings.runbook")} <code>${runbook}</code> <${Copy} text=${runbook} /></span>`
          : html`<a href=${href(["runbook", section])}>${t("findings.mend")}</a>`
      }
    </p>
  </li>`;
}

/**
 * The problems found by some checks, or that there are none, or that they are unknown.
 * @param {{ codes: string[] | null, well?: any, quiet?: boolean }} props `codes` null: by all; `quiet`: no text if there is no problem
 */
export function Wrong({ codes, well, quiet = false }) {
  const { data, problem } = useStore(live);
  const found = (data?.findings ?? []).filter((/** @type {Finding} */ one) => codes === null || codes.includes(one.code));
  if (data === null && problem === null) return quiet ? null : html`<${Loading} />`;
  return html`${problem && !quiet && html`<${Unknown} />`}
    ${found.length > 0 && html`<div class=${problem ? "old" : ""}><${Findings} findings=${found} /></div>`}
    ${!problem && found.length === 0 && !quiet && html`<p class="well"><span aria-hidden="true">✓</span> ${well ?? t("findings.well")}</p>`}`;
}

/** The problems are unknown, and why: this does not mean that all is well. The footer reads it out. */
function Unknown() {
  const { data, problem } = useStore(live);
  return html`<p class="trouble">
    <strong>${t("findings.unknown")}</strong>${" "}<bdi>${problem && why(problem)}</bdi>
    ${data && html`<br />${t("findings.as_of")} <${Time} at=${data.now} /> (<${Age} at=${data.now} />).`}
  </p>`;
}
