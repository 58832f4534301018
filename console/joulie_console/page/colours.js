// @ts-check
// Colour ramps whose lightness also changes from end to end, so that they work without colour.
// Dark: viridis. Light: YlGnBu. Classes: Okabe and Ito's palette, each with a mark of its own.

const RAMPS = {
  dark: ["#4a2a77", "#44508f", "#33698f", "#25888e", "#2fa985", "#86d04a", "#fde725"],
  light: ["#f3f3b8", "#c9e4ae", "#8fd0b0", "#4fb3b8", "#2a88b0", "#23569c", "#14246b"],
};
const CLASS_COLOURS = {
  dark: ["#5b6269", "#5ab4ec", "#2fb98d", "#eda62b"],
  light: ["#a7adb3", "#0072b2", "#009e73", "#e08a00"],
};
const UNKNOWN_COLOURS = { dark: "#2b3035", light: "#dfe2e5" };
// Nodes that a plan has put to sleep, and those that wake up: in every colouring, with an outline.
const SLEEP_COLOURS = {
  dark: { asleep: "#141f45", waking: "#5f79d6", outline: "#8ea3ee" },
  light: { asleep: "#d3daf7", waking: "#6d84d8", outline: "#3d52ab" },
};
// Of the others, where the map shows how full they are.
const STATE_COLOURS = {
  dark: { empty: "#242a30", filling: "#2fa985", full: "#f4c661" },
  light: { empty: "#e6e9e7", filling: "#3aa187", full: "#b26a00" },
};
const STEPS = 64;

function isDark() {
  const chosen = document.documentElement.dataset.theme;
  return chosen ? chosen === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
}

/** @returns {"dark" | "light"} */
export const shade = () => (isDark() ? "dark" : "light");

/**
 * @param {string} from
 * @param {string} to
 * @param {number} share
 */
function mixed(from, to, share) {
  const parts = [1, 3, 5].map((at) => {
    const [a, b] = [from, to].map((colour) => parseInt(colour.slice(at, at + 2), 16));
    return Math.round(a + (b - a) * share);
  });
  return `rgb(${parts.join(" ")})`;
}

/** @param {string[]} stops */
function stepped(stops) {
  return Array.from({ length: STEPS }, (_, step) => {
    const place = (step / (STEPS - 1)) * (stops.length - 1);
    const at = Math.min(stops.length - 2, Math.floor(place));
    return mixed(stops[at], stops[at + 1], place - at);
  });
}

const steps = { dark: stepped(RAMPS.dark), light: stepped(RAMPS.light) };

export const ramp = () => steps[shade()];
export const classColours = () => CLASS_COLOURS[shade()];
export const sleepColours = () => SLEEP_COLOURS[shade()];
export const stateColours = () => STATE_COLOURS[shade()];
export const unknownColour = () => UNKNOWN_COLOURS[shade()];

/** @param {string} role */
export const roleColour = (role) =>
  getComputedStyle(document.documentElement).getPropertyValue(`--${role}`);

/**
 * `least` and `most` are what the ends of the scale mean.
 * @typedef {{ column: string, low: number, high: number, unit: string, least: string,
 *   most: string }} Scale
 */

/**
 * The scale of each colouring: its column, its range, and its unit. High 0: the largest value.
 * @type {Record<string, Scale>}
 */
const SCALES = {
  headroom: {
    ...{ column: "headroom", low: 0, high: 100, unit: "%" },
    ...{ least: "none of the cap is free", most: "all of the cap is free" },
  },
  cooling: {
    ...{ column: "cooling", low: 0, high: 100, unit: "%" },
    ...{ least: "no cooling stress", most: "highest cooling stress" },
  },
  watts: {
    ...{ column: "watts", low: 0, high: 0, unit: "W" },
    ...{ least: "no power", most: "measured power" },
  },
  gpu: {
    ...{ column: "gpu", low: 0, high: 100, unit: "%" },
    ...{ least: "no GPU is requested", most: "all GPUs are requested" },
  },
};

/**
 * @param {string} kind
 * @param {any} columns
 * @returns {Scale}
 */
export function scaleOf(kind, columns) {
  const scale = SCALES[kind] || SCALES.headroom;
  if (scale.high) return scale;
  const most = columns.watts.reduce(
    (/** @type {number} */ high, /** @type {number} */ value) => Math.max(high, value),
    100,
  );
  return { ...scale, high: Math.ceil(most / 100) * 100 };
}

/**
 * @param {number} value
 * @param {Scale} scale
 * @param {string[]} colours
 * @param {string} unknown
 */
export function colourOf(value, scale, colours, unknown) {
  if (value < 0) return unknown;
  const share = (value - scale.low) / (scale.high - scale.low);
  return colours[Math.max(0, Math.min(STEPS - 1, Math.round(share * (STEPS - 1))))];
}
