// @ts-check
// The overview: totals, the map or the table of nodes, power, decisions, plans, and cards.

import { Chart } from "./chart.js";
import { ago, count, DASH, lasting, moment, percent, points, watts } from "./format.js";
import { FreeGpus } from "./fragments.js";
import { Decisions, Happened } from "./lists.js";
import { Legend, MapView } from "./map.js";
import { Choice, Failure, heads, Name, NodeLink, Skeleton, Table } from "./parts.js";
import { change } from "./state.js";
import { model, pause } from "./store.js";
import { Totals } from "./tiles.js";
import { Component, html } from "./view.js";
import { SLEEPING_POLICY, VERBS } from "./vocabulary.js";

const COLOURS = [
  ["", "by the preset"],
  ["state", "sleep and load"],
  ["headroom", "headroom"],
  ["cooling", "cooling stress"],
  ["class", "class"],
  ["watts", "measured watts"],
  ["gpu", "GPU use"],
];
const GROUPS = [["none", "by name"], ["rack", "by rack"], ["class", "by class"]];
/** Words for the kinds of decisions, where they differ. @type {Record<string, string>} */
const KINDS = {
  prioritize: "scores",
  preempt: "preemptions",
  dropped: "dropped",
  settings: "settings",
  unreadable: "unreadable",
};
/** The power chart's lines. @type {import("./chart.js").Series[]} */
const POWER = [
  { label: "measured", role: "accent", filled: true },
  { label: "allowed by caps", role: "muted", dashed: true },
];

/** @typedef {import("./state.js").Selection} Selection */

/** @param {{ now: Selection }} props */
export function Overview({ now }) {
  return html`
    <section class="totals" aria-labelledby="totals-title">
      <h2 id="totals-title" class="unseen">Totals</h2>
      <${Totals} cluster=${shownCluster(now)} rate=${now.at ? null : rate()} />
    </section>
    <${NodesCard} now=${now} />
    <section class="card happened-card" aria-labelledby="happened-title">
      <div class="card-head">
        <h2 id="happened-title">What happened</h2>
        <${LastPlan} now=${now} />
      </div>
      <${Happened} plans=${model.plans} decisions=${model.decisions} />
    </section>
    <${PowerCard} now=${now} />
    <${DecisionsCard} now=${now} />
    <${CardsCard} />
  `;
}

// --- totals -----------------------------------------------------------------------------------

/** The cluster at the selected position; null until it is there. @param {Selection} now */
const shownCluster = (now) => now.at ? model.past : model.cluster;

/** Decisions per second. */
function rate() {
  const { rates } = model;
  if (rates.length < 2) return null;
  const [[t0, n0], [t1, n1]] = [rates[0], rates[rates.length - 1]];
  return t1 > t0 ? Math.max(0, ((n1 - n0) * 1000) / (t1 - t0)) : null;
}

// --- nodes ------------------------------------------------------------------------------------

/** @param {{ now: Selection }} props */
function NodesCard({ now }) {
  const isTable = now.view === "table";
  const toggle = () => change({ view: isTable ? "map" : "table" });
  return html`<section class="card map-card" aria-labelledby="map-title">
    <div class="card-head">
      <h2 id="map-title" tabindex="-1">Nodes</h2>
      <div class="controls">
        <${Choice} label="Colour" name="colour" value=${now.colour} options=${COLOURS} />
        <${Choice} label="Group" name="group" value=${now.group} options=${GROUPS} />
        <button id="as-table" type="button" aria-pressed=${String(isTable)} onClick=${toggle}>
          Table
        </button>
      </div>
    </div>
    ${isTable ? html`<${NodeTable} now=${now} />` : html`<${NodeMapOrEmpty} now=${now} />`}
  </section>`;
}

/** @param {{ now: Selection }} props */
function NodeMapOrEmpty({ now }) {
  const { map, mapVersion } = model;
  if (!map) return html`<${Skeleton} what="the map of nodes" lines=${8} />`;
  if (!map.id.length) return html`<p id="map-empty" class="empty">No nodes yet.</p>`;
  const colour = now.colour || colourOf(shownCluster(now)?.plan);
  return html`
    <${MapView} columns=${map} version=${mapVersion} colour=${colour}
      group=${now.group} chosen=${now.node} />
    <${Legend} kind=${colour} columns=${map} />
  `;
}

/** What the preset in force cares about: where nodes sleep, which do, and how full the others are.
 * @param {any} plan */
const colourOf = (plan) =>
  plan?.preset === "savings" || plan?.policy === SLEEPING_POLICY ? "state" : "headroom";

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

/** @param {{ now: Selection }} props */
function NodeTable({ now }) {
  const { found, error } = model.nodes || {};
  if (error) return html`<${Failure} text=${error} />`;
  if (!found) return html`<${Skeleton} what="the table of nodes" lines=${8} />`;
  const offset = Number(now.offset) || 0;
  const go = (/** @type {number} */ to) => () => change({ offset: to }, { replace: true });
  const last = Math.min(found.total, offset + found.items.length);
  return html`
    <div id="table-view">
      <${Table} label="Nodes as a table" head=${COLUMNS.map((column, at) =>
        html`<${NodeHead} key=${column[1]} column=${column} at=${at} now=${now} />`
      )}>
          ${found.items.map((/** @type {any} */ node) =>
            html`<${NodeRow} key=${node.name} node=${node} />`
          )}
        </${Table}>
        <p class="pager">
          <button type="button" disabled=${!offset} onClick=${go(Math.max(0, offset - 50))}>
            Earlier
          </button>
          <span>${found.total
            ? `${offset + 1} to ${last} of ${count(found.total)}`
            : "no nodes"}</span>
          <button type="button" disabled=${found.next === null} onClick=${go(
            found.next,
          )}>Later</button>
        </p>
      </div>
  `;
}

/** @param {{ column: string[], at: number, now: Selection }} props */
function NodeHead({ column: [key, label], at, now }) {
  const kind = at < WORDS ? null : "n";
  if (!key) return html`<th scope="col" class=${kind}>${label}</th>`;
  const isSorted = now.sort === key;
  const order = isSorted && now.order === "asc" ? "desc" : "asc";
  const sort = () => change({ sort: key, order, offset: 0 }, { replace: true });
  return html`
    <th scope="col" class=${kind} aria-sort=${isSorted ? `${now.order}ending` : "none"}>
      <button type="button" class="link" data-sort=${key} onClick=${sort}>${label}</button>
    </th>
  `;
}

/** @param {{ node: any }} props */
function NodeRow({ node }) {
  const gpus = node.gpus ? `${node.gpus_asked.toFixed(1)} of ${node.gpus}` : DASH;
  return html`
    <tr>
      <th scope="row">
        <${NodeLink} name=${node.name} />
      </th>
      <td>${node.state === "awake" ? node.class : node.state}</td>
      <td class="n">${percent(node.headroom)}</td>
      <td class="n">${watts(node.measured_w)}</td>
      <td class="n">${watts(node.capped_w)}</td>
      <td class="n">${node.trend_w_per_min === null ? DASH : points(node.trend_w_per_min)}</td>
      <td class="n">${percent(node.cooling)}</td>
      <td class="n">${gpus}</td>
      <td class="n">${count(node.pods)}</td>
    </tr>
  `;
}

// --- power, decisions, plans, cards -----------------------------------------------------------

/** The columns of the chart, made once per change. @type {{ of: any, at: string, data: any[] }} */
let charted = { of: null, at: "", data: [] };

/** Nothing of later than `at`. @param {string} at */
function powerData(at) {
  const { power } = model;
  if (charted.of !== power || charted.at !== at) {
    const points = at ? power.filter((point) => point[1] <= Number(at)) : power;
    const column = (/** @type {number} */ place) => points.map((point) => point[place]);
    const data = [points.map((point) => point[0] / 1000), column(2), column(3)];
    charted = { of: power, at, data };
  }
  return charted.data;
}

/** @param {{ now: Selection }} props */
function PowerCard({ now }) {
  const shown = shownCluster(now);
  const data = powerData(now.at);
  const text = shown ? `${watts(shown.measured_w)} of ${watts(shown.capped_w)}` : "";
  return html`<section class="card power-card" aria-labelledby="power-title">
    <div class="card-head"><h2 id="power-title">Power</h2><p class="muted">${text}</p></div>
    ${
    data[0].length < 2
      ? html`<p class="empty">The chart begins when this console started.</p>`
      : html`
        <${Chart} label="Measured power, and the power that the caps allow" axis="Power"
          base="W" data=${data} series=${POWER} />
      `
  }
  </section>`;
}

/** @param {{ now: Selection }} props */
function DecisionsCard({ now }) {
  const { paused, held } = model;
  const options = [["", "all"], ...VERBS.map((verb) => [verb, KINDS[verb] || `${verb}s`])];
  return html`
    <section class="card decisions-card" aria-labelledby="decisions-title">
      <div class="card-head">
        <h2 id="decisions-title">Decisions</h2>
        <div class="controls">
          <${Choice} label="Kind" hidden=${true} name="verb" value=${now.verb}
            options=${options} />
          <button id="pause" type="button" aria-pressed=${String(paused)} onClick=${pause}>
              ${paused ? (held ? `Resume (${held})` : "Resume") : "Pause"}
            </button>
        </div>
      </div>
      <${Decisions} items=${model.decisions} />
    </section>
  `;
}

/** @param {{ now: Selection }} props */
function LastPlan({ now }) {
  const cluster = shownCluster(now);
  if (!cluster) return null;
  if (!cluster.plan) return html`<p class="muted">no plan yet</p>`;
  return html`<p class="muted">last plan ${ago(cluster.planned_at_ms, cluster.at_ms)},${" "}
    <${Name} text=${cluster.plan.policy} />, preset${" "}
    <${Name} text=${cluster.plan.preset} /></p>`;
}

function CardsCard() {
  const { found, error } = model.cards || {};
  const total = found?.total ? `${count(found.total)} cards` : "";
  return html`
    <section class="card gpus-card" aria-labelledby="gpus-title">
      <div class="card-head">
        <h2 id="gpus-title">GPU cards</h2>
        <p class="muted">${total}</p>
      </div>
      <div id="gpus">
          ${error && html`<${Failure} text=${error} />`}
          ${!found && !error && html`<${Skeleton} what="the GPU cards" />`}
          ${found && !found.total &&
            html`<p class="empty">No cards are known; nodes only count their GPUs.</p>`}
          ${found && html`<${FreeGpus} free=${found.free_gpus} isPast=${Boolean(model.past)} />`}
          ${found?.idle?.length > 0 && html`<${IdleHolders} idle=${found.idle} />`}
          ${found && found.total > 0 && html`<${AllCards} found=${found} />`}
        </div>
    </section>
  `;
}

/** @param {any} card */
const isRead = ({ power_limited_s: byPower, heat_limited_s: byHeat, healthy }) =>
  byPower !== null || byHeat !== null || !healthy;

/** Cards of which something is known; the others are one line. @param {{ found: any }} props */
function AllCards({ found: { items, sums } }) {
  const read = items.filter(isRead);
  const others = items.filter((/** @type {any} */ card) => !isRead(card));
  return html`
    ${read.length > 0 && html`<${Cards} items=${read} label="GPU cards as a table" />`}
    ${sums.unread > 0 && html`<${UnreadCards} items=${others} sums=${sums} />`}
  `;
}

/** Their table is made when it is opened. Props: items, sums. */
class UnreadCards extends Component {
  state = { isOpen: false };

  render() {
    const { items, sums } = this.props;
    const toggle = (/** @type {any} */ event) =>
      this.setState({ isOpen: event.currentTarget.open });
    return html`
      <details id="unread-cards" onToggle=${toggle}>
        <summary>${`Of ${count(sums.unread)} of ${
          count(sums.cards)
        } cards it is not known how long they were slowed down.`}</summary>
        ${this.state.isOpen && html`<${Cards} items=${items} label="Cards that are not read" />`}
      </details>
    `;
  }
}

const MOST_IDLE = 20;

/** Cards that pods hold without using them. @param {{ idle: any[] }} props */
function IdleHolders({ idle }) {
  const whole = idle.reduce((sum, each) => sum + each.power_w, 0);
  return html`
    <p id="idle-holders">
      <strong class="warned">${`${count(idle.length)} held without work`}</strong>${`, ${
        watts(whole)
      } in all:`}</p>
    <ul>${idle.slice(0, MOST_IDLE).map((each) =>
      html`<li key=${each.uuid}><${Name} text=${each.pods.join(", ")} /> on${" "}
        <${NodeLink} name=${each.node} />, ${watts(each.power_w)}, since ${
        moment(each.since_ms)
      }</li>`
    )}</ul>
    ${idle.length > MOST_IDLE &&
      html`<p class="muted">${`and ${idle.length - MOST_IDLE} more`}</p>`}
  `;
}

const CARD = [
  "Card",
  "Node",
  "Model",
  "Memory",
  "Slowed by power",
  "By heat",
  "Claimed by",
  "Health",
];
const CARD_NUMBERS = ["Memory", "Slowed by power", "By heat"];

/** @param {{ items: any[], label: string }} props */
export function Cards({ items, label }) {
  const gib = (/** @type {number} */ mb) => count(mb / 1024);
  const slowed = (/** @type {number | null} */ seconds) =>
    seconds === null ? "not known" : lasting(seconds * 1000);
  return html`<${Table} label=${label} head=${heads(CARD, CARD_NUMBERS)}>
    ${
    items.map((card) =>
      html`
        <tr key=${card.uuid}>
          <th scope="row">
            <${Name} text=${card.uuid} />
          </th>
          <td>
            <${NodeLink} name=${card.node} />
          </td>
          <td>
            <${Name} text=${card.model} />
          </td>
          <td class="n">${gib(card.allocated_mb)} of ${gib(card.total_mb)} GiB</td>
          <td class="n">${slowed(card.power_limited_s)}</td>
          <td class="n">${slowed(card.heat_limited_s)}</td>
          <td>${card.claims.length
            ? card.claims.map((/** @type {any} */ claim) =>
              html`<${Name} key=${claim.pod_uid} text=${`${claim.namespace}/${claim.name}`} />`
            )
            : "free"}</td>
          <td>${card.healthy ? "healthy" : html`<strong class="warned">not healthy</strong>`}</td>
        </tr>
      `
    )
  }
  </${Table}>`;
}
