// @ts-check
// The list of keys.

import { update } from "./store.js";
import { Component, createRef, html } from "./view.js";

/** @type {Array<[keys: string[], does: string]>} */
const KEYS = [
  [["/"], "find a pod or a node, from anywhere"],
  [["?"], "this list"],
  [["Esc"], "close what is open; then return from the past to now"],
  [["\u2191", "\u2193", "Enter"], "in the results of a search: choose, open"],
  [["\u2190", "\u2192", "\u2191", "\u2193", "Home", "End"], "on the map: move from node to node"],
  [["Enter"], "on the map: open the node"],
  [["\u2190", "\u2192", "Home", "End"], "on a chart: read its values"],
  [["+", "\u2212"], "on a chart: zoom; Esc shows all of it"],
  [["\u2190", "\u2192"], "on the slider: go back and forth in time"],
];

export class Help extends Component {
  dialog = createRef();

  componentDidMount() {
    this.from = document.activeElement;
    this.dialog.current.showModal();
  }

  componentWillUnmount() {
    /** @type {HTMLElement | undefined} */ (this.from)?.focus?.();
  }

  render() {
    const closed = () => update({ help: false });
    return html`
      <dialog id="help" aria-labelledby="help-title" ref=${this.dialog} onClose=${closed}>
        <form method="dialog">
          <h2 id="help-title">Keys</h2>
          <dl class="keys-list">${KEYS.map(([keys, does]) =>
            html`
              <div key=${does}>
                <dt>${keys.map((key) =>
                  html`
                    <kbd key=${key}>${key}</kbd>
                  `
                )}</dt>
                <dd>${does}</dd>
              </div>
            `
          )}</dl>
          <button type="submit">Close</button>
        </form>
      </dialog>
    `;
  }
}
