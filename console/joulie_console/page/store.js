// @ts-check
// What the page knows, and how it learns it: the stream pushes, and queries fetch the rest.
// Every change draws the page again, at most once per frame.

import { ask, Problem, Stream } from "./api.js";
import { lasting, moment as dated } from "./format.js";
import { change, state } from "./state.js";
import { UNKNOWN } from "./vocabulary.js";

const SHOWN = 60; // lines of a list
const KEPT_POINTS = 1800; // of the power chart
const POINT_MS = 2_000;
const RATE_MS = 10_000;
const PAGE = 50; // rows of the table of nodes
const LIMIT = 100;
const AGAIN_MS = 3_000; // before a failed query of the panel runs again
/** Between two queries for the same thing while the page is live. @type {Record<string, number>} */
const RENEW_MS = {
  cards: 10_000,
  nodes: 5_000,
  detail: 5_000,
  pending: 5_000,
  waiting: 5_000,
  energy: 60_000,
  saved: 30_000,
};
const TOPICS = "decisions,plans,transitions,cluster,map";
// The values of a changed row, in order.
const ROW = ["class", "headroom", "cooling", "watts", "gpu", "power", "used"];
const COLUMNS = ["id", "name", "rack", ...ROW];

/**
 * The answer to a query, or why there is none. `key` names the question.
 * @typedef {{ key: string, path: string, found: any, error: string, at: number }} Answer
 */

/**
 * @typedef {object} Model
 * @property {any} cluster the newest state; null before it arrives
 * @property {any} past the state at the selected position; null for now, and until it is there
 * @property {string} pastError why there is no such state; empty if there is
 * @property {any} map every node, in columns
 * @property {number} mapVersion
 * @property {any[] | null} decisions newest first; null before they arrive
 * @property {any[] | null} plans newest first
 * @property {any[][]} power
 * @property {number[][]} rates times and numbers of entries
 * @property {Answer | null} cards
 * @property {Answer | null} nodes
 * @property {Answer | null} detail
 * @property {Answer | null} pending
 * @property {Answer | null} energy
 * @property {Answer | null} waiting how many pods wait, by cause
 * @property {Answer | null} saved
 * @property {string} warning the page's own
 * @property {string} lost why the console does not answer; empty while it does
 * @property {boolean} connected
 * @property {number} heardAt when the newest state arrived
 * @property {boolean} paused
 * @property {number} held decisions that arrived during the pause
 * @property {boolean} help whether the list of keys is open
 * @property {any} reach
 * @property {string} theme
 * @property {string} tokenWhy why a token is required; empty if none is
 */

/** @type {Model} */
export const model = {
  cluster: null,
  past: null,
  pastError: "",
  map: null,
  mapVersion: 0,
  decisions: null,
  plans: null,
  power: [],
  rates: [],
  cards: null,
  nodes: null,
  detail: null,
  pending: null,
  energy: null,
  waiting: null,
  saved: null,
  warning: "",
  lost: "",
  connected: false,
  heardAt: 0,
  paused: false,
  held: 0,
  help: false,
  reach: null,
  theme: localStorage.getItem("theme") || "auto",
  tokenWhy: "",
};

let draw = () => {};
let isDrawn = true;

/** @param {() => void} drawPage */
export function onUpdate(drawPage) {
  draw = drawPage;
}

/** @param {Partial<Model>} [changes] */
export function update(changes) {
  Object.assign(model, changes);
  if (!isDrawn) return;
  isDrawn = false;
  requestAnimationFrame(() => {
    isDrawn = true;
    draw();
  });
}

/** @param {unknown} error */
const messageOf = (error) => error instanceof Error ? error.message : String(error);

/** The query of the selected position; empty for now. */
export const moment = () => (state().at ? { at: state().at } : {});

/** @param {string} text */
const warn = (text) => update({ warning: text });

// --- events -----------------------------------------------------------------------------------

/** Events that arrived while their list was loading. @type {{ decisions: any[], plans: any[] }} */
const meanwhile = { decisions: [], plans: [] };

/**
 * @param {"decisions" | "plans"} list
 * @param {any} item
 */
function add(list, item) {
  meanwhile[list] = [...meanwhile[list], item].slice(-SHOWN);
  const before = model[list];
  if (before && isMissing(list, before, item)) {
    update({ [list]: [item, ...before].slice(0, SHOWN) });
  }
}

/** What makes an entry of the list of plans one of its kind. @param {any} entry */
export const planKey = (entry) => `${entry.position} ${entry.transition?.kind || ""}`;

/**
 * Whether a list lacks an item. After a reconnection, the stream sends events again that the
 * answer to a query may contain already.
 * @param {"decisions" | "plans"} list
 * @param {any[]} items newest first
 * @param {any} item
 */
function isMissing(list, items, item) {
  if (!items.length) return true;
  if (list === "decisions") return item.entry > items[0].entry;
  const { position } = items[0];
  if (item.position !== position) return item.position > position;
  return !items.some((known) => planKey(known) === planKey(item));
}

/** @type {Record<string, (data: any) => void>} */
const handlers = {
  decision(brief) {
    const { verb, at } = state();
    if (at || (verb && verb !== brief.verb)) return;
    if (model.paused) update({ held: model.held + 1 });
    else add("decisions", brief);
  },
  plan: (entry) => state().at || !entry.plan.changes || add("plans", entry),
  transition: (entry) => state().at || add("plans", entry),
  cluster(found) {
    const now = performance.now();
    const rates = [...model.rates, [now, found.entries]].filter(([at]) => now - at < RATE_MS);
    update({ cluster: found, heardAt: now, rates, power: withPoint(model.power, found) });
    renew();
  },
  map(delta) {
    if (deltas && !delta.reload) deltas.push(delta);
    if (state().at || !model.map) return;
    if (delta.reload || !applied(delta)) loadMap().catch((error) => warn(error.message));
  },
  gap: ({ reason }) => warn(`Events are missing: ${reason}`),
};

/** @param {any[][]} power @param {any} found */
function withPoint(power, found) {
  const last = power.at(-1);
  if (last && found.at_ms - last[0] < POINT_MS) return power;
  const point = [found.at_ms, found.position, found.measured_w, found.capped_w];
  return [...power, point].slice(-KEPT_POINTS);
}

/** @typedef {{ position: number, at_ms: number, gone: number[], added: any[][], rows: number[][] }} Delta */

/** Deltas that arrived while the map was loading; null while it is not. @type {Delta[] | null} */
let deltas = null;

/**
 * Applies a delta to the map; false if a row is of an unknown node.
 * @param {Delta} delta
 */
function applied({ position, at_ms, gone, added, rows }) {
  const { position: known, at_ms: knownAt } = model.map;
  // Readings become stale while the position stays.
  if (position < known || (position === known && at_ms <= knownAt)) return true;
  const map = gone.length || added.length ? renamed(model.map, gone, added) : model.map;
  Object.assign(map, { position, at_ms });
  for (const [id, ...values] of rows) {
    const index = map.index.get(id);
    if (index === undefined) return false;
    ROW.forEach((column, place) => map[column][index] = values[place]);
  }
  if (rows.length || map !== model.map) update({ map, mapVersion: model.mapVersion + 1 });
  return true;
}

/**
 * The map without the nodes that are gone, and with the added ones, in the order of the names.
 * An id is reused: its node may be gone and another one added.
 * @param {any} map
 * @param {number[]} gone
 * @param {any[][]} added
 */
function renamed(map, gone, added) {
  const without = new Set(gone);
  const kept = map.id.filter((/** @type {number} */ id) => !without.has(id));
  const nodes = kept.map((/** @type {number} */ id) => {
    const at = map.index.get(id);
    return COLUMNS.map((column) => map[column][at]);
  });
  nodes.push(...added.map((node) => [...node, ...ROW.map(() => UNKNOWN)]));
  const name = COLUMNS.indexOf("name");
  nodes.sort((/** @type {any[]} */ a, /** @type {any[]} */ b) => a[name] < b[name] ? -1 : 1);
  const columns = COLUMNS.map((column, place) => [
    column,
    nodes.map((/** @type {any[]} */ node) => node[place]),
  ]);
  return indexed({ ...map, ...Object.fromEntries(columns) });
}

/** @param {any} map */
function indexed(map) {
  map.index = new Map(map.id.map((/** @type {number} */ id, /** @type {number} */ at) => [id, at]));
  return map;
}

export const stream = new Stream(TOPICS, {
  open() {
    update({ connected: true, lost: "", warning: "" });
    refresh();
    reload("detail"); // it may have failed to load before
  },
  event: (kind, data) => handlers[kind]?.(data),
  lost(why, pause) {
    const again = `Retrying in ${lasting(pause)}.`;
    const text = model.cluster
      ? `The connection is lost (${why}): all figures are of ${
        dated(model.cluster.at_ms)
      }. ${again}`
      : `Not connected yet (${why}). ${again}`;
    update({ connected: false, lost: text });
  },
});

// --- the selection ----------------------------------------------------------------------------

const shown = { at: "", verb: "" }; // of the lists and the map

async function loadMap() {
  /** @type {Delta[]} */
  const meantime = deltas = [];
  try {
    const found = indexed(await ask("map", moment()));
    update({ map: found, mapVersion: model.mapVersion + 1 });
    // The answer may be older than what arrived meanwhile.
    if (!state().at) meantime.forEach((delta) => applied(delta));
    return found;
  } finally {
    if (deltas === meantime) deltas = null;
  }
}

/** @param {{ at_ms: number }} found */
async function loadLists(found) {
  const now = state();
  const until = now.at ? { until: new Date(found.at_ms).toISOString() } : {};
  const before = now.at ? { before: Number(now.at) + 1 } : {};
  meanwhile.decisions = meanwhile.plans = [];
  const [decided, planned] = await Promise.all([
    ask("decisions", { limit: SHOWN, verb: now.verb, ...until }),
    ask("plans", { limit: SHOWN, changed: true, ...before }),
  ]);
  const decisions = merged("decisions", decided.items);
  update({ decisions, plans: merged("plans", planned.items) });
}

/**
 * The answer to the query for a list, with what arrived since it was asked for.
 * @param {"decisions" | "plans"} list
 * @param {any[]} items
 */
function merged(list, items) {
  const fresh = meanwhile[list].filter((item) => isMissing(list, items, item)).reverse();
  return [...fresh, ...items].slice(0, SHOWN);
}

let unread = ""; // why that failed last

/** Loads everything for the selected position: at the start, after a reconnection, on a change. */
export async function refresh() {
  const now = state();
  Object.assign(shown, { at: now.at, verb: now.verb });
  try {
    const [found, past] = await Promise.all([loadMap(), now.at ? ask("cluster", moment()) : null]);
    if (state().at !== now.at) return;
    update({ past, pastError: "", warning: model.warning === unread ? "" : model.warning });
    const parts = OVERVIEW.map((part) => load(part));
    await Promise.all([loadLists(found), ...parts, loadPower()]);
  } catch (error) {
    if (state().at !== now.at) return;
    if (now.at && error instanceof Problem) update({ pastError: error.message });
    else warn(unread = messageOf(error));
  }
}

/** The points from before this page was opened. */
async function loadPower() {
  if (model.power.length > 1) return;
  const { points } = await ask("power");
  const last = points.at(-1)?.[0] || 0;
  update({ power: [...points, ...model.power.filter((point) => point[0] > last)] });
}

/**
 * The queries of the selection: the question of each, or null if nothing is to be asked.
 * @type {Record<"cards" | "nodes" | "detail" | "pending" | "energy" | "waiting" | "saved", () => [string, any] | null>}
 */
const QUESTIONS = {
  cards: () => state().page ? null : ["gpus", { ...moment(), limit: LIMIT }],
  nodes() {
    const { view, sort, order, offset, page } = state();
    if (page || view !== "table") return null;
    return ["nodes", { ...moment(), sort, order, limit: PAGE, offset: Number(offset) || 0 }];
  },
  detail() {
    const { node, pod, decision } = state();
    if (decision) return [`decisions/${encodeURIComponent(decision)}`, {}];
    if (node) return [`nodes/${encodeURIComponent(node)}`, moment()];
    return pod ? [`pods/${encodeURIComponent(pod)}`, moment()] : null;
  },
  pending: () => state().page === "pending" && !state().at ? ["pending", { limit: LIMIT }] : null,
  energy() {
    const { page, by, hours, at } = state();
    return page === "energy" && !at ? ["energy", { by, hours }] : null;
  },
  waiting: () => isLiveOverview() ? ["pending", { limit: 1 }] : null,
  saved: () => isLiveOverview() ? ["saved", {}] : null,
};

const isLiveOverview = () => !state().page && !state().at;

/** @typedef {keyof typeof QUESTIONS} Part */

/** @type {Part[]} */
const OVERVIEW = ["cards", "nodes", "waiting", "saved"];

/**
 * Asks the question of a part of the page. What is shown stays until the new answer arrives, but
 * not if it is about something else.
 * @param {Part} part
 */
export async function load(part) {
  const asked = QUESTIONS[part]();
  if (!asked) return update({ [part]: null });
  const key = JSON.stringify(asked);
  const [path] = asked;
  const kept = model[part]?.path === path ? model[part]?.found : null;
  if (model[part]?.key !== key) update({ [part]: { key, path, found: kept, error: "", at: 0 } });
  const answer = { key, path, found: kept, error: "", at: 0 };
  try {
    answer.found = await ask(...asked);
  } catch (error) {
    const isRefused = error instanceof Problem;
    // While the console does not respond, what is shown stays; the page says that it is old.
    if (isRefused || !kept) Object.assign(answer, { found: null, error: messageOf(error) });
  }
  answer.at = performance.now();
  if (model[part]?.key === key) update({ [part]: answer });
}

/** @param {Part} part */
function reload(part) {
  if (model[part]) load(part);
}

/** Asks again for what changes by itself, and for what failed. */
function renew() {
  const now = performance.now();
  for (const part of /** @type {Part[]} */ (Object.keys(QUESTIONS))) {
    const { at = 0, error = "" } = model[part] || {};
    const isFixed = !error && (state().at || (part === "detail" && state().decision));
    const pause = error ? AGAIN_MS : RENEW_MS[part];
    if (at && !isFixed && now - at > pause) load(part);
  }
}

/**
 * Computes the terms of every candidate of the open decision.
 * @param {number} entry
 */
export async function computeAll(entry) {
  const key = model.detail?.key;
  const found = await ask(`decisions/${entry}`, { terms: "all" });
  const detail = model.detail;
  if (detail && detail.key === key) update({ detail: { ...detail, found } });
}

/** A link may name a time; from then on its position is in the URL. @param {string} time */
async function goTo(time) {
  try {
    const { position } = await ask("cluster", { time });
    change({ time: "", at: position }, { replace: true });
  } catch (error) {
    change({ time: "" }, { replace: true });
    warn(messageOf(error));
  }
}

/** The selection has changed. @param {import("./state.js").Selection} now */
export function selected(now) {
  if (now.time) return void goTo(now.time);
  if (now.at !== shown.at) Object.assign(model, { past: null, pastError: "", map: null });
  if (now.at !== shown.at || now.verb !== shown.verb) {
    update({ decisions: null, plans: now.at === shown.at ? model.plans : null });
    refresh();
  } else {
    for (const part of OVERVIEW) load(part);
  }
  for (const part of /** @type {Part[]} */ (["detail", "pending", "energy"])) load(part);
  update({ warning: "" });
}

export function pause() {
  const { paused, held } = model;
  update({ paused: !paused, held: 0 });
  if (paused && held) refresh();
}
