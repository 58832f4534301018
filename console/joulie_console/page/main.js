// Connects the modules: the URL has the selection, the stream has the events.

import { Stream, ask, onTokenRequired, setToken } from "./api.js";
import { powerChart } from "./chart.js";
import { Detail } from "./detail.js";
import { byId } from "./dom.js";
import { lasting, watts } from "./format.js";
import { Lines, decisionLine, planLine } from "./live.js";
import { NodeMap, legend } from "./map.js";
import { search } from "./search.js";
import { change, notify, onChange, state } from "./state.js";
import { gpuCards, nodeTable } from "./tables.js";
import { Time } from "./time.js";
import { Age, totals, warnings } from "./totals.js";

const OLDER = 60; // lines at the start of a list
const CARDS_MS = 10_000;
const TABLE_MS = 5_000;
const RATE_MS = 10_000;

const detail = new Detail(change);
const time = new Time(change);
const age = new Age();
const map = new NodeMap(byId("map"), byId("tip"), byId("map-status"), detail.open.node);
const decisions = new Lines("decisions", (brief) => decisionLine(brief, detail.open.decision), (brief) => brief.entry, "No decisions yet.");
const plans = new Lines("plans", (entry) => planLine(entry, detail.open.node), (entry) => entry.position, "No plans yet.");
let cluster = null;
let power = [];
let past = null; // the cluster at the selected position; null for now
let ownWarnings = [];
let rates = [];
let shownPosition = null;

const moment = () => (state().at ? { at: state().at } : {});

// --- events -----------------------------------------------------------------------------------

const handlers = {
  decision(brief) {
    const { verb, at } = state();
    if (!at && (!verb || verb === brief.verb)) decisions.add(brief);
    if (decisions.paused) byId("pause").textContent = `Resume (${decisions.held})`;
  },
  plan: (entry) => state().at || plans.add(entry),
  transition: (entry) => state().at || plans.add(entry),
  cluster(found) {
    cluster = found;
    age.update(found.position, found.age_ms);
    time.reached(found.position);
    rates = [...rates, [performance.now(), found.entries]].filter(([at]) => performance.now() - at < RATE_MS);
    const last = power.at(-1);
    if (!last || found.at_ms - last[0] >= 2000) power.push([found.at_ms, found.position, found.measured_w, found.capped_w]);
    if (power.length > 1800) power.shift();
    showFigures();
    detail.retry(state(), moment());
  },
  map(delta) {
    if (state().at) return;
    if (delta.reload || !map.apply(delta)) loadMap();
    byId("map-empty").hidden = map.size > 0;
  },
  gap: ({ reason }) => warn(`Events are missing: ${reason}`),
  cut: () => {},
};

const stream = new Stream("decisions,plans,transitions,cluster,map", {
  open() {
    age.connected = true;
    ownWarnings = [];
    showFigures();
    refresh();
    detail.show(state(), moment()); // if it failed to load before
  },
  event: (kind, data) => handlers[kind]?.(data),
  lost(why, pause) {
    age.connected = false;
    warn(`The connection is lost (${why}); this page is not up to date. Retrying in ${lasting(pause)}.`);
    age.show();
  },
});

function warn(text) {
  ownWarnings = [text];
  showFigures();
}

function rate() {
  if (rates.length < 2) return null;
  const [[t0, n0], [t1, n1]] = [rates[0], rates.at(-1)];
  return t1 > t0 ? Math.max(0, ((n1 - n0) * 1000) / (t1 - t0)) : null;
}

function showFigures() {
  const shown = past || cluster;
  if (shown) totals(shown, past ? null : rate());
  warnings(cluster ? cluster.warnings : [], ownWarnings);
  powerChart(byId("power"), power, state().at);
  byId("power-now").textContent = shown ? `${watts(shown.measured_w)} of ${watts(shown.capped_w)}` : "";
}

// --- the selection ----------------------------------------------------------------------------

async function loadMap() {
  const found = await ask("map", moment());
  map.set(found);
  byId("map-empty").hidden = map.size > 0;
  legend(state().colour, found);
  return found;
}

async function loadLists(found) {
  const now = state();
  const until = now.at ? { until: new Date(found.at_ms).toISOString() } : {};
  const before = now.at ? { before: Number(now.at) + 1 } : {};
  decisions.loading();
  plans.loading();
  const [old, planned] = await Promise.all([ask("decisions", { limit: OLDER, verb: now.verb, ...until }), ask("plans", { limit: OLDER, ...before })]);
  decisions.set(old.items);
  plans.set(planned.items);
}

// Loads everything for the selected position: at the start, after a reconnection, on a change.
async function refresh() {
  const now = state();
  shownPosition = now.at;
  try {
    const [found, seen] = await Promise.all([loadMap(), now.at ? ask("cluster", moment()) : null]);
    if (state().at !== now.at) return;
    past = seen;
    if (seen) time.arrived(seen);
    if (ownWarnings.length && age.connected) ownWarnings = [];
    showFigures();
    await Promise.all([loadLists(found), showTable(), gpuCards(moment(), detail.open.node)]);
  } catch (error) {
    warn(error.message);
  }
}

async function showTable() {
  const now = state();
  const table = now.view === "table";
  byId("map-view").hidden = table;
  byId("table-view").hidden = !table;
  byId("legend").hidden = table;
  byId("as-table").setAttribute("aria-pressed", String(table));
  if (table) await nodeTable(now, moment(), { open: detail.open.node, go: (changes) => change(changes, { replace: true }) });
  else map.layOut();
}

onChange((now) => {
  byId("colour").value = now.colour;
  byId("group").value = now.group;
  byId("verb").value = now.verb;
  map.show({ colour: now.colour, group: now.group, chosen: now.node });
  if (map.nodes) legend(now.colour, map.nodes);
  time.show(now.at);
  if (!now.at) past = null;
  if (now.at !== shownPosition) refresh();
  else showTable().catch((error) => warn(error.message));
  detail.show(now, moment());
});

for (const id of ["colour", "group"]) byId(id).addEventListener("change", (event) => change({ [id]: event.target.value }));
byId("verb").addEventListener("change", (event) => {
  change({ verb: event.target.value });
  refresh();
});
byId("as-table").addEventListener("click", () => change({ view: state().view === "table" ? "map" : "table" }));
byId("pause").addEventListener("click", () => {
  decisions.paused = !decisions.paused;
  byId("pause").setAttribute("aria-pressed", String(decisions.paused));
  byId("pause").textContent = decisions.paused ? "Resume" : "Pause";
  if (!decisions.paused && decisions.held) refresh();
  decisions.held = 0;
});
search(detail.open, moment);

// --- dark and light ---------------------------------------------------------------------------

const THEMES = ["auto", "dark", "light"];

function showTheme(theme) {
  if (theme === "auto") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = theme;
  byId("theme").textContent = `Theme: ${theme}`;
  map.draw();
  if (map.nodes) legend(state().colour, map.nodes);
}

byId("theme").addEventListener("click", () => {
  const theme = THEMES[(THEMES.indexOf(localStorage.getItem("theme") || "auto") + 1) % THEMES.length];
  localStorage.setItem("theme", theme);
  showTheme(theme);
});
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => showTheme(localStorage.getItem("theme") || "auto"));

// --- the token, if one is required ------------------------------------------------------------

let tokenRequest = null;
onTokenRequired((why) => {
  tokenRequest ||= new Promise((done) => {
    byId("token-why").textContent = why;
    byId("token-dialog").showModal();
    byId("token-form").onsubmit = (event) => {
      event.preventDefault();
      setToken(byId("token").value.trim());
      byId("token").value = "";
      byId("token-dialog").close();
      tokenRequest = null;
      done();
    };
  });
  return tokenRequest;
});
byId("token-dialog").addEventListener("cancel", (event) => event.preventDefault());

// --- begin ------------------------------------------------------------------------------------

showTheme(localStorage.getItem("theme") || "auto");
setInterval(() => state().at || gpuCards({}, detail.open.node).catch(() => {}), CARDS_MS);
setInterval(() => state().at || state().view !== "table" || showTable().catch(() => {}), TABLE_MS);
shownPosition = state().at;
notify();
ask("power").then(({ points }) => (power = [...points, ...power.filter((point) => point[0] > (points.at(-1)?.[0] || 0))]), () => {});
time.begin().catch(() => {});
stream.run();
