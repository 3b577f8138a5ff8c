// Deliveries per second of each route: computed by the page from the totals of nodes that each overview has.

import { html } from "../vendor/standalone.module.js";
import { Chart } from "./chart.js";
import { live } from "./live.js";
import { rate } from "./numbers.js";
import { makeStore, useStore } from "./store.js";
import { t } from "./texts.js";
import { ms } from "./times.js";

/** @typedef {{ at: number, rates: Record<string, number | null> }} Sample  `rates` by route; null: unknown */

/** The number of samples that are kept, one for each report of a node. */
const MOST = 300;
/** ms between two reports that are compared: less would make the rate of a few messages a peak. */
const LEAST = 1_000;
/** ms that an earlier report must be back to count as a new clock: another API process may have an older report. */
const BACK = 60_000;
/** ms after which the report of a node that is gone is forgotten. */
const KEPT = 600_000;

/** The reports that were compared last, by route and node. @type {Map<string, { since: string | null, seen: number, delivered: number, rate: number | null }>} */
const reports = new Map();

/** The samples since a page that shows them was first opened, the oldest first. @type {import("./store.js").Store<Sample[]>} */
const samples = makeStore(/** @type {Sample[]} */ ([]));

/**
 * The rate of a node, and whether it has reported since the last time.
 * @param {string} route
 * @param {{ node: string, since: string | null, seen: string, delivered: number | null }} report
 * @returns {[number | null, boolean]}
 */
function compare(route, { node, since, seen: text, delivered }) {
  const key = `${route} ${node}`;
  const before = reports.get(key);
  const seen = ms(text) ?? 0;
  if (delivered === null) return [null, false];
  // A node that has started again counts from zero.
  const again = before === undefined || before.since !== since || (seen >= before.seen && delivered < before.delivered);
  if (again || seen < before.seen - BACK) {
    reports.set(key, { since, seen, delivered, rate: null });
    return [null, before !== undefined];
  }
  if (seen - before.seen < LEAST) return [before.rate, false];
  const found = ((delivered - before.delivered) * 1_000) / (seen - before.seen);
  reports.set(key, { since, seen, delivered, rate: found });
  return [found, true];
}

function take() {
  const { data, problem } = live.get();
  if (!data?.routes || problem !== null) return;
  const at = ms(data.now) ?? 0;
  let news = false;
  /** @type {Sample["rates"]} */
  const rates = {};
  for (const { name, deliveredBy } of data.routes) {
    /** @type {(number | null)[]} */
    const found = [];
    for (const report of deliveredBy) {
      const [one, isNew] = compare(name, report);
      found.push(one);
      news ||= isNew;
    }
    rates[name] = found.length === 0 || found.includes(null) ? null : found.reduce((/** @type {number} */ sum, one) => sum + (one ?? 0), 0);
  }
  for (const [key, one] of reports) if (at - one.seen > KEPT) reports.delete(key);
  if (news) samples.set([...samples.get().filter((one) => one.at < at), { at, rates }].slice(-MOST));
}

live.subscribe(take);
take();

/** The samples, as a component draws them. */
export function useDeliveries() {
  return useStore(samples);
}

/**
 * The last rate of a route, null if it is unknown.
 * @param {Sample[]} all
 * @param {string} route
 */
export function lastRate(all, route) {
  return all.at(-1)?.rates[route] ?? null;
}

/**
 * The chart of a route.
 * @param {{ route: string, samples: Sample[] }} props
 */
export function Deliveries({ route, samples: all }) {
  const values = all.map((one) => one.rates[route] ?? null);
  return html`<${Chart} name=${t("deliveries.of", { route })} times=${all.map((one) => one.at)} height=${140} series=${[{ name: t("overview.rate"), values, text: rate }]} />`;
}
