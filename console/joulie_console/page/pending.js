// @ts-check
// Why pods are pending: each pod with the reason and what to do.

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
      ${found.items.map((/** @type {any} */ item) =>
        html`<${Row} key=${item.pod.uid} item=${item} />`
      )}
    </${Table}>
    ${left > 0 && html`<p class="muted">${`${count(left)} more are in the API's response.`}</p>`}
  `;
}

/** @param {{ item: any }} props */
function Row({ item: { pod, cause, reason, advice, entry, since_ms: since } }) {
  const gpus = pod.gpus ? `, ${pod.gpus} GPU` : "";
  return html`
    <tr>
      <th scope="row">
        <${PodLink} pod=${pod} uid=${pod.uid} />
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
