// @ts-check
// The panel with the details of one node, pod or decision.

import { ask } from "./api.js";
import { Chart } from "./chart.js";
import { ago, count, DASH, moment as momentText, percent, points, watts } from "./format.js";
import { PlanLine } from "./lists.js";
import { Cards } from "./overview.js";
import { closing, Facts, heads, Link, Name, NodeLink, PodLink } from "./parts.js";
import { Skeleton, Table } from "./parts.js";
import { change } from "./state.js";
import { computeAll } from "./store.js";
import { Timeline } from "./timeline.js";
import { Component, createRef, html } from "./view.js";
import { TERM_HEADS, TERMS } from "./vocabulary.js";

const LISTED = 100;
const LEAST_GAP = 0.05; // points: smaller differences vanish at one decimal
/** @type {import("./chart.js").Series[]} */
const READINGS = [{ label: "measured", role: "accent", filled: true }];

/** @typedef {import("./state.js").Selection} Selection */

/**
 * The panel. Opening it moves the focus to its title; closing it moves the focus back.
 * Props: now (the selection), answer (of the query).
 */
export class Detail extends Component {
  title = createRef();

  componentDidMount() {
    this.from = document.activeElement;
    this.title.current.focus();
  }

  /** @param {{ now: Record<string, string> }} before */
  componentDidUpdate({ now: before }) {
    const { now } = this.props;
    const isOther = Object.keys(closing).some((what) => before[what] !== now[what]);
    if (isOther) this.title.current.focus();
  }

  componentWillUnmount() {
    const from = /** @type {HTMLElement} */ (this.from);
    if (from?.isConnected) from.focus();
  }

  render() {
    const { now, answer } = this.props;
    const close = () => change(closing);
    const key = (/** @type {KeyboardEvent} */ event) => {
      if (event.key !== "Escape") return;
      event.preventDefault(); // else the same key would leave the past, too
      close();
    };
    return html`
      <aside id="detail" class="detail" aria-labelledby="detail-title" onKeyDown=${key}>
        <div class="card-head">
          <h2 id="detail-title" tabindex="-1" ref=${this.title}>
            <${Title} now=${now} answer=${answer} />
          </h2>
          <button id="close" class="quiet" type="button" onClick=${close}>Close</button>
        </div>
        <div id="detail-body" tabindex="0" role="region" aria-label="Details">
          <${Body} now=${now} answer=${answer} />
        </div>
      </aside>
    `;
  }
}

/** @typedef {{ now: Selection, answer: import("./store.js").Answer | null }} Shown */

/** @param {Shown} props */
function Title({ now, answer }) {
  const { found, error } = answer || {};
  if (error) return "Not available";
  if (!found) return "Loading\u2026";
  if (now.decision) return `Entry ${found.decision.entry}: ${found.decision.verb}`;
  if (now.node) return html`<${Name} text=${found.node.name} />`;
  const { namespace, name } = found.pod || found.decisions[0];
  return html`<${Name} text=${`${namespace}/${name}`} />`;
}

/** @param {Shown} props */
function Body({ now, answer }) {
  const { found, error } = answer || {};
  if (error) {
    return html`
      <p>
        <${Name} text=${error} />
      </p>
    `;
  }
  if (!found) return html`<${Skeleton} what="the details" lines=${10} />`;
  if (now.decision) return html`<${DecisionDetail} key=${now.decision} found=${found} />`;
  if (now.node) return html`<${NodeDetail} key=${now.node} found=${found} />`;
  return html`<${PodDetail} found=${found} />`;
}

// --- a node -----------------------------------------------------------------------------------

/** @param {any} node @param {number} atMs of the answer */
function nodeFacts(node, atMs) {
  const cap = (/** @type {number | null} */ value) => (value === null ? "no cap" : `${value} %`);
  const measured = node.measured_w === null
    ? `unknown; last reading ${ago(node.sampled_at_ms, atMs)}`
    : `${watts(node.measured_w)}, ${ago(node.sampled_at_ms, atMs)}`;
  const ready = node.ready ? "ready" : "not ready";
  const place = `${node.rack || "none"}, ${node.cooling_zone || "none"}`;
  /** @type {Array<[string, any]>} */
  const rows = [
    ["Measured", measured],
    ["Allowed by caps", `${watts(node.capped_w)} of ${watts(node.tdp_w)}`],
    ["Caps", `CPU ${cap(node.cpu_cap_pct)}, GPU ${node.gpus ? cap(node.gpu_cap_pct) : DASH}`],
    ["Headroom", `${percent(node.headroom)} (${node.headroom_basis})`],
    ["Cooling stress", percent(node.cooling)],
    [
      "Trend, at most 5 min",
      node.trend_w_per_min === null ? "unknown" : `${points(node.trend_w_per_min)} W/min`,
    ],
    ["Pods", `${node.pods}, ${node.performance_pods} of them performance`],
    [
      "Cores, GPUs",
      node.cores === null
        ? "unknown"
        : `${count(node.cores)}, ${node.gpus_asked.toFixed(1)} of ${node.gpus} requested`,
    ],
    ["Rack, zone", html`<${Name} text=${place} />`],
    ["Kubernetes", `${ready}, ${node.schedulable ? "schedulable" : "cordoned"}`],
  ];
  return rows;
}

/** @param {{ found: any }} props */
function NodeDetail({ found }) {
  const { awake_because: awake } = found;
  const { node, machine, transitions, earlier, plans_gone: gone, pods, cards, labels } = found;
  const units = node.gpu_unit < 1 ? "units of " : "\u00d7 ";
  const gpus = node.gpus ? `${node.gpus} ${units}${node.gpu_model || "GPU"}` : "";
  const hardware = [node.cpu_model, gpus].filter(Boolean).join(" \u00b7 ");
  const named = Object.entries(labels).map(([key, value]) => [
    html`<${Name} text=${key} />`,
    html`<${Name} text=${value} />`,
  ]);
  return html`
    <p class="muted">
      <${Name} text=${hardware || "hardware unknown"} />
    </p>
    <${Facts} rows=${nodeFacts(node, found.at_ms)} />
    <h3>Readings</h3><${Readings} samples=${found.samples} />
    <h3>State</h3><${Machine} machine=${machine} />
    ${awake && html`<p>Awake: <${Name} text=${awake} />.</p>`}
    <h3>Transitions</h3>
    <${Transitions} node=${node.name} known=${transitions} earlier=${earlier} />
    ${gone > 0 && html`<p class="muted">
      ${`${count(gone)} plan events have left their stream and are not shown.`}</p>`}
    <h3>Pods here (${pods.length})</h3><${PodsHere} pods=${pods} />
    ${cards.length > 0 && html`
      <h3>Cards</h3>
      <${Cards} items=${cards} label="Cards of this node" />
    `}
    <h3>Labels</h3><${Facts} rows=${named} />
  `;
}

/** @param {{ samples: number[][] }} props */
function Readings({ samples }) {
  if (samples.length < 2) return html`<p class="muted">Too few readings for a chart.</p>`;
  const data = [samples.map(([at]) => at / 1000), samples.map(([, value]) => value)];
  return html`
    <${Chart} label="Measured power of this node" axis="Power" base="W" data=${data}
      series=${READINGS} height=${120} />
  `;
}

/** @param {{ machine: any }} props */
function Machine({ machine: { states, now, following, waits_for: waits } }) {
  const kind = (/** @type {string} */ each) =>
    each === now ? "now" : following.includes(each) ? "next" : null;
  const next = following.length ? `Possible next: ${following.join(", ")}.` : "Nothing is next.";
  return html`
    <ul class="machine">
          ${states.map((/** @type {string} */ each) =>
            html`<li key=${each} class=${kind(each)} aria-current=${each === now ? "step" : null}>
      ${each}</li>`
          )}
        </ul>
    <p class="muted">${`Now: ${now}. ${next}${waits ? ` Waiting: ${waits}.` : ""}`}</p>
  `;
}

/** @param {{ pods: any[] }} props */
function PodsHere({ pods }) {
  if (!pods.length) return html`<p class="muted">None.</p>`;
  return html`<ul class="plain">${
    pods.slice(0, LISTED).map((pod) =>
      html`<li key=${pod.uid}><${PodLink} pod=${pod} uid=${pod.uid} />
      <span class="muted">${` ${pod.class}, ${pod.cores} cores`}
        ${pod.gpus ? `, ${pod.gpus} GPU` : ""}</span></li>`
    )
  }</ul>`;
}

/** The transitions of a node; older ones are loaded on demand. Props: node, known, earlier. */
class Transitions extends Component {
  /** @type {{ older: any[], before: number | null, error: string, isLoading: boolean }} */
  state = { older: [], before: this.props.earlier, error: "", isLoading: false };

  #load = async () => {
    this.setState({ isLoading: true, error: "" });
    try {
      const { before, older } = this.state;
      const found = await ask("plans", { node: this.props.node, before, limit: LISTED });
      const entries = found.items.map((/** @type {any} */ entry) => entry.transition);
      this.setState({ older: [...older, ...entries], before: found.next });
    } catch (error) {
      this.setState({ error: /** @type {Error} */ (error).message });
    }
    this.setState({ isLoading: false });
  };

  render() {
    const { older, before, error, isLoading } = this.state;
    const first = older[0]?.position ?? 0;
    const known = this.props.known.filter((/** @type {any} */ each) => each.position > first);
    const all = [...known, ...older];
    if (!all.length && before === null) {
      return html`<p class="muted">No plan has changed this node.</p>`;
    }
    return html`<ol class="lines">${
      all.map((transition) =>
        html`
          <${PlanLine} key=${`${transition.position} ${transition.kind}`} isHere=${true}
            entry=${{ at_ms: transition.at_ms, transition }} />
        `
      )
    }</ol>
      ${
      before !== null && html`<button type="button" disabled=${isLoading} onClick=${this.#load}>
        Earlier transitions</button>`
    }
      ${
      error && html`
        <p class="warned" role="alert">
          <${Name} text=${error} />
        </p>
      `
    }`;
  }
}

// --- a pod ------------------------------------------------------------------------------------

/** @param {{ found: any }} props */
function PodDetail({ found: { pod, timeline, explanation } }) {
  return html`
    <ul class="because">${explanation.map((/** @type {string} */ line) =>
      html`
        <li key=${line}>
          <${Name} text=${line} />
        </li>
      `
    )}</ul>
    ${pod
      ? html`<${Facts} rows=${podFacts(pod)} />`
      : html`<p class="muted">The pod was deleted; its decisions remain.</p>`}
    ${pod?.phase === "pending" && html`
      <p>
        <${Link} to=${{ page: "pending", ...closing }}>Why pods are pending</${Link}></p>
    `}
    <h3>Timeline</h3>
    <${Timeline} moments=${timeline} />
  `;
}

/** @param {any} pod */
const podFacts = (pod) => [
  ["Class", `${pod.class} (${pod.rule})`],
  ["Placement", pod.placement],
  ["Requests", `${pod.cores} cores, ${pod.memory_gib.toFixed(1)} GiB, ${pod.gpus} GPU`],
  ["Phase", pod.phase],
  ["Node", pod.node ? html`<${NodeLink} name=${pod.node} />` : "none yet"],
  ["Bound", pod.bound_at_ms ? momentText(pod.bound_at_ms) : "not yet"],
  ["UID", html`<${Name} text=${pod.uid} />`],
];

// --- a decision -------------------------------------------------------------------------------

/** @param {{ found: any }} props */
function DecisionDetail({ found }) {
  const { decision, candidates } = found;
  const scored = candidates.filter((/** @type {any} */ candidate) => candidate.terms);
  const values = Object.entries(found.values).map(([key, value]) => [key, String(value)]);
  return html`
    <p class="lead"><${Name} text=${decision.text} />
      ${decision.reason && html`: <${Name} text=${decision.reason} />`}</p>
    <${Facts} rows=${decisionFacts(found)} />
    ${found.settings_unknown &&
      html`<p class="muted">${`Points unknown: ${found.settings_unknown}.`}</p>`}
    ${scored[0]?.terms.points &&
      html`<${Duel} winner=${scored[0]} other=${scored[1]} />`}
    ${candidates.length > 0 && html`<${Candidates} found=${found} explained=${scored.length} />`}
    ${found.settings && html`
      <h3>Settings in force</h3>
      <${Facts} rows=${[["Id", html`<${Name} text=${found.settings} />`], ...values]} />
    `}
    <h3>Place in the chain</h3>
    <${Facts} rows=${[
      ["Hash", html`<code>${found.hash}</code>`],
      ["Previous hash", html`<code>${found.prev}</code>`],
    ]} />
  `;
}

/** @param {any} found */
function decisionFacts({ decision, pod, error, cards }) {
  const { name, candidates } = decision;
  return [
    name ? ["Pod", html`<${PodLink} pod=${decision} uid=${decision.pod_uid} />`] : null,
    decision.class ? ["Class", `${decision.class} (${pod?.rule || ""})`] : null,
    ["When", momentText(decision.at_ms)],
    decision.view_text ? ["View", decision.view_text] : null,
    candidates ? ["Candidates", `${candidates}, ${decision.refused} refused`] : null,
    error ? ["Error", html`<${Name} text=${error} />`] : null,
    cards.length
      ? [
        "Cards",
        cards.map((/** @type {string} */ card) => html`<${Name} key=${card} text=${card} />`),
      ]
      : null,
  ];
}

/** The winner and the runner-up, term by term. @param {{ winner: any, other: any }} props */
function Duel({ winner, other }) {
  const terms = TERMS.filter((term) =>
    [winner, other].some((each) => each?.terms.points && term in each.terms.points)
  );
  const sum = terms.reduce((total, term) => total + (winner.terms.points[term] ?? 0), 0);
  const head = ["Term", winner.node, ...(other ? [other.node, "Difference"] : [])];
  const title = "The winner and the runner-up";
  return html`
    <${Table} label=${title} caption=${`${title}, in points`} kind="duel"
      head=${heads(head.map((label) => html`<${Name} text=${label} />`))}>
      ${terms.map((term) =>
        html`
          <${DuelRow} key=${term} term=${term} mine=${pointsOf(winner, term)}
            theirs=${other && pointsOf(other, term)} />
        `
      )}
      <tr class="sum">
        <th scope="row">score</th><td class="n">${winner.terms.score.toFixed(1)}</td>
        ${other && html`
          <td class="n">${other.terms.score.toFixed(1)}</td>
          <td class="gap"><span class="n">${points(winner.terms.score - other.terms.score)}</span>
                    </td>
        `}
      </tr>
    </${Table}>
    ${Math.abs(sum - winner.terms.score) > LEAST_GAP &&
      html`<p class="muted">Scores are clamped to 0 to 100.</p>`}
  `;
}

/**
 * No term applies to a node without data but its own: null.
 * @param {any} candidate @param {string} term
 */
const pointsOf = ({ terms: { points } }, term) =>
  points?.[term] ?? (!points || "neutral" in points ? null : 0);

/**
 * @param {{ term: string, mine: number | null, theirs?: number | null }} props `theirs`: undefined
 *   without a runner-up
 */
function DuelRow({ term, mine, theirs }) {
  const gap = typeof mine === "number" && typeof theirs === "number" ? mine - theirs : null;
  const width = `${Math.min(60, 2 + Math.abs(gap ?? 0) * 1.5)}%`;
  const bar = html`<span class=${(gap ?? 0) < 0 ? "bar minus" : "bar"} style=${{ width }}></span>`;
  return html`<tr>
    <th scope="row">${TERM_HEADS[TERMS.indexOf(term)]}</th><td class="n">${points(mine)}</td>
    ${
    theirs !== undefined && html`
      <td class="n">${points(theirs)}</td>
      <td class="gap">
        ${Math.abs(gap ?? 0) >= LEAST_GAP && bar}<span class="n">${points(gap)}</span>
      </td>
    `
  }
  </tr>`;
}

/** @param {{ found: any, explained: number }} props */
function Candidates({ found, explained }) {
  const { candidates, decision, same_digest: isSame } = found;
  const scores = decision.verb === "prioritize";
  const labels = scores ? ["Node", "Answer", "Why behind", "Would draw"] : ["Node", "Verdict"];
  const left = candidates.length - LISTED;
  return html`<h3>Candidates (${candidates.length})</h3>
    ${scores && explained < candidates.length && html`<${ComputeAll} entry=${decision.entry} />`}
    ${
    isSame !== null && html`<p class=${isSame ? "good" : "warned"} role="status">${
      isSame
        ? "Recomputed from the facts of that position: equal to the last bit."
        : "Recomputed, and NOT equal: run joulie replay."
    }</p>`
  }
    <${Table} label="Candidates" head=${heads(labels, ["Answer", "Would draw"])}>
      ${
    candidates.slice(0, LISTED).map((/** @type {any} */ each) =>
      html`<tr key=${each.node}>
        <th scope="row"><${NodeLink} name=${each.node} /></th>
        ${scores ? html`<${ScoreCells} candidate=${each} />` : html`<td>${each.verdict}</td>`}
      </tr>`
    )
  }
    </${Table}>
    ${left > 0 && html`<p class="muted">${`${left} more are in the API's response.`}</p>`}`;
}

/** @param {{ candidate: any }} props */
function ScoreCells({ candidate: { answer, loss, terms, verdict } }) {
  const behind = loss ? loss.text : (terms ? "the winner" : verdict);
  const added = terms?.values.marginal_w;
  return html`
    <td class="n">${answer ?? ""}</td>
    <td>${behind}</td>
    <td class="n">${terms ? (added === undefined ? "unknown" : `+${added.toFixed(0)} W`) : ""}</td>
  `;
}

/** Props: entry. */
class ComputeAll extends Component {
  state = { text: "Compute every term again", isLoading: false };

  #compute = async () => {
    this.setState({ text: "Computing\u2026", isLoading: true });
    try {
      await computeAll(this.props.entry);
    } catch (error) {
      this.setState({ text: /** @type {Error} */ (error).message });
    }
  };

  render() {
    const { text, isLoading } = this.state;
    return html`<button type="button" disabled=${isLoading} onClick=${this.#compute}>
      ${text}</button>`;
  }
}
