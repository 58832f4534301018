// @ts-check
// Lines over time, with labelled axes, units, and the values under the pointer or the arrow keys.

import { roleColour, shade } from "./colours.js";
import { moment, unitOf } from "./format.js";
import { Component, createRef, html, Plot } from "./view.js";

/**
 * @typedef {object} Series
 * @property {string} label
 * @property {string} role of the colour
 * @property {boolean} [dashed]
 * @property {boolean} [filled]
 * @property {boolean} [stepped] a value holds until the next one
 */

/**
 * @typedef {object} ChartProps
 * @property {string} label what the chart shows
 * @property {string} axis the name of the vertical axis
 * @property {string} base the unit, such as W
 * @property {Array<Array<number | null>>} data times in seconds, then the values of each series
 * @property {Series[]} series
 * @property {number} [height]
 */

/** @param {ChartProps} props */
function options(props, /** @type {any} */ unit, /** @type {(at: number | null) => void} */ point) {
  const font = "12px system-ui, sans-serif";
  const axis = { stroke: () => roleColour("muted"), font, labelFont: font, labelSize: 18 };
  const grid = { stroke: () => roleColour("line"), width: 1 };
  return {
    width: 400,
    height: props.height || 180,
    legend: { show: false },
    cursor: { y: false, drag: { x: true, y: false }, points: { size: 7 } },
    scales: {
      y: {
        range: (
          /** @type {any} */ _,
          /** @type {number} */ __,
          /** @type {number} */ most,
        ) => [0, Math.max(most, 1e-9) * 1.08],
      },
    },
    axes: [
      { ...axis, grid, ticks: grid, label: "Time", values: TIMES, space: 70 },
      { ...axis, grid, ticks: grid, label: `${props.axis} (${unit.name})`, size: 56 },
    ],
    series: [
      {},
      ...props.series.map(({ label, role, dashed, filled, stepped }) => ({
        label,
        stroke: () => roleColour(role),
        fill: filled ? () => `rgb(from ${roleColour(role)} r g b / 14%)` : undefined,
        paths: stepped ? Plot.paths.stepped({ align: 1 }) : undefined,
        dash: dashed ? [6, 4] : undefined,
        width: 1.75,
        points: { show: false },
      })),
    ],
    hooks: {
      setCursor: [(/** @type {any} */ plot) => point(plot.cursor.idx ?? null)],
    },
  };
}

// 24 hours a day, whatever the language of the browser.
const TIMES = [
  [86400, "{MMM} {D}", null, null, null, null, null, null, 1],
  [3600, "{HH}:{mm}", "\n{MMM} {D}", null, "\n{MMM} {D}", null, null, null, 1],
  [60, "{HH}:{mm}", "\n{MMM} {D}", null, "\n{MMM} {D}", null, null, null, 1],
  [1, "{HH}:{mm}:{ss}", "\n{MMM} {D}", null, "\n{MMM} {D}", null, null, null, 1],
];

export class Chart extends Component {
  box = createRef();
  state = { at: /** @type {number | null} */ (null) };

  componentDidMount() {
    this.resized = new ResizeObserver(() => this.#fit());
    this.resized.observe(this.box.current);
    this.#make();
  }

  /** @param {ChartProps} before */
  componentDidUpdate(before) {
    const { series, data } = this.props;
    const unit = this.#unit();
    const isOther = series.length !== before.series.length;
    if (isOther || unit.name !== this.unit || shade() !== this.shade) this.#make();
    else if (data !== before.data) this.#renew(this.#scaled(unit));
  }

  componentWillUnmount() {
    this.resized?.disconnect();
    this.plot?.destroy();
  }

  #unit() {
    const values = this.props.data.slice(1).flat();
    const most = values.reduce(
      (/** @type {number} */ high, /** @type {number | null} */ value) =>
        Math.max(high, value ?? 0),
      0,
    );
    return unitOf(most, this.props.base);
  }

  /** @param {{ size: number }} unit */
  #scaled({ size }) {
    const [times, ...columns] = this.props.data;
    const scale = (/** @type {number | null} */ value) => value === null ? null : value / size;
    return [times, ...columns.map((/** @type {Array<number | null>} */ each) => each.map(scale))];
  }

  #make() {
    this.plot?.destroy();
    const unit = this.#unit();
    this.unit = unit.name;
    this.shade = shade();
    const point = (/** @type {number | null} */ at) =>
      at !== this.state.at && this.setState({ at });
    this.isZoomed = false;
    this.plot = new Plot(options(this.props, unit, point), this.#scaled(unit), this.box.current);
    this.plot.hooks.setSelect = [() => this.isZoomed = this.plot.select.width > 0];
    this.plot.over.addEventListener("dblclick", () => this.#zoom(0));
    this.#fit();
  }

  /** New values leave a zoom as it is. @param {any[]} data */
  #renew(data) {
    const { min, max } = this.plot.scales.x;
    this.plot.setData(data);
    if (this.isZoomed) this.plot.setScale("x", { min, max });
  }

  /** @param {number} by times the time in view, around the cursor; 0: all of it */
  #zoom(by) {
    const [times] = this.props.data, { min, max } = this.plot.scales.x;
    this.isZoomed = by > 0;
    if (!by) return this.plot.setScale("x", { min: times[0], max: times[times.length - 1] });
    const at = times[this.state.at ?? times.length - 1], half = (max - min) * by / 2;
    const low = Math.max(times[0], at - half), high = Math.min(times[times.length - 1], at + half);
    if (high > low) this.plot.setScale("x", { min: low, max: high });
  }

  #fit() {
    const width = Math.floor(this.box.current?.clientWidth || 0);
    if (this.plot && width) this.plot.setSize({ width, height: this.props.height || 180 });
  }

  /** @param {KeyboardEvent} event */
  #key = (event) => {
    const last = this.props.data[0].length - 1;
    /** @type {Record<string, number>} */
    const zooms = { "+": 0.5, "-": 2, Escape: 0 };
    if (event.key in zooms && last > 0 && (this.isZoomed || event.key === "+")) {
      event.preventDefault();
      event.stopPropagation();
      return this.#zoom(zooms[event.key]);
    }
    const from = this.state.at ?? (event.key === "ArrowRight" ? -1 : last + 1);
    /** @type {Record<string, number>} */
    const steps = { ArrowLeft: -1, ArrowRight: 1, Home: -Infinity, End: Infinity };
    const by = steps[event.key];
    if (by === undefined || last < 0) return;
    event.preventDefault();
    const at = Math.max(0, Math.min(last, from + by));
    this.plot.setCursor({ left: this.plot.valToPos(this.props.data[0][at], "x"), top: 0 });
  };

  #readings() {
    const { data, series, base } = this.props;
    const at = Math.min(this.state.at ?? data[0].length - 1, data[0].length - 1);
    const { name, size } = this.#unit();
    const value = (/** @type {number} */ column) => {
      const found = data[column + 1][at];
      return found === null || found === undefined
        ? "unknown"
        : `${(found / size).toFixed(2)} ${name}`;
    };
    const time = data[0][at] ? moment(data[0][at] * 1000) : "";
    return {
      time,
      values: series.map((/** @type {Series} */ _, /** @type {number} */ n) => value(n)),
      base,
    };
  }

  render() {
    const { label, series } = this.props;
    const { time, values } = this.#readings();
    return html`
      <div class="plot" role="group" tabindex="0" onKeyDown=${this.#key}
        aria-label=${`${label}. Left and right arrow keys read its values; plus and minus zoom, Escape shows all.`}
        title="Drag to zoom, double-click to show all">
        <div ref=${this.box} aria-hidden="true"></div>
        <p class="chart-feet" role="status">
              <span>${time}</span>
              ${series.map((
                /** @type {Series} */ { label, role, dashed },
                /** @type {number} */ at,
              ) =>
                html`
                  <span key=${label}>
                    <span class=${dashed ? "key dashed" : "key"} data-role=${role}></span>
                    ${label} <strong>${values[at]}</strong>
                  </span>
                `
              )}
            </p>
      </div>
    `;
  }
}
