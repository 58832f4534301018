// @ts-check
// What happened and what was decided, newest first, in the sentences of the commands. A line keeps
// its element while others arrive.

import { clock } from "./format.js";
import { Link, Name, opening, Skeleton } from "./parts.js";
import { planKey } from "./store.js";
import { html } from "./view.js";

/** Words for verbs, where they differ. @type {Record<string, string>} */
const WORDS = { prioritize: "score" };
const SHOWN = 60;

/**
 * One event: when, its sentence, and where it leads.
 * @param {{ at: number, text: string, kind: string, to?: Record<string, any> | null, more?: any,
 *   [attribute: string]: any }} props
 */
function Line({ at, text, kind, to, more, ...attributes }) {
  const parts = html`
    <span class="when">${clock(at)}</span>
    <span class="text"><${Name} text=${text} />${more}</span>
  `;
  return html`<li class=${`line ${kind}`}>${
    to
      ? html`<${Link} to=${to} class="row" ...${attributes}>${parts}</${Link}>`
      : html`<span class="row">${parts}</span>`
  }</li>`;
}

/**
 * The sentence first, and its kind behind it.
 * @param {{ brief: any, scored?: any }} props `scored`: the score that an outcome followed, which it
 *   opens
 */
export function DecisionLine({ brief, scored }) {
  const kind = `${brief.verb}${brief.refused ? " refused" : ""}`;
  const text = scored ? `${brief.sentence} ${scored.sentence}` : brief.sentence;
  const { entry } = scored || brief;
  const verb = WORDS[brief.verb] || brief.verb;
  const shape = brief.class === "performance" ? "perf" : "std";
  const more = html`
    <span class="verb">${` ${verb}`}</span>
    ${brief.class && html`<span class=${`chip ${brief.class}`}>${shape}</span>`}
  `;
  return html`
    <${Line} at=${brief.at_ms} text=${text} kind=${kind} more=${more}
      to=${opening("decision", entry)} data-entry=${brief.entry} data-scored=${scored?.entry} />
  `;
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
  const { plan, transition } = entry;
  if (plan) return html`<${Line} at=${entry.at_ms} text=${plan.text} kind="plan" />`;
  const to = isHere ? null : opening("node", transition.node);
  const kind = `transition ${transition.kind}`;
  return html`<${Line} at=${entry.at_ms} text=${transition.text} kind=${kind} to=${to} />`;
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

/**
 * What plans changed, step by step, and the pods that every node refused: each pod once, by its
 * newest answer.
 * @param {{ plans: any[] | null, decisions: any[] | null }} props
 */
export function Happened({ plans, decisions }) {
  const steps = plans?.filter(({ transition }) => transition);
  const items = steps && decisions && [...steps, ...refusals(decisions)]
    .sort((a, b) => b.at_ms - a.at_ms).slice(0, SHOWN);
  return html`
    <${Lines} id="happened" what="events" items=${items} label="What happened, newest first">
        ${items?.map((item) =>
          item.verb
            ? html`<${DecisionLine} key=${`entry ${item.entry}`} brief=${item} />`
            : html`<${PlanLine} key=${planKey(item)} entry=${item} />`
        )}
      </${Lines}>
  `;
}

/** @param {any[]} decisions newest first */
function refusals(decisions) {
  const seen = new Set();
  return decisions.filter(({ candidates, refused, pod_uid: uid }) => {
    const isFirst = candidates > 0 && refused === candidates && !seen.has(uid);
    if (isFirst) seen.add(uid);
    return isFirst;
  });
}
