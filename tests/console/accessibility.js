// Accessibility checks like those of axe: its serious and critical rules, targets of 24 pixels, and
// the order of headings and landmarks. Names and roles come from the browser. Returns the faults,
// each with its rule; an element that no rule supports is a fault too.
(() => {
  const faults = [];
  let rule = "";
  const report = (each, what) => faults.push(`${rule}: ${what}: ${each.outerHTML.slice(0, 120)}`);
  const every = (selector) => [...document.querySelectorAll(selector)];
  const shown = (each) => each.checkVisibility({ visibilityProperty: true }) && each.getClientRects().length > 0;
  const exposed = (each) => shown(each) && !each.closest("[aria-hidden='true']");
  const words = (text) => (text || "").split(/\s+/).filter(Boolean);
  const focusable = (each) => each.tabIndex >= 0 && !each.disabled && shown(each);
  const nameOf = (each) => (each.computedName || "").trim();
  const ROLED = "[role], a, button, dialog, img, input, meter, option, progress, select, summary, textarea"; // other elements have no name
  const roles = new Map();
  const roleOf = (each) => roles.get(each) ?? (roles.set(each, each.computedRole), roles.get(each));

  // --- roles and attributes of ARIA 1.2 -------------------------------------------------------

  const ROLES = words(`alert alertdialog application article banner blockquote button caption cell checkbox code
    columnheader combobox complementary contentinfo definition deletion dialog directory document emphasis feed figure
    form generic grid gridcell group heading img image insertion link list listbox listitem log main marquee math menu menubar
    menuitem menuitemcheckbox menuitemradio meter navigation none note option paragraph presentation progressbar radio
    radiogroup region row rowgroup rowheader scrollbar search searchbox separator slider spinbutton status strong
    subscript superscript switch tab table tablist tabpanel term textbox time timer toolbar tooltip tree treegrid treeitem`);
  const NAMED = new Set(words(`alertdialog application button checkbox combobox dialog grid img image link listbox menuitem
    menuitemcheckbox menuitemradio meter progressbar radio region scrollbar searchbox slider spinbutton switch tab textbox
    tooltip treeitem`));
  const UNNAMED = new Set(words("caption code deletion emphasis generic insertion none paragraph presentation strong subscript superscript"));
  const FLAG = /^(true|false)$/;
  const MAYBE = /^(true|false|mixed)$/;
  const NUMBER = /^-?[\d.]+$/;
  const TEXT = /\S/;
  const GLOBAL = {
    "aria-atomic": FLAG, "aria-busy": FLAG, "aria-controls": TEXT, "aria-current": /^(page|step|location|date|time|true|false)$/,
    "aria-describedby": TEXT, "aria-details": TEXT, "aria-hidden": FLAG, "aria-keyshortcuts": TEXT, "aria-label": TEXT,
    "aria-labelledby": TEXT, "aria-live": /^(polite|assertive|off)$/, "aria-owns": TEXT, "aria-relevant": TEXT, "aria-roledescription": TEXT,
  };
  const VALUED = "meter progressbar scrollbar separator slider spinbutton";
  const OWN = {
    "aria-activedescendant": [TEXT, "application combobox grid group listbox menu menubar radiogroup searchbox tablist textbox toolbar tree treegrid"],
    "aria-autocomplete": [/^(inline|list|both|none)$/, "combobox searchbox textbox"],
    "aria-checked": [MAYBE, "checkbox menuitemcheckbox menuitemradio option radio switch treeitem"],
    "aria-colcount": [NUMBER, "grid table treegrid"], "aria-colindex": [NUMBER, "cell columnheader gridcell row rowheader"],
    "aria-disabled": [FLAG, "application button checkbox combobox grid gridcell group link listbox menu menubar menuitem menuitemcheckbox menuitemradio option radio radiogroup scrollbar searchbox separator slider spinbutton switch tab tablist textbox toolbar tree treegrid treeitem"],
    "aria-errormessage": [TEXT, "checkbox combobox listbox radiogroup searchbox slider spinbutton textbox"],
    "aria-expanded": [FLAG, "application button checkbox combobox gridcell link listbox menuitem tab treeitem"],
    "aria-haspopup": [/^(true|false|menu|listbox|tree|grid|dialog)$/, "application button combobox gridcell link menuitem searchbox slider tab textbox treeitem"],
    "aria-invalid": [/^(true|false|grammar|spelling)$/, "checkbox combobox listbox radiogroup searchbox slider spinbutton switch textbox"],
    "aria-level": [/^[1-9]\d*$/, "heading listitem treeitem"], "aria-modal": [FLAG, "alertdialog dialog"],
    "aria-multiline": [FLAG, "searchbox textbox"], "aria-multiselectable": [FLAG, "grid listbox tablist tree treegrid"],
    "aria-orientation": [/^(horizontal|vertical|undefined)$/, "listbox menu menubar radiogroup scrollbar separator slider tablist toolbar tree"],
    "aria-placeholder": [TEXT, "searchbox textbox"], "aria-posinset": [NUMBER, "article listitem menuitem option radio tab treeitem"],
    "aria-pressed": [MAYBE, "button"], "aria-readonly": [FLAG, "checkbox combobox grid gridcell listbox radiogroup searchbox slider spinbutton textbox"],
    "aria-required": [FLAG, "checkbox combobox gridcell listbox radiogroup searchbox spinbutton textbox tree"],
    "aria-rowcount": [NUMBER, "grid table treegrid"], "aria-rowindex": [NUMBER, "cell columnheader gridcell row rowheader"],
    "aria-selected": [FLAG, "columnheader gridcell option row rowheader tab treeitem"], "aria-setsize": [NUMBER, "article listitem menuitem option radio tab treeitem"],
    "aria-sort": [/^(ascending|descending|none|other)$/, "columnheader rowheader"],
    "aria-valuemax": [NUMBER, VALUED], "aria-valuemin": [NUMBER, VALUED], "aria-valuenow": [NUMBER, VALUED], "aria-valuetext": [TEXT, VALUED],
  };
  const NEEDS = { checkbox: "aria-checked", combobox: "aria-expanded", heading: "aria-level", menuitemcheckbox: "aria-checked", menuitemradio: "aria-checked", meter: "aria-valuenow", radio: "aria-checked", scrollbar: "aria-valuenow", slider: "aria-valuenow", switch: "aria-checked" };
  const WITHIN = { cell: "row", columnheader: "row", gridcell: "row", listitem: "list", menuitem: "menu menubar group", option: "listbox group", row: "table grid treegrid rowgroup", rowheader: "row", tab: "tablist", treeitem: "tree group" };
  const HOLDS = { feed: "article", grid: "row rowgroup", list: "listitem", listbox: "option group", menu: "menuitem menuitemradio menuitemcheckbox group", row: "cell columnheader gridcell rowheader", table: "row rowgroup", tablist: "tab", tree: "treeitem group" };
  const CLOSED = new Set(words("button checkbox img image meter option progressbar radio scrollbar separator slider switch tab"));
  const REFERENCES = words("aria-activedescendant aria-controls aria-describedby aria-details aria-errormessage aria-labelledby aria-owns for headers");
  const LANDMARKS = words("banner complementary contentinfo form main navigation region search");
  const COMPLETED = words("on off name username current-password new-password one-time-code email");

  // --- the rules ------------------------------------------------------------------------------

  const RULES = {
    // button-name, link-name, label, select-name, image-alt, aria-*-name and their like.
    name() {
      const reads = (each) => each.matches("button:not([aria-labelledby]), a:not([aria-labelledby])") && each.innerText.trim(); // a computed name is slow
      for (const each of every(ROLED)) if (exposed(each) && !reads(each) && NAMED.has(roleOf(each)) && !nameOf(each)) report(each, `a ${roleOf(each)} without a name`);
      for (const each of every("section, aside")) if (exposed(each) && !nameOf(each)) report(each, "a part of the page without a name");
    },
    // label-title-only, label-content-name-mismatch.
    wording() {
      for (const each of every("input, select, textarea")) if (exposed(each) && each.title && !each.labels?.length && !each.matches("[aria-label], [aria-labelledby]")) report(each, "named by a title only");
      for (const each of every("button[aria-label], a[aria-label]")) if (!each.getAttribute("aria-label").toLowerCase().includes(each.textContent.trim().toLowerCase())) report(each, "its name does not contain its text");
    },
    // aria-roles, aria-required-attr, -parent, -children.
    role() {
      for (const each of every("[role]")) {
        const role = each.getAttribute("role");
        if (!words(role).length || words(role).some((one) => !ROLES.includes(one))) report(each, "no such role");
        const native = each.matches("input, select, h1, h2, h3, h4, h5, h6, meter, progress, th, td, tr, li, option");
        if (NEEDS[role] && !native && !each.hasAttribute(NEEDS[role])) report(each, `without ${NEEDS[role]}`);
        if (!exposed(each)) continue;
        const parent = () => each.parentElement.closest("[role]:not([role='none'], [role='presentation']), table, tr, ul, ol, dl, select");
        if (WITHIN[role] && !words(WITHIN[role]).includes(parent() && roleOf(parent()))) report(each, `not in a ${WITHIN[role]}`);
        const holds = (one) => words(HOLDS[role]).includes(roleOf(one));
        if (HOLDS[role] && !each.ariaBusy && each.childElementCount && ![...each.querySelectorAll("*")].some(holds)) report(each, `without a ${HOLDS[role]}`);
      }
    },
    // aria-valid-attr, -valid-attr-value, -allowed-attr, -prohibited-attr, -conditional-attr, -braille-equivalent.
    attribute() {
      for (const each of every("*"))
        for (const { name, value } of each.attributes) {
          if (!name.startsWith("aria-")) continue;
          const [form, roles] = name in GLOBAL ? [GLOBAL[name], null] : OWN[name] || [null, null];
          if (!form) report(each, `no such attribute as ${name}`);
          else if (value && !form.test(value)) report(each, `${name} cannot be ${value}`);
          else if (roles && exposed(each) && !words(roles).includes(roleOf(each))) report(each, `${name} on a ${roleOf(each)}`);
          if (exposed(each) && (name === "aria-label" || name === "aria-labelledby") && UNNAMED.has(roleOf(each))) report(each, `${name} on a ${roleOf(each)}`);
          if (name === "aria-checked" && each.matches("input")) report(each, "aria-checked on an input");
        }
      for (const each of every(REFERENCES.map((name) => `[${name}]`).join(", ")))
        for (const name of REFERENCES) for (const id of words(each.getAttribute(name))) if (!document.getElementById(id)) report(each, `${name} has no target`);
    },
    // aria-hidden-body, aria-hidden-focus.
    hidden() {
      if (document.body.getAttribute("aria-hidden") === "true") report(document.body, "hidden from screen readers");
      for (const each of every("[aria-hidden='true'], [aria-hidden='true'] *")) if (focusable(each)) report(each, "focusable and hidden");
    },
    // document-title, html-has-lang, html-lang-valid, valid-lang, meta-refresh, meta-viewport.
    document() {
      if (!document.title.trim()) report(document.documentElement, "no title");
      if (!document.documentElement.lang) report(document.documentElement, "no language");
      for (const each of every("[lang]")) if (!/^[a-z]{2,3}(-[A-Za-z\d]{2,8})*$/.test(each.lang)) report(each, "not a language");
      for (const each of every("meta[http-equiv='refresh' i]")) report(each, "the page reloads by itself");
      for (const each of every("meta[name='viewport']")) if (/user-scalable\s*=\s*(no|0)|maximum-scale\s*=\s*[01](\.|,|$)/.test(each.content)) report(each, "cannot be zoomed");
    },
    // bypass, region, landmark-*, heading-order, page-has-heading-one.
    structure() {
      if (every("h1").length !== 1 || every("main").length !== 1) report(document.documentElement, "not one h1 and one main");
      const headings = every("h1, h2, h3, h4, h5, h6").filter(exposed);
      headings.forEach((each, at) => at && each.tagName[1] > Number(headings[at - 1].tagName[1]) + 1 && report(each, "a skipped level"));
      for (const each of headings) if (!nameOf(each)) report(each, "an empty heading");
      const landmarks = every("header, main, aside, footer, section, nav, form, [role]").filter((each) => exposed(each) && LANDMARKS.includes(roleOf(each)));
      const labels = landmarks.map((each) => `${roleOf(each)} ${nameOf(each)}`);
      landmarks.forEach((each, at) => labels.indexOf(labels[at]) !== at && report(each, "a landmark with the same name"));
      const within = (each) => landmarks.some((one) => one.contains(each)) || each.closest("dialog, .skip, [aria-live]");
      for (const each of texts()) if (exposed(each) && !within(each)) report(each, "text outside of all landmarks");
    },
    // duplicate-id-aria, and all other ids.
    id() {
      const ids = every("[id]").map((each) => each.id);
      every("[id]").forEach((each, at) => ids.indexOf(each.id) !== at && report(each, "an id twice"));
    },
    // list, listitem, definition-list, dlitem.
    list() {
      const others = (each, allowed) => [...each.children].some((child) => !child.matches(`${allowed}, script, template`));
      for (const each of every("ul, ol")) if (others(each, "li")) report(each, "something else in it");
      for (const each of every("li")) if (!each.parentElement.matches("ul, ol, menu")) report(each, "in no list");
      for (const each of every("dl")) if (others(each, "dt, dd, div")) report(each, "something else in it");
      for (const each of every("dl > div")) if (others(each, "dt, dd") || !each.querySelector(":scope > dt") || !each.querySelector(":scope > dd")) report(each, "no term with a description");
      for (const each of every("dt, dd")) if (!each.parentElement.matches("dl, dl > div")) report(each, "in no list of terms");
    },
    // td-headers-attr, th-has-data-cells; every table needs a caption and scopes.
    table() {
      for (const each of every("table").filter(shown)) {
        const heads = [...each.querySelectorAll("th")];
        if (!each.caption) report(each, "no caption");
        if (!heads.length || heads.some((head) => !["col", "row", "colgroup", "rowgroup"].includes(head.scope))) report(each, "heads without a scope");
        if (each.tBodies[0]?.rows.length && !each.querySelector("td")) report(each, "heads without cells");
        for (const cell of each.querySelectorAll("[headers]")) if (words(cell.getAttribute("headers")).some((id) => !heads.some((head) => head.id === id))) report(cell, "a head of another table");
      }
    },
    // tabindex, nested-interactive, accesskeys, autocomplete-valid.
    control() {
      for (const each of every("[tabindex]")) if (each.tabIndex > 0) report(each, "a tabindex above 0");
      for (const each of every(ROLED)) if (each.childElementCount && [...each.querySelectorAll("*")].some(focusable) && CLOSED.has(roleOf(each))) report(each, "a control in a control");
      for (const each of every("a a, a button, label label")) report(each, "a control in a control");
      for (const each of every("[accesskey]")) report(each, "an access key");
      for (const each of every("[autocomplete]")) if (words(each.getAttribute("autocomplete")).some((one) => !COMPLETED.includes(one))) report(each, "an unknown autocomplete value");
    },
    // scrollable-region-focusable.
    scroll() {
      for (const each of every("body *").filter(shown)) {
        const { overflowX, overflowY } = getComputedStyle(each);
        const scrolls = (way, size, room) => /auto|scroll/.test(way) && size > room + 2;
        if (each.matches("input, select, textarea") || !(scrolls(overflowY, each.scrollHeight, each.clientHeight) || scrolls(overflowX, each.scrollWidth, each.clientWidth))) continue;
        if (!each.hasAttribute("tabindex") && ![...each.querySelectorAll("*")].some(focusable)) report(each, "scrolls, and is not focusable");
      }
    },
    // target-size (WCAG 2.5.8).
    target() {
      for (const each of every("button, select, summary, input:not([type='range']), [role='button']").filter(shown)) {
        const box = each.getBoundingClientRect();
        if (box.height < 23.5 || box.width < 23.5) report(each, `${Math.round(box.width)} x ${Math.round(box.height)}`);
      }
    },
    // The page is not wider than the screen.
    width() {
      const { scrollWidth } = document.documentElement;
      if (scrollWidth > innerWidth) report(document.documentElement, `${scrollWidth} in ${innerWidth}`);
    },
    // link-in-text-block, avoid-inline-spacing.
    style() {
      for (const each of every("p a[href], li a[href], td a[href], dd a[href]")) if (shown(each) && !getComputedStyle(each).textDecorationLine.includes("underline")) report(each, "a link that only its colour marks");
      for (const each of every("[style]")) for (const property of ["letter-spacing", "word-spacing", "line-height"]) if (each.style.getPropertyPriority(property)) report(each, "spacing that users cannot change");
    },
    // color-contrast (WCAG 1.4.3), against the background.
    contrast() {
      for (const each of texts()) {
        if (!shown(each) || each.closest(".unseen, svg, .skip, :disabled, option, select, noscript")) continue;
        const { fontSize, fontWeight } = getComputedStyle(each);
        const large = parseFloat(fontSize) >= 24 || (parseFloat(fontSize) >= 18.66 && Number(fontWeight) >= 700);
        const ground = groundOf(each);
        const ratio = contrastOf(over(coloured(getComputedStyle(each).color), ground, opacityOf(each)), ground);
        if (ratio < (large ? 3 : 4.5)) report(each, ratio.toFixed(2));
      }
      for (const each of every("input[placeholder]").filter(shown)) if (contrastOf(coloured(getComputedStyle(each, "::placeholder").color), groundOf(each)) < 4.5) report(each, "a placeholder with low contrast");
    },
    // frame-*, object-alt, area-alt, input-image-alt, video-caption, blink, marquee, server-side-image-map.
    foreign() {
      for (const each of every("iframe, frame, object, embed, audio, video, map, area, input[type='image'], blink, marquee, img[ismap]")) report(each, "no rule supports this element");
    },
  };

  // --- helpers --------------------------------------------------------------------------------

  function texts() {
    return every("body *").filter((each) => !each.matches("script, style, noscript, noscript *") && [...each.childNodes].some((node) => node.nodeType === 3 && node.textContent.trim()));
  }

  const coloured = (colour) => (([r, g, b, alpha = 1]) => ({ parts: [r, g, b], alpha }))((colour.match(/[\d.]+/g) || [0, 0, 0, 0]).map(Number));
  const over = ({ parts, alpha }, ground, opacity = 1) => ({ parts: parts.map((part, at) => part * alpha * opacity + ground.parts[at] * (1 - alpha * opacity)), alpha: 1 });

  function ancestors(each) {
    const found = [];
    for (let at = each; at; at = at.parentElement) found.push(at);
    return found;
  }

  const groundOf = (each) => ancestors(each).reverse().reduce((ground, at) => over(coloured(getComputedStyle(at).backgroundColor), ground), { parts: [255, 255, 255], alpha: 1 });
  const opacityOf = (each) => ancestors(each).reduce((product, at) => product * Number(getComputedStyle(at).opacity), 1);

  function light({ parts }) {
    const [r, g, b] = parts.map((part) => ((part /= 255) <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  }

  function contrastOf(one, other) {
    const [high, low] = [light(one), light(other)].sort((a, b) => b - a);
    return (high + 0.05) / (low + 0.05);
  }

  if (document.body.computedRole === undefined) throw new Error("the browser does not expose names and roles");
  for (const [each, check] of Object.entries(RULES)) {
    rule = each;
    check();
  }
  return [...new Set(faults)];
})();
