// @ts-check
// The selection, stored in the URL: a link restores it, and the back button returns to it.

/** The names of the selection, with the values that the URL omits. */
const DEFAULTS = {
  page: "",
  at: "",
  time: "",
  node: "",
  pod: "",
  decision: "",
  colour: "", // by the preset in force
  group: "none",
  view: "map",
  verb: "",
  sort: "name",
  order: "asc",
  offset: "0",
  by: "namespace",
  hours: "24",
};

/** @typedef {typeof DEFAULTS} Selection */

/** @type {Array<(now: Selection) => void>} */
const listeners = [];

/** @returns {Selection} */
export function state() {
  const given = new URLSearchParams(location.search);
  const pairs = Object.entries(DEFAULTS).map(([key, value]) => [key, given.get(key) ?? value]);
  return Object.fromEntries(pairs);
}

/**
 * The address of the page with these changes.
 * @param {Record<string, string | number>} changes
 */
export function address(changes) {
  const next = Object.entries({ ...state(), ...changes });
  const kept = next
    .map(([key, value]) => [key, String(value)])
    .filter(([key, value]) => value !== DEFAULTS[/** @type {keyof Selection} */ (key)]);
  const query = new URLSearchParams(kept).toString();
  return query ? `?${query}` : location.pathname;
}

/**
 * @param {Record<string, string | number>} changes
 * @param {{ replace?: boolean }} [how]
 */
export function change(changes, { replace = false } = {}) {
  const url = address(changes);
  if (url === (location.search || location.pathname)) return;
  history[replace ? "replaceState" : "pushState"](null, "", url);
  notify();
}

/** @param {(now: Selection) => void} listener */
export function onChange(listener) {
  listeners.push(listener);
}

export function notify() {
  const now = state();
  for (const listener of listeners) listener(now);
}

addEventListener("popstate", notify);
