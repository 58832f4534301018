// @ts-check
// Power and energy over time; the shares of namespaces, workloads, nodes, cards, plans and pods; and
// what was saved.

import { Chart } from "./chart.js";
import { ago, count, energy, lasting, lessOrMore, moment, percent, variants } from "./format.js";
import { Choice, Failure, heads, Name, NodeLink, Skeleton, Table } from "./parts.js";
import { model } from "./store.js";
import { BEHIND_MS, NoPrice } from "./tiles.js";
import { html } from "./view.js";
import { ENERGY_BY, NO_PLAN, NOT_ON_CARDS, NOT_SHARED } from "./vocabulary.js";

const HOUR_S = 3600;
const PERIODS = [
  ["1", "last hour"],
  ["6", "last 6 hours"],
  ["24", "last day"],
  ["168", "last 7 days"],
  ["720", "last 30 days"],
];
/** @type {import("./chart.js").Series[]} */
const POWER = [
  { label: "all meters", role: "accent", filled: true, stepped: true },
  { label: "idle", role: "muted", dashed: true, stepped: true },
];
/** @type {import("./chart.js").Series[]} */
const ENERGY = [
  { label: "all meters", role: "accent", filled: true },
  { label: "idle", role: "muted", dashed: true },
];

/** @typedef {import("./state.js").Selection} Selection */

/** @param {{ now: Selection }} props */
export function Energy({ now }) {
  const { found, error } = model.energy || {};
  return html`<section class="card page-card" aria-labelledby="energy-title">
    <div class="card-head">
      <h2 id="energy-title" tabindex="-1">Energy</h2>
      <div class="controls">
        <${Choice} label="Period" name="hours" value=${now.hours} options=${PERIODS} />
        <${Choice} label="By" name="by" value=${now.by}
          options=${ENERGY_BY.map((by) => [by, by])} />
      </div>
    </div>
    ${error && html`<${Failure} text=${error} />`}
    ${!found && !error && html`<${Skeleton} what="the energy of the period" lines=${10} />`}
    ${
    found && !found.series.length && html`<p class="empty">
      The ledger holds no energy of this period. It is folded by the component “ledger”.</p>`
  }
    ${found && found.series.length > 0 && html`<${Report} found=${found} by=${now.by} />`}
  </section>`;
}

/** @param {{ found: any, by: string }} props */
function Report({ found, by }) {
  return html`
    <p class="muted">${`${moment(found.from_ms)} to ${moment(found.to_ms)}; complete up to ${
      moment(found.complete_to_ms)
    } (position ${count(found.folded_to)})`}</p>
    ${found.ledger_behind_ms > BEHIND_MS &&
      html`<${Failure} text=${`The ledger lacks facts of the last ${
        lasting(found.ledger_behind_ms)
      }: later energy is missing here.`} />`}
    <${Figures} found=${found} />
    <div class="charts">
      <div>
        <h3>Power</h3>
        <${Chart} label="Average power of each interval" axis="Power" base="W"
          data=${charts(found).power} series=${POWER} />
      </div>
      <div>
        <h3>Energy since the start of the period</h3>
        <${Chart}
          label="Energy since the start of the period" axis="Energy" base="Wh"
          data=${charts(found).energy} series=${ENERGY} />
      </div>
    </div>
    <h3>Saved</h3>
    <${Saved} period=${found.saved_in_period} report=${found.saved}
      currency=${found.currency} />
    <h3>${`Shares by ${by}`}</h3>
    <${Shares} found=${found} by=${by} />
  `;
}

// --- the whole period -------------------------------------------------------------------------

/** @param {{ found: any }} props */
function Figures({ found }) {
  const { meter_kwh: meter, modelled_kwh: modelled, currency } = found;
  const part = (/** @type {number} */ kwh) => `${percent(meter ? (kwh / meter) * 100 : 0)} of it`;
  /** @type {Array<[string, string, string]>} */
  const rows = [
    [
      "All meters",
      energy(meter),
      `${energy(meter - modelled)} measured, ${energy(modelled)} modelled`,
    ],
    ["Pods, above idle", energy(found.pods_kwh), part(found.pods_kwh)],
    ["Idle", energy(found.idle_kwh), part(found.idle_kwh)],
    [
      "Unknown",
      energy(found.unknown_kwh),
      `estimated over ${found.unknown_node_hours.toFixed(1)} node hours; in no other figure`,
    ],
  ];
  if (found.cost !== null) {
    const rest = `${energy(found.unpriced_kwh)} without a price`;
    rows.push(["Cost", `${found.cost.toFixed(2)} ${currency}`, rest]);
  }
  if (found.kgco2e !== null) {
    const rest = `${energy(found.unweighed_kwh)} without an intensity`;
    rows.push(["Carbon", `${found.kgco2e.toFixed(2)} kg CO\u2082e`, rest]);
  }
  return html`
    <${FigureList} id="energy-figures" rows=${rows} />
    ${found.cost === null && html`
      <p class="muted">
        <${NoPrice} />
      </p>
    `}
  `;
}

/** @param {{ id: string, rows: Array<[string, string, string]> }} props */
function FigureList({ id, rows }) {
  return html`<dl class="figures" id=${id}>${
    rows.map(([term, value, more]) =>
      html`
        <div key=${term} class="figure">
          <dt>${term}</dt>
          <dd><span class="big">${value}</span><span class="muted">${more}</span></dd>
        </div>
      `
    )
  }</dl>`;
}

// --- what was saved ---------------------------------------------------------------------------

/**
 * Never a number alone: the interval over all variants, against what, of which time. The figure is
 * that of the tiles of the overview: the metered energy by the share per work of the report. What
 * the report simulated is named.
 * @param {{ period: any, report: any, currency: string }} props
 */
function Saved({ period, report, currency }) {
  if (!report) {
    return html`<p class="empty" id="saved">Not computed yet. A saving is a difference to something
      that did not happen: <code>joulie ledger</code> has the same pods simulated under
      kube-scheduler’s default score, from a minute of readings on; so does${" "}
      <code>joulie report</code>.</p>`;
  }
  if (!period?.saved_kwh) {
    return html`<p class="empty" id="saved">${`Not known for this period: ${
      period ? period.why : "the ledger holds no energy of it"
    }.`}</p>`;
  }
  const hundred = (/** @type {number} */ share) => percent(share * 100);
  const plain = (/** @type {number} */ value) => value.toFixed(2);
  const kinds = /** @type {Array<[string, any, (value: number) => string]>} */ ([
    ["Energy", period.saved_kwh, energy],
    ["Share per work", report.share_per_work, hundred],
    [`Cost (${currency})`, period.saved_cost, plain],
    ["Carbon (kg CO\u2082e)", period.saved_kgco2e, plain],
    ["Between the two simulations", report.kwh, energy],
  ]);
  /** @type {Array<[string, string, string]>} */
  const rows = kinds.filter(([, range]) => range).map((
    [term, range, text],
  ) => [term, lessOrMore(range.mid, text), variants(range, text)]);
  const { low, high } = period.saved_kwh;
  const rest = period.uncompared_kwh
    ? ` ${energy(period.uncompared_kwh)} of it are of days without a report.`
    : "";
  const against = [
    `The metered ${
      energy(period.meter_kwh)
    } of the period, by the share per work of each day.${rest}`,
    `The newest report: ${report.policy} against ${report.baseline}, kube-scheduler’s default`,
    `score: the same ${count(report.pods)} pods on the same ${count(report.nodes)} nodes, in the`,
    `same physics, ${moment(report.from_ms)} to ${moment(report.to_ms)}. Median, and smallest to`,
    `largest of all variants, computed ${ago(report.computed_ms)}.${
      low <= 0 && high >= 0 ? " The interval includes 0, so no saving is certain." : ""
    }`,
  ];
  return html`
    <p class="muted" id="saved-against">${against.join(" ")}</p>
    <${FigureList} id="saved" rows=${rows} />
  `;
}

/** The columns of the charts, made once per answer. @type {{ of: any, power: any, energy: any }} */
let charted = { of: null, power: [], energy: [] };

/** @param {any} found */
function charts(found) {
  if (charted.of === found) return charted;
  const { series } = found;
  const starts = series.map((/** @type {number[]} */ [start]) => start / 1000);
  const ends = series.map((/** @type {number[]} */ [, end]) => end / 1000);
  const watts = (/** @type {number} */ kwh, /** @type {number} */ at) =>
    (kwh * 1000 * HOUR_S) / (ends[at] - starts[at]);
  const all = series.map((/** @type {number[]} */ [, , pods, idle]) => pods + idle);
  const idle = series.map((/** @type {number[]} */ point) => point[3]);
  const last = (/** @type {number[]} */ values) => [...values, values[values.length - 1] ?? null];
  charted = {
    of: found,
    power: [
      last(starts).with(-1, ends[ends.length - 1]),
      last(all.map(watts)),
      last(idle.map(watts)),
    ],
    energy: [[starts[0], ...ends], running(all), running(idle)],
  };
  return charted;
}

/** Running sums in Wh, from 0. @param {number[]} kwh */
function running(kwh) {
  let sum = 0;
  return [0, ...kwh.map((value) => sum += value * 1000)];
}

// --- shares -----------------------------------------------------------------------------------

const NUMBERS = ["Energy", "Above idle", "Idle"];

/** @param {{ found: any, by: string }} props */
function Shares({ found, by }) {
  const most = Math.max(...found.items.map((/** @type {any} */ item) => item.kwh), 1e-12);
  const left = found.total - found.items.length;
  const cost = found.cost !== null ? [`Cost (${found.currency})`] : [];
  const carbon = found.kgco2e !== null ? ["kg CO\u2082e"] : [];
  const modelled = by === "card" ? ["Modelled"] : [];
  const numbers = [...NUMBERS, ...cost, ...carbon, ...modelled];
  const label = by[0].toUpperCase() + by.slice(1);
  return html`
    <${Table} label=${`Energy by ${by}`} head=${heads([label, ...numbers, "Share"], numbers)}>
      ${found.items.map((/** @type {any} */ item) =>
        html`<tr key=${item.name}>
        <th scope="row"><${ShareName} by=${by} name=${item.name} /></th>
        <td class="n">${energy(item.kwh)}</td>
        <td class="n">${energy(item.pods_kwh)}</td>
        <td class="n">${energy(item.idle_kwh)}</td>
        ${cost.length > 0 && html`<td class="n">${item.cost?.toFixed(2) ?? "unknown"}</td>`}
        ${carbon.length > 0 && html`<td class="n">${item.kgco2e?.toFixed(2) ?? "unknown"}</td>`}
        ${modelled.length > 0 && html`<td class="n">${energy(item.modelled_kwh)}</td>`}
        <td><${Bar} item=${item} most=${most} total=${found.meter_kwh} /></td>
      </tr>`
      )}
    </${Table}>
    ${left > 0 && html`<p class="muted">${`${count(left)} more are in the API's response.`}</p>`}
  `;
}

/** @param {{ by: string, name: string }} props */
function ShareName({ by, name }) {
  if (name === NOT_SHARED) return html`<span class="muted">free: what no pod occupies</span>`;
  if (name === NOT_ON_CARDS) return html`<span class="muted">on no card</span>`;
  if (name === NO_PLAN) return html`<span class="muted">no plan</span>`;
  return by === "node" ? html`<${NodeLink} name=${name} />` : html`<${Name} text=${name} />`;
}

/** @param {{ item: any, most: number, total: number }} props */
function Bar({ item, most, total }) {
  const width = (/** @type {number} */ kwh) => ({ width: `${(kwh / most) * 100}%` });
  return html`
    <div class="share" aria-hidden="true">
      <span style=${width(item.pods_kwh)}></span>
      <span class="idle" style=${width(item.idle_kwh)}></span>
    </div>
    <span class="muted">${percent(total ? (item.kwh / total) * 100 : 0)}</span>
  `;
}
