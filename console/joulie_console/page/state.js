// The selection, stored in the URL: a link restores it.

const DEFAULTS = { colour: "headroom", group: "none", view: "map", at: "", verb: "", node: "", pod: "", decision: "", sort: "name", order: "asc", offset: "0" };
const listeners = [];

export function state() {
  const given = new URLSearchParams(location.search);
  return Object.fromEntries(Object.entries(DEFAULTS).map(([key, value]) => [key, given.get(key) ?? value]));
}

export function change(changes, { replace = false } = {}) {
  const next = { ...state(), ...changes };
  const kept = Object.entries(next).filter(([key, value]) => String(value) !== DEFAULTS[key]);
  const query = new URLSearchParams(kept).toString();
  const url = query ? `?${query}` : location.pathname;
  if (url !== (location.search || location.pathname)) {
    history[replace ? "replaceState" : "pushState"](null, "", url);
    notify();
  }
}

export function onChange(listener) {
  listeners.push(listener);
}

export function notify() {
  const now = state();
  for (const listener of listeners) listener(now);
}

addEventListener("popstate", notify);
