// @ts-check
// Numbers, times and names as text.

const number = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });
/** @type {Intl.DateTimeFormatOptions} */
const SECONDS = { hour: "2-digit", minute: "2-digit", second: "2-digit" };
const clockTime = new Intl.DateTimeFormat("en-GB", SECONDS);
const dayTime = new Intl.DateTimeFormat("en-GB", { month: "short", day: "numeric", ...SECONDS });

const MINUS = "\u2212";
export const DASH = "\u2013";

/** @param {number} value */
export const count = (value) => number.format(value);

/** @typedef {{ name: string, size: number }} Unit */

/** @type {Unit[]} */
const PREFIXES = [
  { name: "M", size: 1e6 },
  { name: "k", size: 1e3 },
  { name: "", size: 1 },
];

/**
 * The unit in which a value has few digits: W, kW, MW.
 * @param {number} value
 * @param {string} base
 * @returns {Unit}
 */
export function unitOf(value, base) {
  const found = PREFIXES.find(({ size }) => Math.abs(value) >= size) || PREFIXES[2];
  return { name: found.name + base, size: found.size };
}

/** @param {number | null | undefined} value */
export function watts(value) {
  if (value === null || value === undefined || value < 0) return "unknown";
  if (value >= 1e6) return `${(value / 1e6).toFixed(2)} MW`;
  if (value >= 1e4) return `${(value / 1e3).toFixed(1)} kW`;
  return `${number.format(value)} W`;
}

/** @param {number | null | undefined} kwh */
export function energy(kwh) {
  if (kwh === null || kwh === undefined) return "unknown";
  const { name, size } = unitOf(kwh * 1000, "Wh");
  return `${((kwh * 1000) / size).toFixed(size === 1 ? 0 : 2).replace("-", MINUS)} ${name}`;
}

/**
 * The smallest and the largest value of an interval; one, if both read the same.
 * @param {{ low: number, high: number }} range
 * @param {(value: number) => string} text
 */
export function interval(range, text) {
  const low = text(range.low), high = text(range.high);
  return low === high ? low : `${low} to ${high}`;
}

/** @param {number} value @param {(value: number) => string} text */
export const lessOrMore = (value, text) =>
  value < 0 ? `${text(-value)} more` : `${text(value)} less`;

/**
 * An interval of differences in words: less or more than the baseline, never a negative saving.
 * @param {{ low: number, high: number }} range
 * @param {(value: number) => string} text
 */
export function difference({ low, high }, text) {
  if (low >= 0) return `${interval({ low, high }, text)} less`;
  if (high <= 0) return `${interval({ low: -high, high: -low }, text)} more`;
  return `${text(-low)} more to ${text(high)} less`;
}

/**
 * The range beside its median, where they read differently.
 * @param {{ low: number, mid: number, high: number }} range
 * @param {(value: number) => string} text
 */
export function variants(range, text) {
  const found = difference(range, text);
  return found === lessOrMore(range.mid, text) ? "in all variants" : found;
}

/**
 * A node above its cap has negative headroom.
 * @param {number | null | undefined} value
 */
export function percent(value) {
  return value === null || value === undefined
    ? "unknown"
    : `${value.toFixed(0).replace("-", MINUS)} %`;
}

/** @param {number | null} value null: it does not apply */
export function points(value) {
  if (value === null) return DASH;
  return value >= 0 ? `+${value.toFixed(1)}` : `${MINUS}${Math.abs(value).toFixed(1)}`;
}

/** @param {number} ms */
export function lasting(ms) {
  if (ms < 1000) return `${Math.round(ms)} ms`;
  if (ms < 120_000) return `${Math.round(ms / 1000)} s`;
  if (ms < 7_200_000) return `${Math.round(ms / 60_000)} min`;
  if (ms < 172_800_000) return `${Math.round(ms / 3_600_000)} h`;
  return `${Math.round(ms / 86_400_000)} days`;
}

/** @param {number} atMs @param {number} [nowMs] of the answer; else of this browser */
export const ago = (atMs, nowMs = Date.now()) =>
  atMs ? `${lasting(Math.max(0, nowMs - atMs))} ago` : "never";

/** @param {number} atMs */
export const clock = (atMs) => clockTime.format(atMs);

/** @param {number} atMs */
export const moment = (atMs) => (atMs ? dayTime.format(atMs) : "before the first commit");

// Control characters, and characters that change the line or the direction, are shown escaped.
// deno-lint-ignore no-control-regex
const STRANGE = /[\u0000-\u001f\u007f-\u009f\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff]/g;

/**
 * A name from the cluster as text without surprises.
 * @param {string} text
 */
export function plain(text) {
  return String(text).replace(STRANGE, (mark) => {
    const code = mark.charCodeAt(0);
    return code < 32 ? String.fromCharCode(0x2400 + code) : `\u27e8${code.toString(16)}\u27e9`;
  });
}
