// Watts over time: the measured power, and the power that the caps allow.

import { h, put, s } from "./dom.js";
import { clock, lasting, watts } from "./format.js";

const WIDE = 640;
const TALL = 132;
const LEFT = 4;
const BOTTOM = 16;
const GAP_MS = 10_000; // a longer pause interrupts the line

function path(points, x, y, column) {
  let before = -Infinity;
  return points
    .map((point) => {
      const pen = point[0] - before > GAP_MS ? "M" : "L";
      before = point[0];
      return `${pen}${x(point[0]).toFixed(1)} ${y(point[column]).toFixed(1)}`;
    })
    .join("");
}

export function spark(samples, label) {
  if (samples.length < 2) return h("p", { class: "muted" }, "Too few readings for a chart.");
  const most = Math.max(...samples.map((sample) => sample[1]), 1);
  const [from, to] = [samples[0][0], samples.at(-1)[0]];
  const x = (at) => ((at - from) / Math.max(1, to - from)) * 300;
  const y = (value) => 44 - (value / most) * 40;
  const line = samples.map((sample, at) => `${at ? "L" : "M"}${x(sample[0]).toFixed(1)} ${y(sample[1]).toFixed(1)}`).join("");
  return s("svg", { viewBox: "0 0 300 48", class: "spark", preserveAspectRatio: "none", role: "img", "aria-label": `${label}: ${watts(samples[0][1])} to ${watts(samples.at(-1)[1])} in ${lasting(to - from)}` }, s("path", { d: line, class: "line" }));
}

export function powerChart(box, points, at) {
  if (points.length < 2) {
    put(box, h("p", { class: "empty" }, "The chart begins when this console started."));
    return;
  }
  const [from, to] = [points[0][0], points.at(-1)[0]];
  const most = Math.max(...points.map((point) => point[3]), ...points.map((point) => point[2]), 1) * 1.05;
  const x = (time) => LEFT + ((time - from) / Math.max(1, to - from)) * (WIDE - 2 * LEFT);
  const y = (value) => TALL - BOTTOM - (value / most) * (TALL - BOTTOM - 8);
  const drawn = path(points, x, y, 2);
  const lines = [0.25, 0.5, 0.75, 1].map((share) => s("line", { x1: LEFT, x2: WIDE - LEFT, y1: y(most * share), y2: y(most * share), class: "grid" }));
  const past = at ? points.findLast((point) => point[1] <= at) : null;
  const marker = past ? s("line", { x1: x(past[0]), x2: x(past[0]), y1: 4, y2: TALL - BOTTOM, class: "past" }) : null;
  const label = `Measured power from ${watts(points[0][2])} to ${watts(points.at(-1)[2])} in ${lasting(to - from)}; caps allow ${watts(points.at(-1)[3])}`;
  put(
    box,
    s(
      "svg",
      { viewBox: `0 0 ${WIDE} ${TALL}`, class: "chart", role: "img", "aria-label": label, preserveAspectRatio: "none" },
      lines,
      s("path", { d: `${drawn}L${x(to)} ${TALL - BOTTOM}L${x(from)} ${TALL - BOTTOM}Z`, class: "area" }),
      s("path", { d: path(points, x, y, 3), class: "cap" }),
      s("path", { d: drawn, class: "line" }),
      marker,
    ),
    h("p", { class: "chart-feet" }, h("span", null, clock(from)), h("span", null, h("span", { class: "key-line" }), "measured ", h("span", { class: "key-cap" }), "allowed by caps"), h("span", null, clock(to))),
  );
}
