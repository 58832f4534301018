// @ts-check
// Written by tests/kit/page_vocabulary.py: `make page`.

export const CLASSES = ["unknown", "performance", "eco", "draining"];
export const POWER_STATES = ["awake", "asleep", "waking", "not ready", "cordoned"];
export const UNKNOWN = -1;
export const VERBS = [
  "filter",
  "prioritize",
  "preempt",
  "bind",
  "outcome",
  "fallback",
  "dropped",
  "settings",
  "promise-key",
  "promise",
  "set-back",
  "unreadable",
];
export const TERMS = [
  "headroom",
  "cooling",
  "trend",
  "bonus",
  "pressure",
  "draining",
  "packing",
  "wishes",
  "cards_kept",
  "devices",
  "gang",
  "over_cap",
  "watts",
  "neutral",
];
export const TERM_HEADS = [
  "headroom",
  "cooling",
  "trend",
  "bonus",
  "pressure",
  "draining",
  "packing",
  "wishes",
  "cards kept",
  "devices",
  "gang",
  "over cap",
  "watts",
  "neutral",
];
export const SLEEPING_POLICY = "consolidate_and_sleep";
export const SILENT_MS = 2000;
export const GONE_MS = 15000;
export const ENERGY_BY = ["node", "plan", "namespace", "workload", "pod", "card"];
export const NOT_SHARED = "(free)";
export const NO_PLAN = "(none)";
export const NOT_ON_CARDS = "(no card)";
