// Elements from values. Text is never parsed as markup.

const SVG = "http://www.w3.org/2000/svg";

export function byId(id) {
  return document.getElementById(id);
}

function fill(element, given, children) {
  for (const [name, value] of Object.entries(given || {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name === "width%") element.style.width = `${value}%`;
    else if (name === "colour") element.style.background = value;
    else element.setAttribute(name, value === true ? "" : String(value));
  }
  for (const child of children.flat()) {
    if (child !== null && child !== undefined && child !== false) element.append(child);
  }
  return element;
}

export function h(tag, given, ...children) {
  return fill(document.createElement(tag), given, children);
}

export function s(tag, given, ...children) {
  return fill(document.createElementNS(SVG, tag), given, children);
}

export function put(parent, ...children) {
  parent.replaceChildren(...children.flat().filter((child) => child !== null && child !== undefined && child !== false));
}

// Control characters, and characters that change the line or the direction, are shown escaped.
// eslint-disable-next-line no-control-regex
const STRANGE = /[\u0000-\u001f\u007f-\u009f\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff]/g;

export function plain(text) {
  return String(text).replace(STRANGE, (mark) => {
    const code = mark.codePointAt(0);
    return code < 32 ? String.fromCodePoint(0x2400 + code) : `\u27e8${code.toString(16)}\u27e9`;
  });
}

// A name from the cluster, isolated so that it cannot change the direction of other text.
export function name(text, kind) {
  const shown = plain(text);
  return h("bdi", { class: kind ? `name ${kind}` : "name", title: shown.length > 24 ? shown : null }, shown);
}

export function link(text, onclick, kind) {
  return h("button", { type: "button", class: "link", onclick }, name(text, kind));
}

export function facts(pairs) {
  return h("dl", { class: "facts" }, pairs.filter(Boolean).map(([term, value]) => h("div", null, h("dt", null, term), h("dd", null, value))));
}
