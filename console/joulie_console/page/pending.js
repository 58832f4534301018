// @ts-check
// Why pods are pending: the reason and what to do, once for all pods that it concerns.

import { ago, count } from "./format.js";
import { Failure, heads, Link, Name, opening, PodLink, Skeleton, Table } from "./parts.js";
import { model } from "./store.js";
import { html } from "./view.js";

const COLUMNS = ["Pod", "Class", "Requests", "First asked", "Why", "What to do"];

export function Pending() {
  const { found, error } = model.pending || {};
  return html`<section class="card page-card" aria-labelledby="pending-title">
    <div class="card-head">
      <h2 id="pending-title" tabindex="-1">Why pods are pending</h2>
      <p class="muted">${found && summary(found)}</p>
    </div>
    ${error && html`<${Failure} text=${error} />`}
    ${!found && !error && html`<${Skeleton} what="the pending pods" lines=${6} />`}
    ${found && !found.total && html`<p class="empty">No pod is pending.</p>`}
    ${found && found.total > 0 && html`<${Pods} found=${found} />`}
  </section>`;
}

/** @param {any} found */
function summary({ total, causes, unread }) {
  const parts = Object.entries(causes).map(([cause, pods]) => `${count(pods)} ${cause}`);
  const rest = unread ? `; ${count(unread)} more are not examined` : "";
  return `${count(total)} pending${parts.length ? `: ${parts.join(", ")}` : ""}${rest}`;
}

/** @param {{ found: any }} props */
function Pods({ found }) {
  const left = found.total - found.items.length;
  return html`
    <${Table} label="Pending pods" head=${heads(COLUMNS)}>
      ${alike(found.items).map((items) => html`<${Row} key=${items[0].pod.uid} items=${items} />`)}
    </${Table}>
    ${left > 0 && html`<p class="muted">${`${count(left)} more are in the API's response.`}</p>`}
  `;
}

/**
 * Pods that wait for the same reason, in the order of their first one.
 * @param {any[]} items
 * @returns {any[][]}
 */
function alike(items) {
  /** @type {Map<string, any[]>} */
  const groups = new Map();
  for (const item of items) {
    const { pod, cause, reason, advice } = item;
    const key = JSON.stringify([cause, reason, advice, pod.class, pod.cores, pod.gpus]);
    groups.set(key, [...(groups.get(key) ?? []), item]);
  }
  return [...groups.values()];
}

/** @param {{ items: any[] }} props */
function Row({ items }) {
  const [{ pod, cause, reason, advice, entry, since_ms: since }] = items;
  const gpus = pod.gpus ? `, ${pod.gpus} GPU` : "";
  return html`
    <tr>
      <th scope="row">
        <${PodLink} pod=${pod} uid=${pod.uid} />
        ${items.length > 1 && html`<${Others} items=${items.slice(1)} />`}
      </th>
      <td>${pod.class}</td>
      <td>${`${pod.cores} ${pod.cores === 1 ? "core" : "cores"}${gpus}`}</td>
      <td class="when">${since ? ago(since) : "not yet"}</td>
      <td class="prose"><strong>${cause}</strong>: <${Name} text=${reason} />
          ${entry !== null && html`
            ${" ("}<${Link} to=${opening("decision", entry)}>entry ${entry}</${Link}>)
          `}
        </td>
      <td class="prose">${advice}</td>
    </tr>
  `;
}

/** @param {{ items: any[] }} props */
function Others({ items }) {
  return html`
    <details>
      <summary>${`and ${count(items.length)} more`}</summary>
      ${items.map(({ pod }) =>
        html`
          <div key=${pod.uid}>
            <${PodLink} pod=${pod} uid=${pod.uid} />
          </div>
        `
      )}
    </details>
  `;
}
