// @ts-check
// The tiles of the overview: power now, what was saved, nodes by power state, and who waits.

import {
  ago,
  clock,
  count,
  DASH,
  energy,
  lasting,
  lessOrMore,
  moment,
  percent,
  variants,
  watts,
} from "./format.js";
import { Link } from "./parts.js";
import { model } from "./store.js";
import { html } from "./view.js";

export const BEHIND_MS = 10_000; // two passes of the ledger
const TERMS = [
  "Power now",
  "Today",
  "This month",
  "Nodes",
  "Waiting because of Joulie",
  "Pods running",
  "Decisions",
];
/** Causes of waiting that end when Joulie answers otherwise. */
const OURS = ["refused", "refused on sample", "not bound"];

/** @typedef {[value: any, more: any]} Tile */
/** @typedef {{ low: number, mid: number, high: number }} Range */

/** @param {{ term: string, value: any, more: any }} props */
const Figure = ({ term, value, more }) =>
  html`
    <div class="figure">
      <dt>${term}</dt>
      <dd><span class="big">${value}</span><span class="muted">${more}</span></dd>
    </div>
  `;

/** @param {{ cluster: any, rate: number | null }} props */
export function Totals({ cluster, rate }) {
  if (!cluster) {
    return html`<dl id="totals" aria-busy="true">
      ${
      TERMS.map((term) => html`<${Figure} key=${term} term=${term} value=${DASH} more="loading" />`)
    }
    </dl>`;
  }
  const saved = model.past ? null : model.saved;
  const figures = [
    power(cluster),
    savedTile(saved, "today"),
    savedTile(saved, "month"),
    nodes(cluster),
    waiting(cluster),
    [count(cluster.pods_running), gpus(cluster)],
    decisions(cluster, rate),
  ];
  return html`
    <dl id="totals">${figures.map(([value, more], at) =>
      html`<${Figure} key=${TERMS[at]} term=${TERMS[at]} value=${value} more=${more} />`
    )}</dl>
    <${Basis} found=${saved?.found} plan=${cluster.plan} />
  `;
}

/** @param {any} cluster @returns {Tile} */
function power(cluster) {
  const hall = cluster.it_w === null
    ? "no facility readings"
    : `hall: ${watts(cluster.it_w)} IT, ${watts(cluster.cooling_w)} cooling`;
  const most = `${watts(cluster.capped_w)} allowed to the nodes that are not asleep`;
  if (cluster.measured_w === null) {
    return [DASH, `no node has a fresh reading; ${most}; ${hall}`];
  }
  const share = cluster.capped_w ? (cluster.measured_w / cluster.capped_w) * 100 : null;
  const slope = cluster.trend_w_per_min;
  const trend = `${slope >= 0 ? "+" : "\u2212"}${
    watts(Math.abs(slope))
  } per minute over at most 5 minutes`;
  return [watts(cluster.measured_w), `${percent(share)} of ${most}; ${trend}; ${hall}`];
}

/** What pods request of cards and of units of shared cards: not the number of cards. @param {any} cluster */
function gpus({ gpus, gpu_units: units, gpus_asked: asked }) {
  const shared = units ? `, ${count(units)} of them units of shared cards` : "";
  return `${count(asked)} of ${count(gpus)} GPUs requested${shared}`;
}

/** @param {any} cluster @returns {Tile} */
function nodes({ nodes, asleep, waking, not_ready, cordoned, classes }) {
  const awake = nodes - asleep - waking - not_ready - cordoned;
  const lost = [[not_ready, "not ready"], [cordoned, "cordoned"]]
    .filter(([many]) => many)
    .map(([many, state]) => `, ${count(many)} ${state}`)
    .join("");
  const states = `${count(awake)} awake, ${count(asleep)} asleep, ${count(waking)} waking${lost}`;
  const kinds = `${count(classes.performance)} performance, ${count(classes.eco)} eco, ` +
    `${count(classes.draining)} draining`;
  return [count(nodes), `${states}; by class, asleep or not: ${kinds}`];
}

/** @param {any} cluster @returns {Tile} */
function waiting({ pods_pending: pending, asleep, waking }) {
  const { found, error } = model.waiting || {};
  if (model.past) return [DASH, `counted while live; ${count(pending)} pending`];
  if (!found) return [DASH, error || "loading"];
  const causes = asleep + waking ? [...OURS, "no room"] : OURS;
  const ours = causes.reduce((sum, cause) => sum + (found.causes[cause] || 0), 0);
  const least = found.unread ? "at least " : "";
  const link = html`<${Link} to=${{ page: "pending" }}>why</${Link}>`;
  const more = found.total
    ? html`of ${count(found.total)} pending pods: ${link}`
    : "no pod is pending";
  return [`${least}${count(ours)}`, more];
}

/** @param {any} cluster @param {number | null} rate @returns {Tile} */
function decisions({ entries, spooled }, rate) {
  if (rate === null) return [DASH, "counted while live"];
  const spools = spooled === null
    ? "it is not known how many wait in spools"
    : `${count(spooled)} wait in spools`;
  return [`${rate.toFixed(rate < 10 ? 1 : 0)}/s`, `${count(entries)} in the log, ${spools}`];
}

// --- what was saved ---------------------------------------------------------------------------

/**
 * Never a number alone, and never a negative saving.
 * @param {any} saved @param {"today" | "month"} which
 * @returns {Tile}
 */
function savedTile(saved, which) {
  const { found, error } = saved || {};
  if (!found) return [DASH, error || (model.past ? "counted while live" : "loading")];
  const period = found[which];
  if (period.meter_kwh === null) return [DASH, "the ledger holds no energy of this time"];
  const used = `${energy(period.meter_kwh)} used`;
  if (!period.saved_kwh) return [DASH, `${used}; saved is not known: ${period.why}`];
  const worths = [
    worth(period.saved_cost, found.currency || "no price"),
    worth(period.saved_kgco2e, "kg CO\u2082e"),
  ].filter(Boolean);
  const money = worths.length ? worths.join(", ") : "no price, no carbon intensity";
  const rest = period.uncompared_kwh
    ? `, ${energy(period.uncompared_kwh)} of it on days without a report`
    : "";
  const range = variants(period.saved_kwh, energy);
  return [headline(period.saved_kwh), `${range}; ${money}; ${used}${rest}`];
}

/** A figure and its unit stay on one line. @param {Range} range */
function headline({ mid }) {
  const text = energy(Math.abs(mid)).replace(" ", "\u00a0");
  return mid < 0 ? `Used ${text} more` : `Saved ${text}`;
}

/** @param {Range | null} range @param {string} unit */
const worth = (range, unit) =>
  range && lessOrMore(range.mid, (value) => `${value.toFixed(2)} ${unit}`);

/**
 * What the figures of today and this month rest on, and up to when they are complete.
 * @param {{ found: any, plan: any }} props
 */
function Basis({ found, plan }) {
  if (!found) return null;
  const { report, today, month } = found;
  const complete = found.complete_to_ms
    ? `Energy is complete up to ${clock(found.complete_to_ms)}`
    : "The ledger holds no energy yet";
  const late = found.ledger_behind_ms > BEHIND_MS
    ? `, and the ledger lacks facts of the last ${lasting(found.ledger_behind_ms)}`
    : "";
  const days = `days and months begin at midnight UTC (${clock(today.from_ms)} here)`;
  return html`<p class="muted basis" id="basis">
    ${plan ? `Preset ${plan.preset}. ` : ""}${complete}${late}; ${days}. ${against(report)}
    ${report ? "" : html`<${WhoComputes} />`}
    ${!month.unpriced_kwh || month.unpriced_kwh < month.meter_kwh ? "" : html`<${NoPrice} />`}
  </p>`;
}

/** @param {any} report */
function against(report) {
  if (!report) return "What was saved is not computed yet. ";
  const share = report.share_per_work;
  const hundred = (/** @type {number} */ value) => percent(value * 100);
  const by = share
    ? `${lessOrMore(share.mid, hundred)} per work (${variants(share, hundred)})`
    : report.why;
  return `Saved is against ${report.baseline}, kube-scheduler\u2019s default score: the metered ` +
    `energy of each day by the report of that day. The newest: ${by}; the same pods were simulated under ` +
    `${report.baseline} for ${moment(report.from_ms)} to ${moment(report.to_ms)}, computed ${
      ago(report.computed_ms)
    }.`;
}

const WhoComputes = () =>
  html`<span><code>joulie ledger</code> computes it from a minute of readings on.</span>`;

export const NoPrice = () =>
  html`<span id="no-price"> Energy has no price: set <code>GRID_SOURCE=/etc/joulie/tariff.csv</code>,
    a file with the lines <code>from,price,currency</code> and${" "}
    <code>2026-01-01,0.28,EUR</code>.</span>`;
