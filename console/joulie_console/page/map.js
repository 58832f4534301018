// The cluster as a map: one square per node. Drawn after a change, at most once per frame.

import { CLASSES, percent, watts } from "./format.js";
import { classColours, colourOf, ramp, scaleOf, unknownColour } from "./colours.js";
import { byId, h, plain, put } from "./dom.js";

const LARGEST = 26; // on a desktop screen; a wall screen is read from a distance
const LARGEST_WALL = 72;
const WALL = 1900;
const SMALLEST = 4;
const LABEL = 16;
const COLUMNS = ["class", "headroom", "cooling", "watts", "gpu"];

export class NodeMap {
  constructor(canvas, tip, status, open) {
    this.canvas = canvas;
    this.tip = tip;
    this.status = status;
    this.open = open;
    this.nodes = null;
    this.colour = "headroom";
    this.group = "none";
    this.cells = [];
    this.chosen = "";
    this.under = -1; // the cell that pointer or keyboard is on
    this.byKeys = false; // the keyboard chose the cell; reset when the pointer really moves
    this.dirty = false;
    canvas.addEventListener("pointermove", (event) => this.#point(event));
    canvas.addEventListener("pointerleave", () => this.byKeys || this.#leave());
    canvas.addEventListener("click", () => this.under >= 0 && this.open(this.#name(this.under)));
    canvas.addEventListener("keydown", (event) => this.#key(event));
    canvas.addEventListener("blur", () => this.#leave());
    new ResizeObserver(() => this.layOut()).observe(canvas.parentElement);
  }

  // Replaces all nodes; `columns` is a response of /v1/map.
  set(columns) {
    this.nodes = columns;
    this.position = columns.position;
    this.at = new Map(columns.id.map((id, index) => [id, index]));
    this.layOut();
  }

  // Applies changed rows; false if a row is of an unknown node.
  apply({ position, rows }) {
    if (!this.nodes || position <= this.position) return true;
    this.position = position;
    for (const [id, ...values] of rows) {
      const index = this.at.get(id);
      if (index === undefined) return false;
      COLUMNS.forEach((column, place) => (this.nodes[column][index] = values[place]));
    }
    if (rows.length && this.group === "class") this.layOut();
    this.draw();
    return true;
  }

  show({ colour, group, chosen }) {
    const regroup = group !== this.group;
    Object.assign(this, { colour, group, chosen });
    if (regroup) this.layOut();
    else this.draw();
  }

  get size() {
    return this.nodes ? this.nodes.id.length : 0;
  }

  // --- where each node goes -------------------------------------------------------------------

  layOut() {
    if (!this.nodes) return;
    const width = this.canvas.parentElement.clientWidth;
    const groups = this.#groups();
    const wall = innerWidth >= WALL;
    const room = Math.max(220, innerHeight * (wall ? 0.52 : 0.5));
    let cell = wall ? LARGEST_WALL : LARGEST;
    while (cell > SMALLEST && this.#place(groups, cell, width) > room) cell -= 1;
    const height = this.#place(groups, cell, width);
    this.cell = cell;
    const dense = devicePixelRatio || 1;
    this.canvas.width = Math.round(width * dense);
    this.canvas.height = Math.round(height * dense);
    this.canvas.style.height = `${height}px`;
    this.dense = dense;
    this.draw();
  }

  #groups() {
    const named = new Map();
    for (let index = 0; index < this.size; index += 1) {
      const key = this.#groupOf(index);
      if (!named.has(key)) named.set(key, []);
      named.get(key).push(index);
    }
    return [...named].sort(([a], [b]) => a.localeCompare(b));
  }

  #groupOf(index) {
    if (this.group === "rack") return this.nodes.rack[index] ? `rack ${this.nodes.rack[index]}` : "without a rack";
    return this.group === "class" ? CLASSES[this.nodes.class[index]] : "";
  }

  #place(groups, cell, width) {
    this.cells = new Array(this.size);
    this.labels = [];
    const across = Math.max(1, Math.floor(width / cell));
    let top = 0;
    let left = 0;
    for (const [label, members] of groups) {
      const wide = Math.min(across, Math.max(members.length, Math.ceil((label.length * 7) / cell)));
      const narrow = this.group === "rack" && wide <= across / 2;
      const block = narrow ? Math.min(across, Math.max(8, Math.ceil(Math.sqrt(members.length * 2)), Math.ceil((label.length * 7) / cell))) : across;
      const tall = Math.ceil(members.length / block) * cell + (label ? LABEL : 0) + 4;
      if (narrow && left + block > across) [left, top] = [0, top + this.rowTall];
      if (!narrow && left) [left, top] = [0, top + this.rowTall];
      this.rowTall = left ? Math.max(this.rowTall, tall) : tall;
      if (label) this.labels.push({ label, x: left * cell, y: top + 11 });
      members.forEach((index, place) => {
        this.cells[index] = { x: (left + (place % block)) * cell, y: top + (label ? LABEL : 0) + Math.floor(place / block) * cell };
      });
      if (narrow) left += block + 1;
      else top += tall;
    }
    return Math.max(40, top + (left ? this.rowTall : 0));
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
    const pen = this.canvas.getContext("2d");
    const style = getComputedStyle(document.documentElement);
    pen.setTransform(this.dense, 0, 0, this.dense, 0, 0);
    pen.clearRect(0, 0, this.canvas.width, this.canvas.height);
    const side = this.cell - (this.cell > 6 ? 2 : 1);
    const colours = this.#colours();
    for (let index = 0; index < this.size; index += 1) {
      const { x, y } = this.cells[index];
      pen.fillStyle = colours(index);
      pen.fillRect(x, y, side, side);
    }
    if (side >= 9) this.#mark(pen, side, style.getPropertyValue("--ground"));
    pen.fillStyle = style.getPropertyValue("--muted");
    pen.font = "12px system-ui, sans-serif";
    for (const { label, x, y } of this.labels) pen.fillText(plain(label), x, y);
    this.#ring(pen, side, this.nodes.name.indexOf(this.chosen), style.getPropertyValue("--ink"));
    this.#ring(pen, side, this.under, style.getPropertyValue("--accent"));
  }

  #colours() {
    if (this.colour === "class") {
      const colours = classColours();
      return (index) => colours[this.nodes.class[index]];
    }
    const scale = scaleOf(this.colour, this.nodes);
    const values = this.nodes[scale.column];
    const [colours, unknown] = [ramp(), unknownColour()];
    return (index) => colourOf(values[index], scale, colours, unknown);
  }

  // Classes have a mark as well as a colour: eco a dot, draining a stroke.
  #mark(pen, side, ground) {
    if (this.colour !== "class") return;
    pen.fillStyle = pen.strokeStyle = ground;
    pen.lineWidth = 2;
    for (let index = 0; index < this.size; index += 1) {
      const { x, y } = this.cells[index];
      if (this.nodes.class[index] === 2) pen.fillRect(x + side / 2 - 1.5, y + side / 2 - 1.5, 3, 3);
      if (this.nodes.class[index] === 3) {
        pen.beginPath();
        pen.moveTo(x + 2, y + side - 2);
        pen.lineTo(x + side - 2, y + 2);
        pen.stroke();
      }
    }
  }

  #ring(pen, side, index, colour) {
    const cell = this.cells[index];
    if (!cell) return;
    pen.strokeStyle = colour;
    pen.lineWidth = 2;
    pen.strokeRect(cell.x - 1, cell.y - 1, side + 2, side + 2);
  }

  // --- pointing -------------------------------------------------------------------------------

  #name(index) {
    return this.nodes.name[index];
  }

  #point(event) {
    // The browser also sends this event when the page moves under a resting pointer.
    if (!event.movementX && !event.movementY) return;
    this.byKeys = false;
    const box = this.canvas.getBoundingClientRect();
    const [x, y] = [event.clientX - box.left, event.clientY - box.top];
    const hit = this.cells.findIndex((cell) => x >= cell.x && x < cell.x + this.cell && y >= cell.y && y < cell.y + this.cell);
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

  #key(event) {
    if (!this.size) return;
    const across = Math.max(1, Math.floor(this.canvas.clientWidth / this.cell));
    const last = this.size - 1;
    const steps = { ArrowRight: 1, ArrowLeft: -1, ArrowDown: across, ArrowUp: -across, Home: -Infinity, End: Infinity };
    if (event.key in steps) {
      this.byKeys = true;
      this.under = this.under < 0 ? 0 : Math.max(0, Math.min(last, this.under + steps[event.key]));
      this.#showTip(this.canvas.getBoundingClientRect());
      this.status.textContent = this.describe(this.under);
      this.draw();
    } else if (event.key === "Enter" && this.under >= 0) {
      this.open(this.#name(this.under));
    } else {
      return;
    }
    event.preventDefault();
  }

  describe(index) {
    const { name, class: kind, headroom, watts: drawn, gpu } = this.nodes;
    const gpus = gpu[index] < 0 ? "" : `, GPUs ${percent(gpu[index])} in use`;
    return `${plain(name[index])}: ${CLASSES[kind[index]]}, headroom ${headroom[index] < 0 ? "unknown" : percent(headroom[index])}, ${watts(drawn[index])}${gpus}`;
  }

  #showTip(box) {
    const cell = this.cells[this.under];
    this.tip.hidden = !cell;
    if (!cell) return;
    const [title, ...rest] = this.describe(this.under).split(": ");
    put(this.tip, h("strong", null, h("bdi", null, title)), h("span", null, rest.join(": ")));
    const left = Math.min(box.left + cell.x + this.cell + 6, innerWidth - this.tip.offsetWidth - 8);
    this.tip.style.left = `${Math.max(8, left)}px`;
    this.tip.style.top = `${box.top + cell.y + this.cell + 6}px`;
  }
}

export function legend(kind, columns) {
  const box = byId("legend");
  if (kind === "class") {
    const colours = classColours();
    const marks = ["", "", " \u2022", " \u2215"];
    const shown = [1, 2, 3, 0].map((at) => h("li", null, h("span", { class: "swatch", colour: colours[at] }), CLASSES[at] + marks[at]));
    put(box, h("ul", { class: "keys" }, shown));
    return;
  }
  const scale = scaleOf(kind, columns);
  const colours = ramp();
  const bar = h("span", { class: "ramp", role: "img", "aria-label": `from ${scale.low} to ${scale.high} ${scale.unit}` });
  bar.style.background = `linear-gradient(to right, ${colours.filter((_, at) => at % 9 === 0).join(", ")})`;
  put(box, h("span", null, `${scale.low} ${scale.unit}`), bar, h("span", null, `${scale.high} ${scale.unit} ${scale.what}`), h("span", { class: "swatch", colour: unknownColour() }), h("span", null, "unknown or none"));
}
