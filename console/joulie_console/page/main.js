// @ts-check
// Connects the parts: the URL has the selection, the store has the rest, and both draw the page.

import { ask, onTokenRequired } from "./api.js";
import { App, askForToken } from "./app.js";
import { listenToKeys } from "./keys.js";
import { notify, onChange, state } from "./state.js";
import { onUpdate, refresh, selected, stream, update } from "./store.js";
import { html, render } from "./view.js";

const AGE_MS = 1_000; // the age of what is shown grows without events

function draw() {
  const now = state();
  document.body.classList.toggle("past", Boolean(now.at));
  render(html`<${App} now=${now} />`, /** @type {Element} */ (document.getElementById("app")));
}

onUpdate(draw);
onTokenRequired(askForToken);
onChange(selected);
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
  update({ theme: localStorage.getItem("theme") || "auto" });
});
listenToKeys();
setInterval(() => update(), AGE_MS);

draw();
refresh();
notify();
ask("reach").then((reach) => update({ reach }), () => {});
stream.run();
