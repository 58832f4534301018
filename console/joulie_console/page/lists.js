// @ts-check
// Lists of decisions and plans, newest first. A line keeps its element while others arrive.

import { clock } from "./format.js";
import { Link, Name, opening, Skeleton } from "./parts.js";
import { planKey } from "./store.js";
import { html } from "./view.js";

/** Words for verbs, where they differ. @type {Record<string, string>} */
const WORDS = { prioritize: "score" };

/**
 * The sentence first, and its kind behind it.
 * @param {{ brief: any, scored?: any }} props `scored`: the score that an outcome followed, which it
 *   opens
 */
export function DecisionLine({ brief, scored }) {
  const kind = `line ${brief.verb}${brief.refused ? " refused" : ""}`;
  return html`
    <li class=${kind}>
      <${Link} to=${opening("decision", (scored || brief).entry)} class="row told"
        data-entry=${brief.entry} data-scored=${scored?.entry}>
          <span class="when">${clock(brief.at_ms)}</span>
          <span class="pod">
            ${brief.name && html`<${Name} text=${`${brief.namespace}/${brief.name}`} />`}
          </span>
          ${brief.class && html`<span class=${`chip ${brief.class}`}>
        ${brief.class === "performance" ? "perf" : "std"}
      </span>`}
          <span class="text">${sentence(brief, scored)}
            <span class="verb">${` ${WORDS[brief.verb] || brief.verb}`}</span></span>
        </${Link}>
      </li>
  `;
}

/** @param {any} brief @param {any} scored */
function sentence(brief, scored) {
  if (brief.verb === "outcome" && brief.winner) {
    return html`runs on <${Name} text=${brief.winner} kind="strong" />${
      scored ? ordered(brief, scored) : ""
    }`;
  }
  if (brief.winner) return html`<${Best} brief=${brief} />`;
  const text = brief.refused ? `${brief.text}: ${brief.reason}` : brief.text;
  return html`<${Name} text=${text} />`;
}

/** What was sent before the pod was bound. @param {any} brief @param {any} scored */
function ordered(brief, scored) {
  if (scored.winner === brief.winner) {
    return html`, our best with <${Best} brief=${scored} isNamed=${false} />`;
  }
  return html`; our best was <${Best} brief=${scored} />`;
}

/** @param {{ brief: any, isNamed?: boolean }} props */
function Best({ brief, isNamed = true }) {
  const { loss } = brief;
  const why = loss ? `${brief.runner_up} is ${loss.text}` : "";
  return html`${isNamed && html`<${Name} text=${brief.winner} kind="strong" />`}
    ${brief.score !== null && html`<span class="score">${brief.score.toFixed(1)}</span>`}
    ${why && html`<span class="muted"> <${Name} text=${why} /></span>`}`;
}

/**
 * The score of each outcome by its entry, and the entries that are shown with an outcome.
 * @param {any[]} items newest first
 */
function joined(items) {
  const scored = new Map(), told = new Set(), newest = new Map();
  for (const brief of items.toReversed()) {
    if (brief.verb === "prioritize") newest.set(brief.pod_uid, brief);
    const score = brief.verb === "outcome" && newest.get(brief.pod_uid);
    if (!score) continue;
    scored.set(brief.entry, score);
    told.add(score.entry);
  }
  return { scored, told };
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
export function Decisions({ items }) {
  const { scored, told } = joined(items || []);
  const shown = items && items.filter(({ entry }) => !told.has(entry));
  return html`
    <${Lines} id="decisions" what="decisions" items=${shown}
      label="Decisions, newest first">
        ${shown?.map((brief) =>
          html`<${DecisionLine} key=${brief.entry} brief=${brief} scored=${
            scored.get(brief.entry)
          } />`
        )}
      </${Lines}>
  `;
}

/** @param {{ items: any[] | null }} props */
export const Plans = ({ items }) =>
  html`
    <${Lines} id="plans" what="plans" items=${items}
      label="Plans and transitions, newest first">
        ${items?.map((entry) => html`<${PlanLine} key=${planKey(entry)} entry=${entry} />`)}
      </${Lines}>
  `;
