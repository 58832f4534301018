// @ts-check
// Small parts that all pages use.

import { plain } from "./format.js";
import { closing } from "./keys.js";
import { address, change } from "./state.js";
import { html } from "./view.js";

const LONG = 24; // characters; longer names are cut off in narrow places

/**
 * A name from the cluster, isolated so that it cannot change the direction of other text.
 * @param {{ text: string }} props
 */
export function Name({ text }) {
  const shown = plain(text);
  const isCut = shown.length > LONG && !shown.includes(" "); // a sentence is never cut off
  const title = isCut ? shown : null;
  return html`<bdi class="name" title=${title}>${shown}</bdi>`;
}

/** @typedef {Record<string, string | number>} Changes */

/** Changes of the selection that open something in the panel.
 * @param {"node" | "pod" | "decision"} what
 * @param {string | number} which
 */
export const opening = (what, which) => ({ ...closing, [what]: which });
export { closing };

/**
 * A link to another selection. A plain click stays on the page; the browser does the rest, such as
 * opening it in a new tab.
 * @param {{ to: Changes, children?: any, [attribute: string]: any }} props
 */
export function Link({ to, children, ...attributes }) {
  /** @param {MouseEvent} event */
  const go = (event) => {
    if (event.button || event.metaKey || event.ctrlKey || event.shiftKey || event.altKey) return;
    event.preventDefault();
    change(to);
  };
  return html`<a href=${address(to)} onClick=${go} ...${attributes}>${children}</a>`;
}

/** @param {{ name: string }} props */
export const NodeLink = ({ name }) =>
  html`
    <${Link} to=${opening("node", name)}>
      <${Name} text=${name} />
      </${Link}>
  `;

/** @param {{ pod: { namespace: string, name: string }, uid: string }} props */
export const PodLink = ({ pod, uid }) =>
  html`
    <${Link} to=${opening("pod", uid)}>
      <${Name} text=${`${pod.namespace}/${pod.name}`} />
      </${Link}>
  `;

/**
 * Terms with their values. A row that is empty is left out.
 * @param {{ rows: Array<[any, any] | null> }} props
 */
export function Facts({ rows }) {
  const shown = rows.filter(Boolean).map((row) => row || []);
  return html`<dl class="facts">
    ${
    shown.map(([term, value]) =>
      html`
        <div>
          <dt>${term}</dt>
          <dd>${value}</dd>
        </div>
      `
    )
  }
  </dl>`;
}

/**
 * A table that scrolls, with a name.
 * @param {{ label: string, caption?: any, head: any, children?: any, kind?: string }} props
 */
export function Table({ label, caption, head, children, kind }) {
  return html`
    <div class="scroll" tabindex="0" role="region" aria-label=${label}>
      <table class=${kind}>
        <caption class=${caption ? null : "unseen"}>${caption || label}</caption>
        <thead>
          <tr>${head}</tr>
        </thead>
        <tbody>${children}</tbody>
      </table>
    </div>
  `;
}

/**
 * The heads of columns; those of numbers are aligned like the numbers.
 * @param {any[]} labels
 * @param {string[]} [numbers]
 */
export const heads = (labels, numbers = []) =>
  labels.map((label) =>
    html`<th scope="col" class=${numbers.includes(label) ? "n" : null}>${label}</th>`
  );

/**
 * A placeholder while something loads, with text for screen readers.
 * @param {{ what: string, lines?: number }} props
 */
export function Skeleton({ what, lines = 3 }) {
  return html`<div class="skeleton" aria-busy="true">
    <p class="unseen">Loading ${what}.</p>
    ${Array.from({ length: lines }, (_, at) => html`<span key=${at} aria-hidden="true"></span>`)}
  </div>`;
}

/** @param {{ text: string }} props */
export const Failure = ({ text }) =>
  html`
    <p class="empty warned" role="alert">
      <${Name} text=${text} />
    </p>
  `;

/**
 * A chosen value of the URL.
 * @param {{ label: string, name: string, value: string, options: string[][], hidden?: boolean }}
 *   props
 */
export function Choice({ label, name, value, options, hidden }) {
  /** @param {any} event */
  const choose = (event) => change({ [name]: event.currentTarget.value });
  return html`<label>
    <span class=${hidden ? "unseen" : null}>${label}</span>${" "}
    <select id=${name} value=${value} onChange=${choose}>
      ${options.map(([key, text]) => html`<option key=${key} value=${key}>${text}</option>`)}
    </select>
  </label>`;
}
