// @ts-check
// Finds a pod or a node by a part of its name. Deleted pods are found by their whole name.

import { ask } from "./api.js";
import { Name, opening } from "./parts.js";
import { change } from "./state.js";
import { moment } from "./store.js";
import { Component, createRef, html } from "./view.js";

const SHOWN = 8;
const PAUSE_MS = 150;

/** @typedef {{ kind: string, words: string, to: Record<string, any> | null }} Option */

/** @param {string} q @returns {Promise<Option[]>} */
async function matches(q) {
  const query = { ...moment(), q, limit: SHOWN };
  const [pods, nodes] = await Promise.all([ask("pods", query), ask("nodes", query)]);
  const here = [
    ...nodes.items.map((/** @type {any} */ { name }) => (
      { kind: "node", words: name, to: opening("node", name) }
    )),
    ...pods.items.map((/** @type {any} */ { namespace, name, uid }) => (
      { kind: "pod", words: `${namespace}/${name}`, to: opening("pod", uid) }
    )),
  ];
  if (here.length || !q.includes("/")) return here;
  const past = await ask("decisions", { pod: q, limit: 1 });
  return past.items.map((/** @type {any} */ { pod_uid: uid }) => (
    { kind: "deleted", words: q, to: opening("pod", uid) }
  ));
}

export class Search extends Component {
  form = createRef();
  input = createRef();
  asked = 0;
  timer = 0;
  state = { options: /** @type {Option[] | null} */ (null) };

  async look() {
    clearTimeout(this.timer);
    const q = this.input.current.value.trim();
    const mine = this.asked += 1;
    if (!q) return this.setState({ options: null });
    /** @type {Option[]} */
    const options = await matches(q).catch((
      error,
    ) => [{ kind: "", words: error.message, to: null }]);
    if (mine === this.asked) this.setState({ options });
  }

  /** @param {Option} option */
  choose({ to }) {
    this.setState({ options: null });
    this.input.current.value = "";
    if (to) change(to);
  }

  /** @param {number} by */
  walk(by) {
    const buttons = [...this.form.current.querySelectorAll("li button")];
    const at = buttons.indexOf(/** @type {any} */ (document.activeElement)) + by;
    (at < 0 ? this.input.current : buttons[Math.min(at, buttons.length - 1)])?.focus();
  }

  /** @param {KeyboardEvent} event */
  key = (event) => {
    if (event.key === "Escape") {
      event.preventDefault();
      this.setState({ options: null });
      this.input.current.focus();
    } else if (event.key === "ArrowDown" || event.key === "ArrowUp") {
      this.walk(event.key === "ArrowDown" ? 1 : -1);
      event.preventDefault();
    }
  };

  typed = () => {
    clearTimeout(this.timer);
    this.timer = setTimeout(() => this.look(), PAUSE_MS);
  };

  /** @param {Event} event */
  submit = async (event) => {
    event.preventDefault();
    await this.look();
    const { options } = this.state;
    if (options?.length) this.choose(options[0]);
  };

  /** @param {FocusEvent} event */
  left = (event) => {
    const isInside = this.form.current.contains(event.relatedTarget);
    if (!isInside) this.setState({ options: null });
  };

  render() {
    const { options } = this.state;
    return html`
      <form id="search" class="search" role="search" autocomplete="off" ref=${this.form}
        onSubmit=${this.submit} onKeyDown=${this.key} onFocusOut=${this.left}>
            <label class="unseen" for="q">Find a pod or a node</label>
            <input id="q" type="search" placeholder="Find a pod or a node  ( / )" maxlength="500"
              ref=${this.input} onInput=${this.typed} />
            ${options && html`<ul id="found" class="found" aria-label="Search results">
        ${
              options.length
                ? options.map((option) =>
                  html`
                    <${Match} key=${JSON.stringify(option)}
                      option=${option} choose=${() => this.choose(option)} />
                  `
                )
                : html`<li class="empty">No match.</li>`
            }
      </ul>`}
          </form>
    `;
  }
}

/** @param {{ option: Option, choose: () => void }} props */
const Match = ({ option, choose }) =>
  html`<li><button type="button" onClick=${choose}>
    <span class="kind">${option.kind}</span><${Name} text=${option.words} />
  </button></li>`;
