// @ts-check
// Preact, htm and uPlot, put together once. Text is never parsed as markup.
// Their files have no types, so each gets one here; htm's templates are checked by nothing.

import * as preact from "./vendor/preact.mjs";
import htm from "./vendor/htm.module.js";
import uPlot from "./vendor/uPlot.esm.js";

/** @type {(strings: TemplateStringsArray, ...values: any[]) => any} */
export const html = htm.bind(preact.h);

/** A component with a state of its own. @type {any} */
export const Component = preact.Component;

/** @type {() => { current: any }} */
export const createRef = preact.createRef;

/** @type {(view: any, parent: Element | null) => void} */
export const render = preact.render;

/** @type {any} */
export const Plot = uPlot;
