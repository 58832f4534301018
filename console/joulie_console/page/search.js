// Finds a pod or a node by a part of its name. Deleted pods are found by their whole name.

import { ask } from "./api.js";
import { byId, h, name, put } from "./dom.js";

const SHOWN = 8;
const PAUSE_MS = 150;

export function search(open, moment) {
  const [input, list] = [byId("q"), byId("found")];
  let timer = 0;
  let asked = 0;

  async function look() {
    const q = input.value.trim();
    const mine = (asked += 1);
    if (!q) return hide();
    const options = await found(q).catch((error) => [{ words: error.message, act: () => {} }]);
    if (mine !== asked) return;
    put(list, options.length ? options.map(option) : h("li", { class: "empty" }, "No match."));
    list.hidden = false;
  }

  async function found(q) {
    const [pods, nodes] = await Promise.all([ask("pods", { ...moment(), q, limit: SHOWN }), ask("nodes", { ...moment(), q, limit: SHOWN })]);
    const here = [
      ...nodes.items.map((node) => ({ kind: "node", words: node.name, act: () => open.node(node.name) })),
      ...pods.items.map((pod) => ({ kind: "pod", words: `${pod.namespace}/${pod.name}`, act: () => open.pod(pod.uid) })),
    ];
    if (here.length || !q.includes("/")) return here;
    const past = await ask("decisions", { pod: q, limit: 1 });
    return past.items.map((brief) => ({ kind: "deleted", words: q, act: () => open.pod(brief.pod_uid) }));
  }

  function option({ kind, words, act }) {
    return h("li", null, h("button", { type: "button", onclick: () => choose(act) }, h("span", { class: "kind" }, kind || ""), name(words)));
  }

  function choose(act) {
    hide();
    input.value = "";
    act();
  }

  function hide() {
    list.hidden = true;
    put(list);
  }

  function walk(by) {
    const buttons = [...list.querySelectorAll("button")];
    const at = buttons.indexOf(document.activeElement) + by;
    (at < 0 ? input : buttons[Math.min(at, buttons.length - 1)])?.focus();
  }

  input.addEventListener("input", () => {
    clearTimeout(timer);
    timer = setTimeout(look, PAUSE_MS);
  });
  byId("search").addEventListener("submit", async (event) => {
    event.preventDefault();
    clearTimeout(timer);
    await look();
    list.querySelector("button")?.click();
  });
  byId("search").addEventListener("keydown", (event) => {
    if (event.key === "Escape") [hide(), input.focus()];
    else if (event.key === "ArrowDown") [walk(1), event.preventDefault()];
    else if (event.key === "ArrowUp") [walk(-1), event.preventDefault()];
  });
  byId("search").addEventListener("focusout", (event) => {
    if (!byId("search").contains(event.relatedTarget)) setTimeout(hide, 150);
  });
}
