// @ts-check
// The cluster as a map: one square per node. Drawn after a change, at most once per frame.

import {
  classColours,
  colourOf,
  ramp,
  roleColour,
  scaleOf,
  sleepColours,
  stateColours,
  unknownColour,
} from "./colours.js";
import { ask } from "./api.js";
import { percent, plain, watts } from "./format.js";
import { opening } from "./parts.js";
import { change } from "./state.js";
import { moment } from "./store.js";
import { Component, createRef, html } from "./view.js";
import { CLASSES, POWER_STATES } from "./vocabulary.js";

const LARGEST = 26; // on a desktop screen; a wall screen is read from a distance
const LARGEST_WALL = 72;
const WALL = 1900;
const SMALLEST = 4;
const LABEL = 16;
const LETTER = 7; // the width of a letter of a label
const [ASLEEP, WAKING] = [POWER_STATES.indexOf("asleep"), POWER_STATES.indexOf("waking")];
const FULL = 90; // percent of the cores, or of the GPUs, that are requested
const PAUSE_MS = 150; // before what keeps a node awake is asked for
const [ECO, DRAINING] = [CLASSES.indexOf("eco"), CLASSES.indexOf("draining")];

/** @typedef {{ x: number, y: number }} Place */
/** @typedef {Record<string, any>} Columns a response of /v1/map */

class NodeMap {
  /**
   * @param {HTMLCanvasElement} canvas
   * @param {HTMLElement} tip
   * @param {HTMLElement} status
   */
  constructor(canvas, tip, status) {
    this.canvas = canvas;
    this.tip = tip;
    this.status = status;
    /** @type {Columns | null} */
    this.nodes = null;
    this.colour = "headroom";
    this.group = "none";
    /** @type {Place[]} */
    this.cells = [];
    /** @type {Array<Place & { label: string }>} */
    this.labels = [];
    this.chosen = "";
    this.cell = SMALLEST;
    this.dense = 1;
    this.under = -1; // the cell that pointer or keyboard is on
    this.byKeys = false; // the keyboard chose the cell; reset when the pointer really moves
    this.dirty = false;
    this.asked = 0; // counts the nodes that the tip was about
    canvas.addEventListener("pointermove", (event) => this.#point(event));
    canvas.addEventListener("pointerleave", () => this.byKeys || this.#leave());
    canvas.addEventListener("click", () => this.under >= 0 && this.#open());
    canvas.addEventListener("keydown", (event) => this.#key(event));
    canvas.addEventListener("blur", () => this.#leave());
    this.resized = new ResizeObserver(() => this.layOut());
    this.resized.observe(/** @type {Element} */ (canvas.parentElement));
  }

  /** @param {{ nodes: Columns, colour: string, group: string, chosen: string }} given */
  show({ nodes, colour, group, chosen }) {
    const again = nodes !== this.nodes || group !== this.group || group === "class";
    const named = this.nodes?.name[this.under];
    Object.assign(this, { nodes, colour, group, chosen });
    if (named !== undefined) this.under = nodes.name.indexOf(named);
    if (again) this.layOut();
    else this.draw();
    if (!this.tip.hidden) this.#showTip(this.canvas.getBoundingClientRect());
  }

  get size() {
    return this.nodes ? this.nodes.id.length : 0;
  }

  // --- where each node goes -------------------------------------------------------------------

  layOut() {
    if (!this.nodes || !this.canvas.parentElement) return;
    const width = this.canvas.parentElement.clientWidth;
    const groups = this.#groups();
    const wall = innerWidth >= WALL;
    const room = Math.max(220, innerHeight * (wall ? 0.52 : 0.5));
    let cell = wall ? LARGEST_WALL : LARGEST;
    while (cell > SMALLEST && this.#place(groups, cell, width) > room) cell -= 1;
    const height = this.#place(groups, cell, width);
    this.cell = cell;
    this.dense = devicePixelRatio || 1;
    this.canvas.width = Math.round(width * this.dense);
    this.canvas.height = Math.round(height * this.dense);
    this.canvas.style.height = `${height}px`;
    this.draw();
  }

  #groups() {
    /** @type {Map<string, number[]>} */
    const named = new Map();
    for (let index = 0; index < this.size; index += 1) {
      const key = this.#groupOf(index);
      const members = named.get(key);
      if (members) members.push(index);
      else named.set(key, [index]);
    }
    return [...named].sort(([a], [b]) => a.localeCompare(b, "en", { numeric: true }));
  }

  /** @param {number} index */
  #groupOf(index) {
    const nodes = /** @type {Columns} */ (this.nodes);
    if (this.group === "rack") {
      return nodes.rack[index] ? `rack ${nodes.rack[index]}` : "without a rack";
    }
    return this.group === "class" ? CLASSES[nodes.class[index]] : "";
  }

  /**
   * Places the nodes, and returns the height. Small racks stand beside each other.
   * @param {Array<[string, number[]]>} groups
   * @param {number} cell
   * @param {number} width
   */
  #place(groups, cell, width) {
    this.cells = new Array(this.size);
    this.labels = [];
    const across = Math.max(1, Math.floor(width / cell));
    let [top, left, rowTall] = [0, 0, 0];
    for (const [label, members] of groups) {
      const letters = Math.ceil((label.length * LETTER) / cell);
      const wide = Math.min(across, Math.max(members.length, letters));
      const narrow = this.group === "rack" && wide <= across / 2;
      const square = Math.max(8, Math.ceil(Math.sqrt(members.length * 2)), letters);
      const block = narrow ? Math.min(across, square) : across;
      const head = label ? LABEL : 0;
      const tall = Math.ceil(members.length / block) * cell + head + 4;
      if (left && (!narrow || left + block > across)) [left, top] = [0, top + rowTall];
      rowTall = left ? Math.max(rowTall, tall) : tall;
      if (label) this.labels.push({ label, x: left * cell, y: top + 11 });
      members.forEach((index, place) => {
        const [column, row] = [place % block, Math.floor(place / block)];
        this.cells[index] = { x: (left + column) * cell, y: top + head + row * cell };
      });
      if (narrow) left += block + 1;
      else top += tall;
    }
    return Math.max(40, top + (left ? rowTall : 0));
  }

  // --- drawing --------------------------------------------------------------------------------

  draw() {
    if (this.dirty || !this.nodes) return;
    this.dirty = true;
    requestAnimationFrame(() => {
      this.dirty = false;
      this.#draw();
    });
  }

  #draw() {
    const nodes = /** @type {Columns} */ (this.nodes);
    const pen = /** @type {CanvasRenderingContext2D} */ (this.canvas.getContext("2d"));
    pen.setTransform(this.dense, 0, 0, this.dense, 0, 0);
    pen.clearRect(0, 0, this.canvas.width, this.canvas.height);
    const side = this.cell - (this.cell > 6 ? 2 : 1);
    if (this.colour === "state") this.#load(pen, side, nodes);
    else this.#fill(pen, side, this.#colours(nodes));
    this.#sleep(pen, side, nodes);
    if (side >= 9 && this.colour === "class") this.#mark(pen, side, nodes);
    pen.fillStyle = roleColour("muted");
    pen.font = "12px system-ui, sans-serif";
    for (const { label, x, y } of this.labels) pen.fillText(plain(label), x, y);
    this.#ring(pen, side, nodes.name.indexOf(this.chosen), roleColour("ink"));
    this.#ring(pen, side, this.under, roleColour("accent"));
  }

  /**
   * @param {CanvasRenderingContext2D} pen
   * @param {number} side
   * @param {(index: number) => string} colours
   */
  #fill(pen, side, colours) {
    for (let index = 0; index < this.size; index += 1) {
      const { x, y } = this.cells[index];
      pen.fillStyle = colours(index);
      pen.fillRect(x, y, side, side);
    }
  }

  /**
   * Each node that is awake is filled from below by what is requested of it; one that takes no pods
   * has a stroke.
   * @param {CanvasRenderingContext2D} pen
   * @param {number} side
   * @param {Columns} nodes
   */
  #load(pen, side, nodes) {
    const { empty, filling, full } = stateColours();
    this.#fill(pen, side, (index) => nodes.used[index] < 0 ? unknownColour() : empty);
    pen.lineWidth = 1;
    for (let index = 0; index < this.size; index += 1) {
      const { x, y } = this.cells[index], used = nodes.used[index];
      const isFull = used >= FULL;
      const height = isFull ? side : Math.ceil((side * Math.max(0, used)) / 100);
      pen.fillStyle = pen.strokeStyle = isFull ? full : filling;
      pen.fillRect(x, y + side - height, side, height);
      if (used >= 0) pen.strokeRect(x + 0.5, y + 0.5, side - 1, side - 1);
      pen.strokeStyle = roleColour("ink");
      if (nodes.power[index] > WAKING) this.#stroke(pen, x, y, side);
    }
  }

  /** @param {CanvasRenderingContext2D} pen @param {number} x @param {number} y @param {number} side */
  #stroke(pen, x, y, side) {
    pen.beginPath();
    pen.moveTo(x + 1, y + side - 1);
    pen.lineTo(x + side - 1, y + 1);
    pen.stroke();
  }

  /**
   * Nodes that sleep or wake up have a colour and an outline of their own, whatever is coloured.
   * @param {CanvasRenderingContext2D} pen
   * @param {number} side
   * @param {Columns} nodes
   */
  #sleep(pen, side, nodes) {
    const { asleep, waking, outline } = sleepColours();
    for (let index = 0; index < this.size; index += 1) {
      if (nodes.power[index] !== ASLEEP && nodes.power[index] !== WAKING) continue;
      const { x, y } = this.cells[index];
      pen.fillStyle = nodes.power[index] === ASLEEP ? asleep : waking;
      pen.fillRect(x, y, side, side);
      pen.strokeStyle = outline;
      pen.lineWidth = 1;
      pen.strokeRect(x + 0.5, y + 0.5, side - 1, side - 1);
      if (nodes.power[index] === WAKING) this.#stroke(pen, x, y, side);
    }
  }

  /** @param {Columns} nodes */
  #colours(nodes) {
    if (this.colour === "class") {
      const colours = classColours();
      return (/** @type {number} */ index) => colours[nodes.class[index]];
    }
    const scale = scaleOf(this.colour, nodes);
    const values = nodes[scale.column];
    const [colours, unknown] = [ramp(), unknownColour()];
    return (/** @type {number} */ index) => colourOf(values[index], scale, colours, unknown);
  }

  /**
   * Classes have a mark as well as a colour: eco a dot, draining a stroke.
   * @param {CanvasRenderingContext2D} pen
   * @param {number} side
   * @param {Columns} nodes
   */
  #mark(pen, side, nodes) {
    pen.fillStyle = pen.strokeStyle = roleColour("ground");
    pen.lineWidth = 2;
    for (let index = 0; index < this.size; index += 1) {
      const { x, y } = this.cells[index];
      if (nodes.class[index] === ECO) pen.fillRect(x + side / 2 - 1.5, y + side / 2 - 1.5, 3, 3);
      if (nodes.class[index] !== DRAINING) continue;
      pen.beginPath();
      pen.moveTo(x + 2, y + side - 2);
      pen.lineTo(x + side - 2, y + 2);
      pen.stroke();
    }
  }

  /**
   * @param {CanvasRenderingContext2D} pen
   * @param {number} side
   * @param {number} index
   * @param {string} colour
   */
  #ring(pen, side, index, colour) {
    const cell = this.cells[index];
    if (!cell) return;
    pen.strokeStyle = colour;
    pen.lineWidth = 2;
    pen.strokeRect(cell.x - 1, cell.y - 1, side + 2, side + 2);
  }

  // --- pointing -------------------------------------------------------------------------------

  #open() {
    if (this.nodes) change(opening("node", this.nodes.name[this.under]));
  }

  /** @param {PointerEvent} event */
  #point(event) {
    // The browser also sends this event when the page moves under a resting pointer.
    if (!event.movementX && !event.movementY) return;
    this.byKeys = false;
    const box = this.canvas.getBoundingClientRect();
    const [x, y] = [event.clientX - box.left, event.clientY - box.top];
    const hit = this.cells.findIndex((cell) =>
      x >= cell.x && x < cell.x + this.cell && y >= cell.y && y < cell.y + this.cell
    );
    if (hit === this.under) return;
    this.under = hit;
    this.#showTip(box);
    this.draw();
  }

  #leave() {
    this.byKeys = false;
    this.under = -1;
    this.tip.hidden = true;
    this.draw();
  }

  /** @param {KeyboardEvent} event */
  #key(event) {
    if (!this.size) return;
    const across = Math.max(1, Math.floor(this.canvas.clientWidth / this.cell));
    /** @type {Record<string, number>} */
    const steps = {
      ArrowRight: 1,
      ArrowLeft: -1,
      ArrowDown: across,
      ArrowUp: -across,
      Home: -Infinity,
      End: Infinity,
    };
    if (event.key in steps) this.#step(steps[event.key]);
    else if (event.key === "Enter" && this.under >= 0) this.#open();
    else return;
    event.preventDefault();
  }

  /** @param {number} by */
  #step(by) {
    this.byKeys = true;
    const isFirst = this.under < 0 && Number.isFinite(by);
    this.under = isFirst ? 0 : Math.max(0, Math.min(this.size - 1, this.under + by));
    this.#showTip(this.canvas.getBoundingClientRect());
    this.status.textContent = this.#describe(this.under).slice(0, 2).join(": ");
    this.draw();
  }

  /** @param {number} index */
  #describe(index) {
    const nodes = /** @type {Columns} */ (this.nodes);
    const { name, class: kind, headroom, watts: drawn, gpu, power, used } = nodes;
    const state = power[index] > 0 ? `, ${POWER_STATES[power[index]]}` : "";
    const free = headroom[index] < 0 ? "unknown" : percent(headroom[index]);
    const gpus = gpu[index] < 0 ? "" : `, GPUs ${percent(gpu[index])} in use`;
    const full = used[index] < 0 ? "" : `, ${percent(used[index])} requested`;
    const values = `${CLASSES[kind[index]]}${state}, headroom ${free}, ${
      watts(drawn[index])
    }${gpus}${full}`;
    return [plain(name[index]), values, ""];
  }

  /** What keeps the node awake, once the pointer rests on it. @param {string} name */
  #askWhy(name) {
    const mine = this.asked += 1;
    setTimeout(async () => {
      if (mine !== this.asked || this.tip.hidden) return;
      const query = { ...moment(), transitions: 0 };
      const found = await ask(`nodes/${encodeURIComponent(name)}`, query).catch(() => null);
      const why = found?.awake_because;
      if (mine !== this.asked || !why) return;
      const text = `Awake: ${plain(why)}.`;
      this.tip.children[2].textContent = text;
      if (this.byKeys) this.status.textContent += `. ${text}`;
    }, PAUSE_MS);
  }

  /** @param {DOMRect} box */
  #showTip(box) {
    const cell = this.cells[this.under];
    this.tip.hidden = !cell;
    if (!cell) return;
    const told = this.#describe(this.under);
    const isOther = this.tip.children[0].textContent !== told[0];
    told.forEach((text, at) => {
      if (at < 2 || isOther) this.tip.children[at].textContent = text;
    });
    if (isOther) this.#askWhy(/** @type {Columns} */ (this.nodes).name[this.under]);
    const left = box.left + cell.x + this.cell + 6;
    this.tip.style.left = `${Math.max(8, Math.min(left, innerWidth - this.tip.offsetWidth - 8))}px`;
    this.tip.style.top = `${box.top + cell.y + this.cell + 6}px`;
  }
}

/**
 * The map as a part of the page. Preact owns the elements; the map owns the drawing.
 * Props: columns, version (of the columns), colour, group, chosen.
 */
export class MapView extends Component {
  canvas = createRef();
  tip = createRef();
  status = createRef();

  componentDidMount() {
    this.map = new NodeMap(this.canvas.current, this.tip.current, this.status.current);
    this.componentDidUpdate();
  }

  componentDidUpdate() {
    const { columns: nodes, colour, group, chosen } = this.props;
    this.map?.show({ nodes, colour, group, chosen });
  }

  componentWillUnmount() {
    this.map?.resized.disconnect();
  }

  render() {
    return html`
      <div id="map-view">
        <canvas id="map" ref=${this.canvas} tabindex="0" role="application"
          aria-roledescription="map"
          aria-label="Map of nodes: arrow keys move, Enter opens"></canvas>
        <p id="map-status" ref=${this.status} class="unseen" role="status"></p>
        <div ref=${this
          .tip} class="tip" hidden aria-hidden="true"><strong></strong><span></span>
          <span></span></div>
      </div>
    `;
  }
}

/** @param {{ kind: string, columns: Columns }} props */
export function Legend({ kind, columns }) {
  if (kind === "class") return html`<${ClassLegend} />`;
  if (kind === "state") return html`<${StateLegend} />`;
  const scale = scaleOf(kind, columns);
  const stops = ramp().filter((_, at) => at % 9 === 0).join(", ");
  const range = `from ${scale.low} ${scale.unit} (${scale.least}) to ${scale.high} ${scale.unit} ` +
    `(${scale.most})`;
  return html`
    <div id="legend" class="legend">
      <span>${scale.low} ${scale.unit}: ${scale.least}</span>
      <span class="ramp" role="img" aria-label=${range}
        style=${{ background: `linear-gradient(to right, ${stops})` }}></span>
      <span>${scale.high} ${scale.unit}: ${scale.most}</span>
      <${SleepKeys} />
      <span><span class="swatch" style=${{ background: unknownColour() }}></span>unknown or
        none</span>
    </div>
  `;
}

function ClassLegend() {
  const colours = classColours();
  const marks = CLASSES.map((name) =>
    name === "eco" ? " \u2022" : name === "draining" ? " \u2215" : ""
  );
  const order = [...CLASSES.keys()].sort((a, b) => (a || 9) - (b || 9)); // "unknown" is the last
  return html`
    <div id="legend" class="legend">
      <ul class="keys">
        ${order.map((at) =>
          html`<li key=${at}>
      <span class="swatch" style=${{ background: colours[at] }}></span>${CLASSES[at]}${marks[at]}
    </li>`
        )}
      </ul>
      <${SleepKeys} />
    </div>
  `;
}

function StateLegend() {
  const { empty, filling, full } = stateColours();
  const background = `linear-gradient(to top, ${filling} 50%, ${empty} 50%)`;
  const half = { background, borderColor: filling };
  return html`
    <div id="legend" class="legend">
      <${SleepKeys} />
      <span><span class="swatch" style=${half}></span>filling: the height is the part of the cores,
        or of the GPUs, that pods request</span>
      <span><span class="swatch" style=${{ background: full }}></span>full: ${FULL} % or
        more</span>
      <span><span class="swatch crossed"></span>not ready, or cordoned</span>
      <span><span class="swatch" style=${{ background: unknownColour() }}></span>unknown</span>
    </div>
  `;
}

function SleepKeys() {
  const { asleep, waking, outline } = sleepColours();
  const key = (/** @type {string} */ colour, /** @type {string} */ text) =>
    html`<span><span class="swatch"
      style=${{ background: colour, borderColor: outline }}></span>${text}</span>`;
  return html`${key(asleep, "asleep by a plan")}${key(waking, "waking up")}`;
}
