// The nodes as a table with pages, and the table of cards.

import { ask } from "./api.js";
import { byId, h, link, name, put } from "./dom.js";
import { count, percent, points, watts } from "./format.js";

const PAGE = 50;
const WORDS = 2; // columns of text; the others are numbers
const COLUMNS = [
  ["name", "Node"],
  ["", "Class"],
  ["headroom", "Headroom"],
  ["measured", "Measured"],
  ["", "Cap"],
  ["trend", "Trend, W/min"],
  ["cooling", "Cooling"],
  ["gpus", "GPUs"],
  ["pods", "Pods"],
];

function row(node, open) {
  return h(
    "tr",
    null,
    h("th", { scope: "row" }, link(node.name, () => open(node.name))),
    h("td", null, node.power_state === "awake" ? node.class : node.power_state),
    h("td", { class: "n" }, percent(node.headroom)),
    h("td", { class: "n" }, watts(node.measured_w)),
    h("td", { class: "n" }, watts(node.capped_w)),
    h("td", { class: "n" }, points(node.trend_w_per_min)),
    h("td", { class: "n" }, percent(node.cooling)),
    h("td", { class: "n" }, node.gpus ? `${node.gpus_asked.toFixed(1)} of ${node.gpus}` : "\u2013"),
    h("td", { class: "n" }, count(node.pods)),
  );
}

export async function nodeTable(now, moment, { open, go }) {
  const offset = Number(now.offset) || 0;
  const found = await ask("nodes", { ...moment, sort: now.sort, order: now.order, limit: PAGE, offset });
  const head = COLUMNS.map(([key, label], place) => {
    const kind = place < WORDS ? null : "n";
    if (!key) return h("th", { scope: "col", class: kind }, label);
    const sorted = now.sort === key;
    const order = sorted && now.order === "asc" ? "desc" : "asc";
    return h("th", { scope: "col", class: kind, "aria-sort": sorted ? `${now.order}ending` : "none" }, h("button", { type: "button", class: "link", "data-sort": key, onclick: () => go({ sort: key, order, offset: 0 }) }, label));
  });
  const last = Math.min(found.total, offset + found.items.length);
  const held = document.activeElement?.dataset?.sort;
  put(
    byId("table-view"),
    h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "Nodes as a table" }, h("table", null, h("caption", { class: "unseen" }, "Nodes"), h("thead", null, h("tr", null, head)), h("tbody", null, found.items.map((node) => row(node, open))))),
    h("p", { class: "pager" }, h("button", { type: "button", disabled: offset === 0, onclick: () => go({ offset: Math.max(0, offset - PAGE) }) }, "Earlier"), h("span", null, found.total ? `${offset + 1} to ${last} of ${count(found.total)}` : "no nodes"), h("button", { type: "button", disabled: found.next === null, onclick: () => go({ offset: found.next }) }, "Later")),
  );
  if (held) byId("table-view").querySelector(`[data-sort="${held}"]`)?.focus();
}

export function cardRows(cards, open, label) {
  const rows = cards.map((card) =>
    h(
      "tr",
      null,
      h("th", { scope: "row" }, name(card.uuid)),
      h("td", null, link(card.node, () => open(card.node))),
      h("td", null, name(card.model)),
      h("td", { class: "n" }, `${count(card.allocated_mb / 1024)} of ${count(card.total_mb / 1024)} GiB`),
      h("td", null, card.claims.length ? card.claims.map((claim) => name(`${claim.namespace}/${claim.name}`)) : "free"),
      h("td", null, card.healthy ? "healthy" : h("strong", { class: "bad" }, "not healthy")),
    ),
  );
  const head = ["Card", "Node", "Model", "Memory", "Claimed by", "Health"].map((label) => h("th", { scope: "col" }, label));
  return h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": label }, h("table", null, h("caption", { class: "unseen" }, "GPU cards"), h("thead", null, h("tr", null, head)), h("tbody", null, rows)));
}

let shownCards = "";

export async function gpuCards(moment, open) {
  const found = await ask("gpus", { ...moment, limit: 100 });
  const cards = JSON.stringify([found.total, found.items]);
  // Drawing the table again would remove the focus from it.
  if (cards === shownCards || byId("gpus").contains(document.activeElement)) return;
  shownCards = cards;
  byId("gpus-now").textContent = found.total ? `${count(found.total)} cards` : "";
  put(byId("gpus"), found.total ? cardRows(found.items, open, "GPU cards as a table") : h("p", { class: "empty" }, "No cards are known; nodes only count their GPUs."));
}
