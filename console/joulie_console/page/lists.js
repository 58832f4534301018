// @ts-check
// Lists of decisions and plans, newest first. A line keeps its element while others arrive.

import { clock } from "./format.js";
import { Link, Name, opening, Skeleton } from "./parts.js";
import { planKey } from "./store.js";
import { html } from "./view.js";

/** Words for verbs, where they differ. @type {Record<string, string>} */
const WORDS = { prioritize: "score" };

/** @param {{ brief: any }} props */
export function DecisionLine({ brief }) {
  const kind = `line ${brief.verb}${brief.refused ? " refused" : ""}`;
  return html`
    <li class=${kind}>
      <${Link} to=${opening("decision", brief.entry)} class="row" data-entry=${brief.entry}>
          <span class="when">${clock(brief.at_ms)}</span>
          <span class="verb">${WORDS[brief.verb] || brief.verb}</span>
          <span class="pod">
            ${brief.name && html`<${Name} text=${`${brief.namespace}/${brief.name}`} />`}
          </span>
          ${brief.class && html`<span class=${`chip ${brief.class}`}>
        ${brief.class === "performance" ? "perf" : "std"}
      </span>`}
          <span class="text"><${Outcome} brief=${brief} /></span>
        </${Link}>
      </li>
  `;
}

/** @param {{ brief: any }} props */
function Outcome({ brief }) {
  if (!brief.winner) {
    const text = brief.refused ? `${brief.text}: ${brief.reason}` : brief.text;
    return html`<${Name} text=${text} />`;
  }
  const { loss } = brief;
  const why = loss?.term ? `${brief.runner_up} lost ${loss.points.toFixed(1)} by ${loss.term}` : "";
  return html`<${Name} text=${brief.winner} kind="strong" />
    ${brief.score !== null && html`<span class="score">${brief.score.toFixed(1)}</span>`}
    ${why && html`<span class="muted"> <${Name} text=${why} /></span>`}`;
}

/** @param {{ entry: any, isHere?: boolean }} props `isHere`: the node is named around the line */
export function PlanLine({ entry, isHere }) {
  if (entry.plan) {
    const { plan, changes, because } = entry.plan;
    return html`<li class="line plan"><span class="row">
      <span class="when">${clock(entry.at_ms)}</span><span class="verb">plan</span>
      <span class="text"><${Name} text=${plan} kind="strong" />
        ${` ${changes} ${changes === 1 ? "change" : "changes"}: `}<${Name} text=${because} /></span>
    </span></li>`;
  }
  const { node, to, because } = entry.transition;
  const parts = html`
    <span class="when">${clock(entry.at_ms)}</span><span class="verb">node</span>
        <span
      class="text"><${Name} text=${node} kind="strong" />${" \u2192 "}<${Name} text=${to} />
          ${because && html`<span class="muted"> <${Name} text=${because} /></span>`}</span>
  `;
  return html`<li class="line transition">${
    isHere
      ? html`<span class="row">${parts}</span>`
      : html`<${Link} to=${opening("node", node)} class="row">${parts}</${Link}>`
  }</li>`;
}

/**
 * @param {{ id: string, label: string, items: any[] | null, what: string, children: any }} props
 */
function Lines({ id, label, items, what, children }) {
  if (!items) return html`<${Skeleton} what=${what} lines=${8} />`;
  return html`<ol id=${id} class="lines" aria-label=${label}>
    ${items.length ? children : html`<li class="empty">No ${what} yet.</li>`}
  </ol>`;
}

/** @param {{ items: any[] | null }} props */
export const Decisions = ({ items }) =>
  html`<${Lines} id="decisions" what="decisions" items=${items} label="Decisions, newest first">
    ${items?.map((brief) => html`<${DecisionLine} key=${brief.entry} brief=${brief} />`)}
  </${Lines}>`;

/** @param {{ items: any[] | null }} props */
export const Plans = ({ items }) =>
  html`
    <${Lines} id="plans" what="plans" items=${items}
      label="Plans and transitions, newest first">
        ${items?.map((entry) => html`<${PlanLine} key=${planKey(entry)} entry=${entry} />`)}
      </${Lines}>
  `;
