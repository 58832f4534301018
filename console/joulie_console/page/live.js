// Lists of decisions and plans. While a list is paused, new lines are counted and not shown.

import { byId, h, name, put } from "./dom.js";
import { clock } from "./format.js";

const SHOWN = 60;
const VERBS = { filter: "filter", prioritize: "score", bind: "bind", preempt: "preempt", outcome: "outcome", settings: "settings", unreadable: "unreadable" };

export function decisionLine(brief, open) {
  const why = brief.loss && brief.loss.term ? `${brief.runner_up} lost ${brief.loss.points.toFixed(1)} by ${brief.loss.term}` : "";
  return h(
    "li",
    { class: `line ${brief.verb}${brief.refused ? " refused" : ""}` },
    h(
      "button",
      { type: "button", class: "row", onclick: () => open(brief.entry), "data-entry": brief.entry },
      h("span", { class: "when" }, clock(brief.at_ms)),
      h("span", { class: "verb" }, VERBS[brief.verb] || brief.verb),
      h("span", { class: "pod" }, brief.name ? name(`${brief.namespace}/${brief.name}`) : null),
      brief.class ? h("span", { class: `chip ${brief.class}` }, brief.class === "performance" ? "perf" : "std") : null,
      h("span", { class: "text" }, brief.winner ? [name(brief.winner, "strong"), brief.score === null ? null : h("span", { class: "score" }, brief.score.toFixed(1)), why ? h("span", { class: "muted" }, " ", name(why)) : null] : name(brief.refused ? `${brief.text}: ${brief.reason}` : brief.text)),
    ),
  );
}

export function planLine(entry, openNode) {
  if (entry.plan) {
    const { plan, changes, because } = entry.plan;
    return h("li", { class: "line plan" }, h("span", { class: "row" }, h("span", { class: "when" }, clock(entry.at_ms)), h("span", { class: "verb" }, "plan"), h("span", { class: "text" }, name(plan, "strong"), ` ${changes} change(s): `, name(because))));
  }
  const { node, to, because } = entry.transition;
  const parts = [h("span", { class: "when" }, clock(entry.at_ms)), h("span", { class: "verb" }, "node"), h("span", { class: "text" }, name(node, "strong"), " \u2192 ", name(to), because ? h("span", { class: "muted" }, " ", name(because)) : null)];
  const row = openNode ? h("button", { type: "button", class: "row", onclick: () => openNode(node) }, parts) : h("span", { class: "row" }, parts);
  return h("li", { class: "line transition" }, row);
}

// A list with the newest line on top; the lines of one frame are added together.
export class Lines {
  constructor(id, make, number, empty) {
    this.list = byId(id);
    this.make = make;
    this.number = number;
    this.meanwhile = [];
    this.empty = empty;
    this.waiting = [];
    this.paused = false;
    this.held = 0;
    this.set([]);
  }

  // From here to `set`, received events may be newer than the list that is loading.
  loading() {
    this.meanwhile = [];
  }

  set(items) {
    const newest = items.length ? this.number(items[0]) : -1;
    const later = this.meanwhile.filter((item) => this.number(item) > newest).reverse();
    this.meanwhile = [];
    this.waiting = [];
    const all = [...later, ...items].slice(0, SHOWN);
    if (all.length) put(this.list, all.map(this.make));
    else put(this.list, h("li", { class: "empty" }, this.empty));
  }

  add(item) {
    if (this.paused) {
      this.held += 1;
      return;
    }
    if (!this.waiting.length) requestAnimationFrame(() => this.#show());
    this.waiting.push(item);
    this.meanwhile = [...this.meanwhile, item].slice(-SHOWN);
  }

  #show() {
    const fresh = this.waiting.splice(0).slice(-SHOWN).reverse().map(this.make);
    if (!fresh.length) return;
    if (this.list.firstElementChild?.classList.contains("empty")) put(this.list);
    // Keeps the scroll position.
    const kept = this.list.scrollTop > 4 ? this.list.scrollHeight : 0;
    this.list.prepend(...fresh);
    while (this.list.childElementCount > SHOWN) this.list.lastElementChild.remove();
    if (kept) this.list.scrollTop += this.list.scrollHeight - kept;
  }
}
