// Time travel: a slider over the positions. Its right end is now.

import { ask } from "./api.js";
import { byId } from "./dom.js";
import { count, moment as momentText } from "./format.js";

const PAUSE_MS = 200;
const LATEST = 5; // positions from the end that still mean "now"

export class Time {
  constructor(go) {
    this.go = go;
    this.slider = byId("slider");
    this.newest = 0;
    this.at = "";
    let timer = 0;
    this.slider.addEventListener("input", () => {
      clearTimeout(timer);
      const wanted = Number(this.slider.value);
      this.#setText(`position ${count(wanted)}`);
      timer = setTimeout(() => this.#choose(wanted), PAUSE_MS);
    });
    byId("to-now").addEventListener("click", () => this.go({ at: "" }));
    byId("back-minute").addEventListener("click", () => this.#back(60_000));
  }

  async begin() {
    const reach = await ask("reach");
    this.slider.min = reach.first;
  }

  #choose(position) {
    this.go({ at: position >= this.newest - LATEST ? "" : String(position) });
  }

  async #back(ms) {
    const from = this.shownAt || Date.now();
    try {
      const found = await ask("cluster", { time: new Date(from - ms).toISOString() });
      this.#choose(found.position);
    } catch (error) {
      this.#setText(error.message);
    }
  }

  // Sets the newest position.
  reached(position) {
    this.newest = position;
    this.slider.max = position;
    if (!this.at) this.slider.value = position;
  }

  show(at) {
    this.at = at;
    if (at) this.slider.value = at;
    else {
      this.slider.value = this.newest;
      this.shownAt = 0;
    }
    byId("to-now").setAttribute("aria-pressed", String(!at));
    document.body.classList.toggle("past", Boolean(at));
    if (!at) this.#setText("now");
  }

  arrived({ position, at_ms: atMs }) {
    this.shownAt = atMs;
    this.#setText(`${momentText(atMs)}, position ${count(position)}`);
  }

  #setText(text) {
    byId("when").textContent = text;
    this.slider.setAttribute("aria-valuetext", text);
  }
}
