// The details of one node, pod or decision.

import { ask } from "./api.js";
import { spark } from "./chart.js";
import { byId, facts, h, link, name, put } from "./dom.js";
import { ago, count, moment as momentText, percent, points, watts } from "./format.js";
import { decisionLine, planLine } from "./live.js";
import { cardRows } from "./tables.js";

const TERMS = ["headroom", "cooling", "trend", "bonus", "pressure", "draining", "cards_kept", "watts", "neutral"];
const LISTED = 100;
const AGAIN_MS = 3000;

export class Detail {
  constructor(go) {
    this.go = go; // changes the URL
    this.box = byId("detail");
    this.body = byId("detail-body");
    this.title = byId("detail-title");
    this.shown = "";
    this.missing = 0; // when loading failed; 0 if it did not
    this.from = null;
    byId("close").addEventListener("click", () => this.close());
    this.box.addEventListener("keydown", (event) => event.key === "Escape" && this.close());
  }

  close() {
    this.go({ node: "", pod: "", decision: "" });
  }

  open = {
    node: (node) => this.go({ node, pod: "", decision: "" }),
    pod: (pod) => this.go({ pod, node: "", decision: "" }),
    decision: (decision) => this.go({ decision, node: "", pod: "" }),
  };

  // `moment` is the query of the position; empty for now.
  async show(now, moment) {
    const wanted = JSON.stringify([now.node, now.pod, now.decision, moment]);
    const again = wanted === this.shown;
    if (again && !this.missing) return;
    const first = !this.shown;
    this.shown = wanted;
    this.missing = 0;
    if (!(now.node || now.pod || now.decision)) return this.#hide();
    if (first || this.box.hidden) this.from = document.activeElement;
    this.box.hidden = false;
    document.body.classList.add("open");
    try {
      const parts = await this.#parts(now, moment);
      if (this.shown !== wanted) return;
      put(this.title, parts[0]);
      put(this.body, parts.slice(1));
    } catch (error) {
      if (this.shown !== wanted) return;
      this.missing = performance.now();
      put(this.title, "Not available");
      put(this.body, h("p", null, error.message));
    }
    if (!again) this.title.focus();
  }

  // Tries again after a failure: an event may have made it available.
  retry(now, moment) {
    if (this.missing && performance.now() - this.missing > AGAIN_MS) this.show(now, moment);
  }

  #hide() {
    this.shown = "";
    this.box.hidden = true;
    document.body.classList.remove("open");
    if (this.from?.isConnected) this.from.focus();
  }

  #parts(now, moment) {
    if (now.decision) return this.#decision(now.decision, "recorded");
    return now.node ? this.#node(now.node, moment) : this.#pod(now.pod, moment);
  }

  // --- a node ---------------------------------------------------------------------------------

  async #node(asked, moment) {
    const found = await ask(`nodes/${encodeURIComponent(asked)}`, moment);
    const { node, machine, transitions, earlier, plans_gone: gone, pods, cards, samples, labels } = found;
    const cap = (value) => (value === null ? "no cap" : `${value} %`);
    return [
      name(node.name),
      h("p", { class: "muted" }, name([node.cpu_model, node.gpus ? `${node.gpus} \u00d7 ${node.gpu_model || "GPU"}` : ""].filter(Boolean).join(" \u00b7 ") || "hardware unknown")),
      facts([
        ["Measured", node.measured_w === null ? `unknown; last reading ${ago(node.sampled_at_ms)}` : `${watts(node.measured_w)}, ${ago(node.sampled_at_ms)}`],
        ["Allowed by caps", `${watts(node.capped_w)} of ${watts(node.tdp_w)}`],
        ["Caps", `CPU ${cap(node.cpu_cap_pct)}, GPU ${node.gpus ? cap(node.gpu_cap_pct) : "\u2013"}`],
        ["Headroom", `${percent(node.headroom)} (${node.headroom_basis})`],
        ["Cooling stress", percent(node.cooling)],
        ["Trend", `${points(node.trend_w_per_min)} W/min`],
        ["Pods", `${node.pods}, ${node.performance_pods} of them performance`],
        ["Cores, GPUs", `${count(node.cores)}, ${node.gpus_asked.toFixed(1)} of ${node.gpus} requested`],
        ["Rack, zone", name(`${node.rack || "none"}, ${node.cooling_zone || "none"}`)],
        ["Kubernetes", `${node.ready ? "ready" : "not ready"}, ${node.schedulable ? "schedulable" : "cordoned"}`],
      ]),
      h("h3", null, "Readings"),
      spark(samples, "Measured power"),
      h("h3", null, "State"),
      this.#machine(machine),
      h("h3", null, "Transitions"),
      transitions.length || earlier ? this.#transitions(node.name, transitions, earlier) : h("p", { class: "muted" }, "No plan has changed this node."),
      gone ? h("p", { class: "muted" }, `${count(gone)} plan events have left their stream and are not shown.`) : null,
      h("h3", null, `Pods here (${pods.length})`),
      pods.length ? h("ul", { class: "plain" }, pods.slice(0, LISTED).map((pod) => h("li", null, link(`${pod.namespace}/${pod.name}`, () => this.open.pod(pod.uid)), h("span", { class: "muted" }, ` ${pod.class}, ${pod.cores} cores${pod.gpus ? `, ${pod.gpus} GPU` : ""}`)))) : h("p", { class: "muted" }, "None."),
      cards.length ? [h("h3", null, "Cards"), cardRows(cards, this.open.node, "Cards of this node")] : null,
      h("h3", null, "Labels"),
      facts(Object.entries(labels).map(([key, value]) => [name(key), name(value)])),
    ].flat();
  }

  // Its transitions; older ones are loaded on demand.
  #transitions(node, known, earlier) {
    const line = (transition) => planLine({ at_ms: transition.at_ms, transition }, null);
    const list = h("ol", { class: "lines" }, known.map(line));
    const more = h("button", { type: "button", hidden: earlier === null, onclick: () => add() }, "Earlier transitions");
    let before = earlier;
    const add = async () => {
      more.disabled = true;
      try {
        const found = await ask("plans", { node, before, limit: LISTED });
        list.append(...found.items.map((entry) => line(entry.transition)));
        before = found.next;
        more.hidden = before === null;
      } catch (error) {
        more.textContent = error.message;
      }
      more.disabled = false;
    };
    return h("div", null, list, more);
  }

  #machine({ states, now, following, waits_for: waits }) {
    const shown = states.map((each) => h("li", { class: each === now ? "now" : following.includes(each) ? "next" : null, "aria-current": each === now ? "step" : null }, each));
    const words = `Now: ${now}. Possible next: ${following.join(", ")}.`;
    return h("div", null, h("ul", { class: "machine" }, shown), h("p", { class: "muted" }, waits ? `${words} Waiting: ${waits}.` : words));
  }

  // --- a pod ----------------------------------------------------------------------------------

  async #pod(uid, moment) {
    const { pod, decisions, explanation } = await ask(`pods/${encodeURIComponent(uid)}`, moment);
    const known = pod || decisions[0];
    return [
      name(`${known.namespace}/${known.name}`),
      h("ul", { class: "because" }, explanation.map((line) => h("li", null, name(line)))),
      pod
        ? facts([
            ["Class", `${pod.class} (${pod.rule})`],
            ["Placement", pod.placement],
            ["Requests", `${pod.cores} cores, ${pod.memory_gib.toFixed(1)} GiB, ${pod.gpus} GPU`],
            ["Phase", pod.phase],
            ["Node", pod.node ? link(pod.node, () => this.open.node(pod.node)) : "none yet"],
            ["Bound", momentTextOrNone(pod.bound_at_ms)],
            ["UID", name(pod.uid)],
          ])
        : h("p", { class: "muted" }, "The pod was deleted; its decisions remain."),
      h("h3", null, "Decisions"),
      h("ol", { class: "lines" }, decisions.map((brief) => decisionLine(brief, this.open.decision))),
    ];
  }

  // --- a decision -----------------------------------------------------------------------------

  async #decision(entry, terms) {
    const found = await ask(`decisions/${encodeURIComponent(entry)}`, { terms });
    const { decision, candidates } = found;
    const scored = candidates.filter((candidate) => candidate.terms);
    return [
      `Entry ${decision.entry}: ${decision.verb}`,
      h("p", { class: "lead" }, name(decision.text), decision.reason ? [": ", name(decision.reason)] : null),
      facts([
        decision.name ? ["Pod", link(`${decision.namespace}/${decision.name}`, () => this.open.pod(decision.pod_uid))] : null,
        decision.class ? ["Class", `${decision.class} (${found.pod?.rule || ""})`] : null,
        ["When", momentText(decision.at_ms)],
        decision.view ? ["View", `position ${count(decision.view)}, ${decision.view_age_ms} ms old`] : null,
        decision.candidates ? ["Candidates", `${decision.candidates}, ${decision.refused} refused`] : null,
        found.error ? ["Error", name(found.error)] : null,
        found.cards.length ? ["Cards", found.cards.map((card) => name(card))] : null,
      ]),
      scored.length ? this.#duel(scored) : null,
      candidates.length ? this.#candidates(found, scored.length) : null,
      h("h3", null, "Settings in force"),
      facts([["Id", name(found.settings || "none")], ...Object.entries(found.values).map(([key, value]) => [key, String(value)])]),
      h("h3", null, "Place in the chain"),
      facts([["Hash", h("code", null, found.hash)], ["Previous hash", h("code", null, found.prev)]]),
    ].filter(Boolean);
  }

  #duel(scored) {
    const [winner, other] = scored;
    const rows = TERMS.filter((term) => term in winner.terms.points || (other && term in other.terms.points)).map((term) => {
      const [mine, theirs] = [winner, other].map((each) => each?.terms.points[term] ?? 0);
      const gap = mine - theirs;
      return h("tr", null, h("th", { scope: "row" }, term), h("td", { class: "n" }, points(mine)), other ? [h("td", { class: "n" }, points(theirs)), h("td", { class: "gap" }, Math.abs(gap) < 0.05 ? null : h("span", { class: gap < 0 ? "bar minus" : "bar", "width%": Math.min(60, 2 + Math.abs(gap) * 1.5) }), h("span", { class: "n" }, points(gap)))] : null);
    });
    const cut = Object.values(winner.terms.points).reduce((sum, value) => sum + value, 0) - winner.terms.score;
    const clamped = Math.abs(cut) > 0.05 ? h("p", { class: "muted" }, "Scores are clamped to 0 to 100.") : null;
    const total = h("tr", { class: "sum" }, h("th", { scope: "row" }, "score"), h("td", { class: "n" }, winner.terms.score.toFixed(1)), other ? [h("td", { class: "n" }, other.terms.score.toFixed(1)), h("td", { class: "gap" }, h("span", { class: "n" }, points(winner.terms.score - other.terms.score)))] : null);
    const head = ["Term", winner.node, ...(other ? [other.node, "Difference"] : [])].map((label) => h("th", { scope: "col" }, name(label)));
    return h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "The winner and the runner-up" }, h("table", { class: "duel" }, h("caption", null, "The winner and the runner-up, in points"), h("thead", null, h("tr", null, head)), h("tbody", null, rows, total)), clamped);
  }

  #candidates(found, explained) {
    const { candidates, decision } = found;
    const scores = decision.verb === "prioritize";
    const rows = candidates.slice(0, LISTED).map((each) =>
      h("tr", null, h("th", { scope: "row" }, link(each.node, () => this.open.node(each.node))), scores ? [h("td", { class: "n" }, each.answer ?? ""), h("td", null, each.loss ? (each.loss.term ? `${each.loss.behind.toFixed(1)} behind: ${each.loss.term}` : "level") : each.terms ? "the winner" : ""), h("td", { class: "n" }, each.terms ? `+${each.terms.marginal_w.toFixed(0)} W` : "")] : h("td", null, each.verdict)),
    );
    const labels = scores ? ["Node", "Answer", "Why behind", "Would draw"] : ["Node", "Verdict"];
    const more = candidates.length > LISTED ? h("p", { class: "muted" }, `${candidates.length - LISTED} more are in the API's response.`) : null;
    return h(
      "div",
      null,
      h("h3", null, `Candidates (${candidates.length})`),
      scores && explained < candidates.length ? h("button", { type: "button", onclick: (event) => this.#computeAll(event.target, decision.entry) }, "Compute every term again") : null,
      found.same_digest === null ? null : h("p", { class: found.same_digest ? "good" : "bad" }, found.same_digest ? "Recomputed from the facts of that position: equal to the last bit." : "Recomputed, and NOT equal: run joulie replay."),
      h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "Candidates" }, h("table", null, h("caption", { class: "unseen" }, "Candidates"), h("thead", null, h("tr", null, labels.map((label) => h("th", { scope: "col" }, label)))), h("tbody", null, rows))),
      more,
    );
  }

  async #computeAll(button, entry) {
    button.disabled = true;
    button.textContent = "Computing\u2026";
    try {
      const [title, ...rest] = await this.#decision(entry, "all");
      put(this.title, title);
      put(this.body, rest);
    } catch (error) {
      button.textContent = error.message;
    }
  }
}

const momentTextOrNone = (atMs) => (atMs ? momentText(atMs) : "not yet");
