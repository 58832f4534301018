// @ts-check
// The frame of every page: the name, the search, the pages, warnings, the panel, and time.

import { setToken } from "./api.js";
import { Detail } from "./detail.js";
import { Energy } from "./energy.js";
import { count, lasting } from "./format.js";
import { Overview } from "./overview.js";
import { closing, Link, Name } from "./parts.js";
import { Pending } from "./pending.js";
import { Search } from "./search.js";
import { model, update } from "./store.js";
import { Time } from "./time.js";
import { Component, createRef, html } from "./view.js";
import { GONE_MS, SILENT_MS } from "./vocabulary.js";

const PAGES = [["", "Overview"], ["pending", "Pending pods"], ["energy", "Energy"]];
const THEMES = ["auto", "dark", "light"];

/** @typedef {import("./state.js").Selection} Selection */

/** @param {{ now: Selection }} props */
export function App({ now }) {
  /** @type {Record<string, any>} */
  const pages = { "": Overview, pending: Pending, energy: Energy };
  const Page = Object.hasOwn(pages, now.page) ? pages[now.page] : NoPage;
  return html`
    <${Top} now=${now} />
    <${Warnings} />
    <main id="content" tabindex="-1" class=${now.page ? "one" : "grid"}>
      <${Page} now=${now} />
    </main>
    ${(now.node || now.pod || now.decision) &&
      html`<${Detail} now=${now} answer=${model.detail} />`}
    <${Time} at=${now.at} cluster=${model.cluster} past=${model.past} reach=${model.reach} />
    ${model.tokenWhy && html`<${TokenDialog} why=${model.tokenWhy} />`}
  `;
}

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
      <${Age} isPast=${Boolean(now.at)} />
      <button id="theme" class="quiet" type="button" onClick=${nextTheme}>
          ${`Theme: ${model.theme}`}
        </button>
    </header>
  `;
}

// --- the age of what is shown -----------------------------------------------------------------

/** The dot is green only for what is live, and red for what is not current. */
const KINDS = { live: "age live", old: "age old", neither: "age" };

/** @param {boolean} isPast @returns {[kind: keyof typeof KINDS, text: string]} */
function age(isPast) {
  const { cluster, connected, heardAt } = model;
  if (!cluster) return ["neither", "connecting"];
  const isKnown = cluster.age_ms !== null && cluster.behind_ms !== null;
  const ms = isKnown
    ? Math.max(cluster.age_ms, cluster.behind_ms) + performance.now() - heardAt
    : Infinity;
  const old = isKnown ? `${lasting(ms)} old` : "of an unknown age";
  const newest = `position ${count(cluster.position)} \u00b7 ${ms < SILENT_MS ? "fresh" : old}`;
  if (!connected) return ["old", `not connected \u00b7 ${newest}`];
  if (isPast) return [ms > GONE_MS ? "old" : "neither", `past state; newest is ${newest}`];
  if (ms > GONE_MS) return ["old", `late \u00b7 ${newest}`];
  return ["live", `live \u00b7 ${newest}`];
}

/** @param {{ isPast: boolean }} props */
function Age({ isPast }) {
  const [kind, text] = age(isPast);
  return html`<p id="age" class=${KINDS[kind]} role="status">
    <span class="dot" aria-hidden="true"></span><span>${text}</span></p>`;
}

/** The console's warnings, or that of the page itself: what a lost console said last is of then. */
function Warnings() {
  const own = model.warning ? [{ level: "serious", part: "console", text: model.warning }] : [];
  const told = model.connected ? [...own, ...(model.cluster?.warnings || [])] : own;
  return html`
    <div id="warnings" class="warnings" role="region" aria-label="Warnings"
      aria-live="polite">
        ${told.map(({ level, part, text }) =>
          html`<p key=${`${part} ${level}`} class=${`warning ${level}`}>
      <strong>${part}</strong> <${Name} text=${text} /></p>`
        )}
      </div>
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
