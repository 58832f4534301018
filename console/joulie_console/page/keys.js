// @ts-check
// Keys that work anywhere on the page, except in a field for text.

import { change, state } from "./state.js";
import { update } from "./store.js";

/** Changes of the selection that close what is open in the panel. */
export const closing = { node: "", pod: "", decision: "" };

export const leavePast = () => change({ at: "", time: "" });

/** What is open is closed first; then the past is left. */
function escape() {
  const now = state();
  if (now.node || now.pod || now.decision) change(closing);
  else if (now.at) leavePast();
}

export const showKeys = () => update({ help: true });

/** @type {Record<string, () => void>} */
const KEYS = {
  Escape: escape,
  "/": () => document.getElementById("q")?.focus(),
  "?": showKeys,
};

/** @param {KeyboardEvent} event */
function isTyping({ target }) {
  const { tagName, type } = /** @type {HTMLInputElement} */ (target);
  return (tagName === "INPUT" && type !== "range") || tagName === "SELECT";
}

/** @param {KeyboardEvent} event */
function pressed(event) {
  const hasModifier = event.ctrlKey || event.metaKey || event.altKey;
  if (event.defaultPrevented || hasModifier || document.querySelector("dialog[open]")) return;
  const act = KEYS[event.key];
  if (!act || isTyping(event)) return;
  event.preventDefault();
  act();
}

export const listenToKeys = () => addEventListener("keydown", pressed);
