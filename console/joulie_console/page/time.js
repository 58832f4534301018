// @ts-check
// Time travel: a slider over the positions. Its right end is now.

import { ask } from "./api.js";
import { count, moment as momentText } from "./format.js";
import { change } from "./state.js";
import { model } from "./store.js";
import { Component, html } from "./view.js";

const PAUSE_MS = 200;
const LATEST = 5; // positions from the end that still mean "now"
const BACK_MS = 60_000;

/** @param {number} position */
function choose(position) {
  const newest = model.cluster?.position ?? 0;
  change({ at: position >= newest - LATEST ? "" : position });
}

/** Props: at, the selected position; cluster, past, reach. */
export class Time extends Component {
  timer = 0;
  /** @type {{ moved: number | null, error: string }} */
  state = { moved: null, error: "" };

  /** @param {any} event */
  slide = (event) => {
    clearTimeout(this.timer);
    const wanted = Number(event.currentTarget.value);
    this.setState({ moved: wanted, error: "" });
    this.timer = setTimeout(() => {
      this.setState({ moved: null });
      choose(wanted);
    }, PAUSE_MS);
  };

  back = async () => {
    const from = this.props.past?.at_ms || Date.now();
    try {
      const found = await ask("cluster", { time: new Date(from - BACK_MS).toISOString() });
      this.setState({ error: "" });
      choose(found.position);
    } catch (error) {
      this.setState({ error: /** @type {Error} */ (error).message });
    }
  };

  #text() {
    const { moved, error } = this.state;
    const { at, past } = this.props;
    if (error) return error;
    if (moved !== null) return `position ${count(moved)}`;
    if (!at) return "now";
    if (!past) return `position ${count(Number(at))}`;
    return `${momentText(past.at_ms)}, position ${count(past.position)}`;
  }

  render() {
    const { at, cluster, reach } = this.props;
    const newest = cluster?.position ?? 0;
    const text = this.#text();
    const value = this.state.moved ?? (Number(at) || newest);
    const live = () => change({ at: "" });
    return html`
      <footer class="time">
        <button id="to-now" type="button" aria-pressed=${String(!at)} onClick=${live}>Live</button>
        <button id="back-minute" type="button" onClick=${this.back}>Back 1 min</button>
        <label class="unseen" for="slider">Position in time</label>
        <input id="slider" type="range" min=${reach?.first ?? 0} max=${newest} step="1"
          value=${value} aria-valuetext=${text} onInput=${this.slide} />
        <output id="when" for="slider">${text}</output>
      </footer>
    `;
  }
}
