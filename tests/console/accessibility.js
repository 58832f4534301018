// Own checks in the place of axe: names, roles, contrast, targets, structure. Returns the faults.
(() => {
  const faults = [];
  const visible = (each) => each.checkVisibility({ visibilityProperty: true }) && each.getClientRects().length > 0;
  const say = (each, what) => faults.push(`${what}: ${each.outerHTML.slice(0, 120)}`);
  const all = (selector) => [...document.querySelectorAll(selector)].filter(visible);

  // Every control says what it is.
  const named = (each) =>
    each.getAttribute("aria-label") ||
    (each.getAttribute("aria-labelledby") || "").split(" ").some((id) => document.getElementById(id)?.textContent.trim()) ||
    [...(each.labels || [])].some((label) => label.textContent.trim()) ||
    (["BUTTON", "A"].includes(each.tagName) && each.textContent.trim());
  for (const each of all("button, a[href], select, input, canvas, [tabindex='0'], dialog, [role='region'], [role='img']")) if (!named(each)) say(each, "no name");
  for (const each of all("section, aside")) if (!named(each)) say(each, "a region without a name");

  // Structure.
  if (!document.documentElement.lang) faults.push("no language");
  if (document.querySelectorAll("h1").length !== 1 || document.querySelectorAll("main").length !== 1) faults.push("not one h1 and one main");
  const levels = all("h1, h2, h3").map((each) => Number(each.tagName[1]));
  levels.forEach((level, at) => at && level > levels[at - 1] + 1 && faults.push(`a heading of level ${level} after ${levels[at - 1]}`));
  const ids = [...document.querySelectorAll("[id]")].map((each) => each.id);
  ids.filter((id, at) => ids.indexOf(id) !== at).forEach((id) => faults.push(`the id ${id} twice`));
  for (const each of document.querySelectorAll("[aria-labelledby], [aria-controls], [for]"))
    for (const attribute of ["aria-labelledby", "aria-controls", "for"])
      for (const id of (each.getAttribute(attribute) || "").split(" ").filter(Boolean)) if (!document.getElementById(id)) say(each, `${attribute} leads nowhere`);
  for (const list of document.querySelectorAll("ul, ol")) if ([...list.children].some((child) => child.tagName !== "LI")) say(list, "a list with something else in it");
  for (const table of all("table")) if (!table.caption || [...table.querySelectorAll("th")].some((th) => !th.scope)) say(table, "a table without caption or scopes");
  for (const each of document.querySelectorAll("[aria-hidden='true'] :is(button, a, input, select)")) say(each, "focusable and hidden");
  for (const each of document.querySelectorAll("[tabindex]")) if (each.tabIndex > 0) say(each, "a tabindex above 0");
  for (const each of document.querySelectorAll("button button, a button, button a")) say(each, "a control in a control");
  for (const each of all(".lines, .scroll, #detail-body")) if (each.scrollHeight > each.clientHeight + 2 && each.tabIndex < 0 && !each.querySelector("button, a")) say(each, "scrolls, and no key reaches it");

  // Targets of 24 pixels (WCAG 2.5.8).
  for (const each of all("button, select, input:not([type='range'])")) {
    const box = each.getBoundingClientRect();
    if (box.height < 23.5 || box.width < 23.5) say(each, `a target of ${Math.round(box.width)} x ${Math.round(box.height)}`);
  }

  // Contrast (WCAG 1.4.3), against the nearest ground that is painted.
  const parsed = (colour) => (colour.match(/[\d.]+/g) || []).map(Number);
  const light = (colour) => {
    const [r, g, b] = parsed(colour).map((value) => ((value /= 255) <= 0.04045 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const groundOf = (each) => {
    for (let at = each; at; at = at.parentElement) {
      const colour = getComputedStyle(at).backgroundColor;
      const [, , , alpha = 1] = parsed(colour);
      if (alpha === 1) return colour;
    }
    return "rgb(255, 255, 255)";
  };
  const seen = new Set();
  for (const each of all("body *")) {
    const own = [...each.childNodes].some((node) => node.nodeType === 3 && node.textContent.trim());
    if (!own || each.closest(".unseen, svg, .skip, :disabled, option, select, noscript")) continue;
    const { color, fontSize, fontWeight } = getComputedStyle(each);
    const [high, low] = [light(color), light(groundOf(each))].sort((a, b) => b - a);
    const large = parseFloat(fontSize) >= 24 || (parseFloat(fontSize) >= 18.66 && Number(fontWeight) >= 700);
    const ratio = (high + 0.05) / (low + 0.05);
    const key = `${each.className}${color}`;
    if (ratio < (large ? 3 : 4.5) && !seen.has(key)) say(each, `contrast ${ratio.toFixed(2)}`);
    seen.add(key);
  }

  // Nothing hangs out at the side.
  if (document.documentElement.scrollWidth > innerWidth) faults.push(`${document.documentElement.scrollWidth} wide in ${innerWidth}`);
  return faults;
})()
