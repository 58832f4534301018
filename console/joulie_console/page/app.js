// @ts-check
// The frame of every page: its health, the name, the search, the pages, the panel, and time.

import { setToken } from "./api.js";
import { Detail } from "./detail.js";
import { Energy } from "./energy.js";
import { Help } from "./help.js";
import { showKeys } from "./keys.js";
import { Overview } from "./overview.js";
import { closing, Link, Name } from "./parts.js";
import { Pending } from "./pending.js";
import { Search } from "./search.js";
import { model, update } from "./store.js";
import { Time } from "./time.js";
import { ReturnToNow, TopLine } from "./topline.js";
import { Component, createRef, html } from "./view.js";

const PAGES = [["", "Overview"], ["pending", "Pending pods"], ["energy", "Energy"]];
const THEMES = ["auto", "dark", "light"];

/** @typedef {import("./state.js").Selection} Selection */

/** @param {{ now: Selection }} props */
export function App({ now }) {
  /** @type {Record<string, any>} */
  const pages = { "": Overview, pending: Pending, energy: Energy };
  const Page = pageOf(now, Object.hasOwn(pages, now.page) ? pages[now.page] : NoPage);
  return html`
    <${TopLine} at=${now.at} />
    <${Top} now=${now} />
    <main id="content" tabindex="-1" class=${now.page ? "one" : "grid"}>
      <${Page} now=${now} />
    </main>
    ${(now.node || now.pod || now.decision) &&
      html`<${Detail} now=${now} answer=${model.detail} />`}
    <${Time} at=${now.at} cluster=${model.cluster} past=${model.past} reach=${model.reach} />
    ${model.help && html`<${Help} />`}
    ${model.tokenWhy && html`<${TokenDialog} why=${model.tokenWhy} />`}
  `;
}

/** Of the past only the overview and the panel are known. @param {Selection} now @param {any} page */
function pageOf(now, page) {
  if (!now.at || page === NoPage) return page;
  if (model.pastError) return NothingThen;
  return now.page ? OnlyNow : page;
}

const NothingThen = () =>
  html`
    <section class="card" aria-labelledby="nothing-then">
      <h2 id="nothing-then">Nothing of that position can be shown</h2>
      <p>Move the slider below, or return to now.</p>
    </section>
  `;

const OnlyNow = () =>
  html`
    <section class="card" aria-labelledby="only-now">
      <h2 id="only-now">This page is of now only</h2>
      <p>Of the past the overview, nodes, pods and decisions are known.</p>
      <p>
        <${ReturnToNow} />
      </p>
    </section>
  `;

/** @param {{ now: Selection }} props */
function NoPage({ now }) {
  return html`
    <section class="card" aria-labelledby="no-page">
      <h2 id="no-page">Nothing has this address</h2>
      <p>The address names the page <${Name} text=${now.page} />, which does not exist. Choose one
          above.</p>
    </section>
  `;
}

/** @param {{ now: Selection }} props */
function Top({ now }) {
  return html`
    <header class="top">
      <h1 class="brand"><span aria-hidden="true" class="mark"></span>Joulie${" "}
          <span class="muted">${model.cluster &&
            html`<${Name} text=${model.cluster.cluster} />`}</span>
        </h1>
      <nav aria-label="Pages">
        <ul>${PAGES.map(([page, label]) =>
          html`
            <li key=${page}>
              <${Link} to=${{ page, ...closing }} aria-current=${now.page === page ? "page" : null}>
                      ${label}
                    </${Link}></li>
          `
        )}</ul>
      </nav>
      <${Search} />
      <button id="keys" class="quiet" type="button" aria-label="Keys" title="Keys (?)"
        onClick=${showKeys}>?</button>
      <button id="theme" class="quiet" type="button" onClick=${nextTheme}>
          ${`Theme: ${model.theme}`}
        </button>
    </header>
  `;
}

// --- dark and light ---------------------------------------------------------------------------

function nextTheme() {
  const theme = THEMES[(THEMES.indexOf(model.theme) + 1) % THEMES.length];
  localStorage.setItem("theme", theme);
  if (theme === "auto") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = theme;
  update({ theme });
}

// --- the token, if one is required ------------------------------------------------------------

/** @type {(() => void) | null} */
let resume = null;
/** @type {Promise<void> | null} */
let entered = null;

/** Opens the dialog; the promise ends when a token is entered. @param {string} why */
export function askForToken(why) {
  entered ||= new Promise((done) => resume = done);
  update({ tokenWhy: why });
  return entered;
}

/** Props: why. */
class TokenDialog extends Component {
  dialog = createRef();
  input = createRef();

  componentDidMount() {
    this.dialog.current.showModal();
  }

  /** @param {Event} event */
  enter = (event) => {
    event.preventDefault();
    setToken(this.input.current.value.trim());
    update({ tokenWhy: "" });
    entered = null;
    resume?.();
  };

  render() {
    const stay = (/** @type {Event} */ event) => event.preventDefault();
    return html`
      <dialog id="token-dialog" aria-labelledby="token-title" ref=${this.dialog}
        onCancel=${stay}>
        <form onSubmit=${this.enter}>
          <h2 id="token-title">This console requires a token</h2>
          <p role="status">${this.props.why}</p>
          <label for="token">Token</label>
          <input id="token" type="password" autocomplete="off" required ref=${this.input} />
          <button type="submit">Continue</button>
        </form>
      </dialog>
    `;
  }
}
