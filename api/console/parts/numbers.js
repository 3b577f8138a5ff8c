// Numbers and durations in the language of the reader. An unknown one is not zero.

import { language } from "./texts.js";

export const UNKNOWN = "–";

/** The ms from which a message is late, and very late. */
export const LATE = 1_000;
export const VERY_LATE = 15_000;

/** @type {Map<string, Intl.NumberFormat>} */
const made = new Map();

/**
 * @param {Intl.NumberFormatOptions} options
 * @returns {Intl.NumberFormat}
 */
function formatter(options) {
  const key = language.get() + JSON.stringify(options);
  let one = made.get(key);
  if (one === undefined) made.set(key, (one = new Intl.NumberFormat(language.get(), options)));
  return one;
}

/**
 * An integer.
 * @param {number | null | undefined} n
 */
export function count(n) {
  return n === null || n === undefined ? UNKNOWN : formatter({ maximumFractionDigits: 0 }).format(n);
}

/**
 * A short number, for axes: 1.2M.
 * @param {number} n
 */
export function compact(n) {
  return formatter({ notation: "compact", maximumFractionDigits: 1 }).format(n);
}

/**
 * A number per second, which may be less than one, but is then not zero.
 * @param {number | null | undefined} n
 */
export function rate(n) {
  if (n === null || n === undefined) return UNKNOWN;
  const text = formatter({ maximumFractionDigits: n < 10 ? 2 : 0 });
  return n > 0 && n < 0.01 ? `< ${text.format(0.01)}` : text.format(n);
}

/**
 * A size in binary units: 1.5 GiB.
 * @param {number | null | undefined} n bytes
 */
export function bytes(n) {
  if (n === null || n === undefined) return UNKNOWN;
  const power = Math.min(4, Math.floor(Math.log2(Math.max(1, n)) / 10));
  return `${formatter({ maximumSignificantDigits: 3 }).format(n / 1_024 ** power)} ${["B", "KiB", "MiB", "GiB", "TiB"][power]}`;
}

/**
 * A part of something in percent.
 * @param {number | null} n 1 is all
 */
export function share(n) {
  return n === null ? UNKNOWN : formatter({ style: "percent", maximumFractionDigits: 0 }).format(n);
}

/** @type {[number, string][]} */
const UNITS = [
  [86_400_000, "day"],
  [3_600_000, "hour"],
  [60_000, "minute"],
  [1_000, "second"],
  [1, "millisecond"],
];

/**
 * A duration by its two largest units: 1 h 5 min; below ten seconds to the ms, and below ten ms to a tenth.
 * @param {number | null | undefined} ms
 */
export function duration(ms) {
  if (ms === null || ms === undefined) return UNKNOWN;
  const sign = ms < 0 ? "−" : "";
  if (Math.abs(ms) < 10) return sign + unit(Math.abs(ms), "millisecond", 1);
  let left = Math.abs(Math.round(ms));
  if (left < 1_000) return sign + unit(left, "millisecond");
  if (left < 10_000) return sign + unit(left / 1_000, "second", 3);
  left = Math.round(left / 1_000) * 1_000;
  const parts = [];
  for (const [size, name] of UNITS) {
    const n = Math.floor(left / size);
    if (n > 0) parts.push(unit(n, name));
    else if (parts.length) break;
    left -= n * size;
    if (parts.length === 2) break;
  }
  return sign + parts.join(" ");
}

/**
 * @param {number} n
 * @param {string} name
 * @param {number} [digits]
 */
function unit(n, name, digits = 0) {
  return formatter({ style: "unit", unit: name, unitDisplay: "short", maximumFractionDigits: digits }).format(n);
}
