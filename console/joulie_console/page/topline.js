// @ts-check
// One line above everything: how everything is, in one sentence of the console, the worst first; or,
// in the past, of when everything is. Nothing of now is shown then.

import { clock, count, lasting, moment } from "./format.js";
import { leavePast } from "./keys.js";
import { Name } from "./parts.js";
import { model } from "./store.js";
import { html } from "./view.js";
import { GONE_MS, SILENT_MS } from "./vocabulary.js";

const HEARD_MS = 2 * SILENT_MS; // the console sends its state each second

/** For screen readers: the sentence itself counts seconds, and would be read all the time. */
const LEVELS = {
  well: "All is well",
  unknown: "Not known",
  warning: "A warning",
  serious: "Something is down",
};

/** @typedef {{ level: keyof typeof LEVELS, text: string, others: string[] }} Health */

/** @param {{ at: string }} props */
export function TopLine({ at }) {
  const { warning } = model;
  return html`
    ${at ? html`<${Past} at=${at} />` : html`<${Now} />`}
    ${warning &&
      html`
        <p id="notice" class="notice" role="status">
          <${Name} text=${warning} />
        </p>
      `}
  `;
}

// --- now --------------------------------------------------------------------------------------

function Now() {
  /** @type {Health} */
  const { level, text, others } = health();
  return html`
    <div id="top-line" class=${`top-line ${level}`} role="region" aria-label="Health">
      <span class="state" aria-hidden="true"></span>
      <p id="health"><${Name} text=${text} /></p>
      ${others.length > 0 && html`<${Others} others=${others} />`}
      <p class="position">${model.cluster && `position ${count(model.cluster.position)}`}</p>
      <p class="unseen" role="status">${LEVELS[level]}</p>
    </div>
  `;
}

/** What the console says, or that of the page itself: what a lost console said is of then. */
function health() {
  const { cluster, connected, lost } = model;
  if (lost) return { level: cluster ? "serious" : "unknown", text: lost, others: [] };
  if (!connected || !cluster?.health) {
    return { level: "unknown", text: "Not connected yet.", others: [] };
  }
  return silence() || cluster.health;
}

/** A console that hangs sends nothing, and its last sentence was true of then. */
function silence() {
  const { cluster, heardAt } = model;
  const ms = performance.now() - heardAt;
  if (ms < HEARD_MS) return null;
  const when = moment(cluster.at_ms);
  const text = `The console has sent nothing for ${lasting(ms)}: all figures are of ${when}.`;
  return { level: ms < GONE_MS ? "warning" : "serious", text, others: [] };
}

/** @param {{ others: string[] }} props */
const Others = ({ others }) =>
  html`
    <details id="also">
      <summary>${`and ${count(others.length)} more`}</summary>
      <ul>${others.map((text, at) =>
        html`
          <li key=${at}>
            <${Name} text=${text} />
          </li>
        `
      )}</ul>
    </details>
  `;

// --- the past ---------------------------------------------------------------------------------

/** @param {{ at: string }} props */
function Past({ at }) {
  const { pastError } = model;
  return html`
    <div id="top-line" class="top-line past" role="region" aria-label="The past">
      <span class="state" aria-hidden="true"></span>
      <p id="past" role=${pastError ? "alert" : "status"}>
        <${Name} text=${pastError || ofWhen(at)} />
      </p>
      <${ReturnToNow} />
    </div>
  `;
}

/** @param {string} at */
function ofWhen(at) {
  const { past } = model;
  if (!past) return `Reading position ${at}.`;
  const isToday = new Date(past.at_ms).toDateString() === new Date().toDateString();
  const when = (isToday ? clock : moment)(past.at_ms);
  return `As it was at ${when} (position ${count(past.position)}).`;
}

export const ReturnToNow = () =>
  html`<button type="button" class="to-now" onClick=${leavePast}>Return to now${" "}
    <kbd>Esc</kbd></button>`;
