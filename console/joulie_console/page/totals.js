// The totals of the cluster, the warnings, and the age of the shown state.

import { byId, h, name, put } from "./dom.js";
import { ago, count, lasting, percent, watts } from "./format.js";

function figure(term, value, more) {
  return h("div", { class: "figure" }, h("dt", null, term), h("dd", null, h("span", { class: "big" }, value), h("span", { class: "muted" }, more)));
}

export function totals(cluster, decisionsPerSecond) {
  const { classes } = cluster;
  const share = cluster.capped_w ? (cluster.measured_w / cluster.capped_w) * 100 : null;
  const facility = cluster.it_w === null ? "no facility readings" : `hall: ${watts(cluster.it_w)} IT, ${watts(cluster.cooling_w)} cooling`;
  put(
    byId("totals"),
    figure("Measured power", watts(cluster.measured_w), `${percent(share)} of ${watts(cluster.capped_w)} allowed`),
    figure("Nodes", count(cluster.nodes), `${classes.performance} performance, ${classes.eco} eco, ${classes.draining} draining${cluster.asleep ? `, ${cluster.asleep} asleep` : ""}`),
    figure("Pods running", count(cluster.pods_running), `${count(cluster.pods_pending)} pending`),
    figure("GPUs requested", count(cluster.gpus_asked), `of ${count(cluster.gpus)}`),
    figure("Decisions", decisionsPerSecond === null ? "\u2013" : `${decisionsPerSecond.toFixed(decisionsPerSecond < 10 ? 1 : 0)}/s`, decisionsPerSecond === null ? "counted while live" : `${count(cluster.entries)} in the log`),
    figure("Trend", `${cluster.trend_w_per_min >= 0 ? "+" : "\u2212"}${watts(Math.abs(cluster.trend_w_per_min))}`, `per minute; ${facility}`),
  );
  byId("cluster-name").textContent = cluster.cluster;
  const plan = cluster.plan;
  put(byId("plan-now"), plan ? [`last plan ${ago(cluster.planned_at_ms)}, `, name(plan.policy)] : "no plan yet");
}

// The console's warnings, and those of the page itself.
export function warnings(found, own) {
  const told = [...own.map((text) => ({ level: "serious", part: "console", text })), ...found];
  const key = JSON.stringify(told.map(({ part, level }) => [part, level]));
  const box = byId("warnings");
  const shown = told.map(({ level, part, text }) => h("p", { class: `warning ${level}` }, h("strong", null, part), " ", name(text)));
  if (box.dataset.key !== key) put(box, shown);
  else shown.forEach((line, at) => line.textContent !== box.children[at].textContent && box.children[at].replaceWith(line));
  box.dataset.key = key;
}

export class Age {
  constructor() {
    this.updatedAt = 0;
    this.ageMs = 0;
    this.position = 0;
    this.connected = false;
    setInterval(() => this.show(), 1000);
  }

  update(position, ageMs) {
    this.updatedAt = performance.now();
    [this.position, this.ageMs] = [position, ageMs];
    this.show();
  }

  get ms() {
    return this.ageMs + performance.now() - this.updatedAt;
  }

  show() {
    const box = byId("age");
    const old = !this.connected || this.ms > 5000;
    box.classList.toggle("old", old);
    const state = document.body.classList.contains("past") ? "past state; newest is" : "live \u00b7";
    const text = this.updatedAt ? `${this.connected ? state : "not connected \u00b7"} position ${count(this.position)} \u00b7 ${this.ms < 2000 ? "fresh" : `${lasting(this.ms)} old`}` : "connecting";
    if (byId("age-text").textContent !== text) byId("age-text").textContent = text;
  }
}
