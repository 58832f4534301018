// @ts-check
// The life of a pod: each attempt with its reason and its terms, and what became of it.

import { moment as momentText } from "./format.js";
import { Link, Name, opening, Table } from "./parts.js";
import { Component, html } from "./view.js";

/** @typedef {{ head: string[], rows: string[][], notes: string[] }} TermTable */
/** @typedef {{ at_ms: number | null, kind: string, text: string, entries: number[],
 *   table: TermTable | null }} Moment */

/** @param {{ moments: Moment[] }} props oldest first */
export function Timeline({ moments }) {
  if (!moments.length) return html`<p class="muted">Nothing about it is in the log.</p>`;
  const newest = moments.findLast(({ table }) => table);
  return html`<ol class="timeline">${
    moments.map((each, at) =>
      html`
        <${OneMoment} key=${each.entries[0] ?? `${each.kind} ${at}`} moment=${each}
          isNewest=${each === newest} />
      `
    )
  }</ol>`;
}

/** @param {{ moment: Moment, isNewest: boolean }} props */
function OneMoment({ moment: { at_ms: atMs, kind, text, entries, table }, isNewest }) {
  const time = atMs === null ? html`<span class="when muted">time not known</span>` : html`
    <time class="when muted" datetime=${new Date(atMs).toISOString()}
      title=${new Date(atMs).toISOString()}>${momentText(atMs)}</time>
  `;
  return html`<li class=${kind}>
    ${time}
    <p><${Name} text=${text} /></p>
    ${
    entries.length > 0 && html`<p class="muted">${
      entries.map((entry) =>
        html`
          <${Link} key=${entry} to=${opening("decision", entry)}>entry ${entry}</${Link}>
        `
      )
    }</p>`
  }
    ${table && html`<${Terms} table=${table} isOpen=${isNewest} />`}
  </li>`;
}

/** The table of `joulie explain`; that of an older attempt is made when it is opened. */
class Terms extends Component {
  state = { isOpen: this.props.isOpen };

  render() {
    const { table: { rows, notes, head } } = this.props;
    const { isOpen } = this.state;
    const toggle = (/** @type {any} */ event) =>
      this.setState({ isOpen: event.currentTarget.open });
    return html`
      <details open=${isOpen} onToggle=${toggle}>
        <summary>${`Terms of the best ${rows.length === 1 ? "node" : `${rows.length} nodes`}`}
        </summary>
        ${isOpen && html`<${TermsTable} head=${head} rows=${rows} />`}
        ${isOpen &&
          notes.map((/** @type {string} */ note) => html`<p key=${note} class="muted">${note}</p>`)}
      </details>
    `;
  }
}

/**
 * What the points follow from comes first, then the points; `|` stands between both.
 * @param {{ head: string[], rows: string[][] }} props
 */
function TermsTable({ head, rows }) {
  const edge = head.indexOf("|"), last = head.length - 1;
  const kind = (/** @type {number} */ at) => at === last ? null : at === edge + 1 ? "n edge" : "n";
  const shown = (/** @type {any[]} */ cells) => cells.filter((_, at) => at === 0 || at !== edge);
  const title = edge > 0 ? "In watts, then in points" : "In points";
  const columns = head.map((label, at) =>
    html`<th key=${label} scope="col" class=${at ? kind(at) : null}>${label || "node"}</th>`
  );
  return html`
    <${Table} label=${title} caption=${title} kind="terms" head=${shown(columns)}>
      ${rows.map(([node, ...cells]) =>
        html`<tr key=${node}>
          <th scope="row"><${Name} text=${node} /></th>
          ${
          shown(
            ["", ...cells].map((cell, at) =>
              at ? html`<td key=${at} class=${kind(at)}>${cell}</td>` : null
            ),
          )
        }
        </tr>`
      )}
    </${Table}>
  `;
}
