"""Each rule of accessibility.js finds its fault and no other.

The names are those of axe's serious and critical rules; its moderate rules are marked as such.
"""

import re
from pathlib import Path

import pytest

from chromium import Page

pytestmark = pytest.mark.anyio
AUDIT = (Path(__file__).parents[1] / "accessibility.js").read_text()
VALID = """<!doctype html><html lang="en"><head><title>Sound</title>
<style>button, select, input {{ min-width: 24px; min-height: 24px }}</style></head><body>
<header><h1>Sound</h1></header><main id="m" aria-label="All">{}
<p>Some <a href="#m">text</a>.</p><button>Press</button>
<label>Name <input></label><label>Which <select><option>a</select></label>
<ul><li>one</li></ul><dl><div><dt>a</dt><dd>b</dd></div></dl>
<table><caption>c</caption><tr><th scope="col">h</th></tr><tr><td>d</td></tr></table>
<div role="img" aria-label="A picture">x</div></main></body></html>"""
SCROLLING = "overflow:auto;height:20px;width:60px"

FAULTS = {
    "aria-command-name": ("name", "<div role='button' tabindex='0' style='height:24px'></div>"),
    "aria-dialog-name": ("name", "<div role='dialog'>x</div>"),
    "aria-input-field-name": ("name", "<div role='textbox' tabindex='0'>x</div>"),
    "aria-meter-name": ("name", "<div role='meter' aria-valuenow='1'>x</div>"),
    "aria-progressbar-name": ("name", "<div role='progressbar'>x</div>"),
    "aria-tab-name": ("name", "<div role='tablist'><div role='tab' tabindex='0'><br></div></div>"),
    "aria-toggle-field-name": (
        "name",
        "<div role='switch' aria-checked='true' tabindex='0'><br></div>",
    ),
    "button-name": ("name", "<button></button>"),
    "image-alt": ("name", "<img width='9' height='9'>"),
    "input-button-name": ("name", "<input type='button' value=''>"),
    "label": ("name", "<input>"),
    "link-name": ("name", "<a href='#m'><br></a>"),
    "role-img-alt": ("name", "<div role='img'>x</div>"),
    "select-name": ("name", "<select><option>a</select>"),
    "svg-img-alt": ("name", "<svg role='img' width='9' height='9'></svg>"),
    "label-title-only": ("wording", "<input title='x'>"),
    "label-content-name-mismatch": ("wording", "<button aria-label='Leave'>Press</button>"),
    "aria-roles": ("role", "<p role='knob'>x</p>"),
    "aria-text": ("role", "<p role='text'>x</p>"),
    "aria-required-attr": ("role", "<div role='slider' aria-label='x' tabindex='0'>x</div>"),
    "aria-required-parent": ("role", "<div role='listitem'>x</div>"),
    "aria-required-children": ("role", "<div role='list'><b>x</b></div>"),
    "aria-valid-attr": ("attribute", "<p aria-labeled='x'>x</p>"),
    "aria-valid-attr-value": ("attribute", "<p aria-live='loud'>x</p>"),
    "a reference": ("attribute", "<p aria-describedby='nobody'>x</p>"),
    "aria-allowed-attr": ("attribute", "<button aria-checked='true'>x</button>"),
    "aria-prohibited-attr": ("attribute", "<span aria-label='y'>x</span>"),
    "aria-conditional-attr": (
        "attribute",
        "<label>x<input type='checkbox' aria-checked='true'></label>",
    ),
    "aria-braille-equivalent": ("attribute", "<button aria-braillelabel='x'>x</button>"),
    "aria-hidden-focus": ("hidden", "<div aria-hidden='true'><button>x</button></div>"),
    "valid-lang": ("document", "<p lang='english'>x</p>"),
    "duplicate-id-aria": ("id", "<p id='m'>x</p>"),
    "definition-list": ("list", "<dl><p>x</p></dl>"),
    "dlitem": ("list", "<dt>x</dt>"),
    "list": ("list", "<ul><p>x</p></ul>"),
    "listitem": ("list", "<li>x</li>"),
    "td-headers-attr": (
        "table",
        "<table><caption>x</caption><tr><th scope='col'>h<tr><td headers='m'>d</table>",
    ),
    "th-has-data-cells": ("table", "<table><caption>x</caption><tr><th scope='col'>h</table>"),
    "a caption": ("table", "<table><tr><th scope='col'>h<tr><td>d</table>"),
    "a scope": ("table", "<table><caption>x</caption><tr><th>h<tr><td>d</table>"),
    "tabindex": ("control", "<button tabindex='3'>x</button>"),
    "nested-interactive": ("control", "<button>x<span tabindex='0'>y</span></button>"),
    "accesskeys": ("control", "<button accesskey='x'>x</button>"),
    "autocomplete-valid": ("control", "<label>x<input autocomplete='username nose'></label>"),
    "scrollable-region-focusable": ("scroll", f"<div style='{SCROLLING}'>{'x ' * 99}</div>"),
    "target-size": ("target", "<button style='height:12px;min-height:0;padding:0'>x</button>"),
    "link-in-text-block": ("style", "<p>x <a href='#m' style='text-decoration:none'>y</a></p>"),
    "avoid-inline-spacing": ("style", "<p style='line-height:1 !important'>x</p>"),
    "color-contrast": ("contrast", "<p style='color:#999'>x</p>"),
    "contrast behind a veil": ("contrast", "<p style='opacity:.4'>x</p>"),
    "contrast of a placeholder": (
        "contrast",
        "<label>x<input placeholder='y' style='background:#777'></label>",
    ),
    "frame-title": ("foreign", "<iframe></iframe>"),
    "object-alt": ("foreign", "<object></object>"),
    "video-caption": ("foreign", "<video></video>"),
    "marquee": ("foreign", "<marquee>x</marquee>"),
    "moderate: heading-order": ("structure", "<h4>x</h4>"),
    "moderate: page-has-heading-one": ("structure", "<h1>x</h1>"),
    "moderate: landmark-unique": ("structure", "<section aria-label='a'>x</section>" * 2),
    "a part without a name": ("name", "<section>x</section>"),
}
DOCUMENT_FAULTS = {
    "aria-hidden-body": ("hidden", "<body>", "<body aria-hidden='true'>"),
    "document-title": ("document", "<title>Sound</title>", ""),
    "html-has-lang": ("document", ' lang="en"', ""),
    "html-lang-valid": ("document", ' lang="en"', ' lang="of the birds"'),
    "meta-refresh": ("document", "<title>", "<meta http-equiv='refresh' content='9'><title>"),
    "moderate: meta-viewport": (
        "document",
        "<title>",
        "<meta name='viewport' content='width=device-width, user-scalable=no'><title>",
    ),
    "bypass": ("structure", 'main id="m" aria-label="All"', 'section id="m" aria-label="All"'),
    "more than the screen is wide": ("width", "<p>", "<p style='width:9000px'>"),
    "moderate: region": ("structure", "</body>", "<p>x</p></body>"),
}


async def found(page: Page, html: str) -> set[str]:
    await page.show(html)
    return {fault.partition(":")[0] for fault in await page.listen_to(AUDIT)}


async def test_a_page_without_faults_passes(page: Page) -> None:
    assert await found(page, VALID.format("")) == set()


async def test_each_fault_is_found_by_its_rule_and_by_no_other(page: Page) -> None:
    reported = {fault: await found(page, VALID.format(html)) for fault, (_, html) in FAULTS.items()}

    assert reported == {fault: {rule} for fault, (rule, _) in FAULTS.items()}


async def test_each_fault_of_a_document_is_found_by_its_rule(page: Page) -> None:
    html = VALID.format("")
    reported = {
        fault: await found(page, html.replace(sound, broken, 1))
        for fault, (_, sound, broken) in DOCUMENT_FAULTS.items()
    }

    assert reported == {fault: {rule} for fault, (rule, *_) in DOCUMENT_FAULTS.items()}


@pytest.mark.slow
def test_every_rule_has_a_fault_that_it_finds() -> None:
    rules = set(re.findall(r"^    (\w+)\(\) \{", AUDIT, re.MULTILINE))

    assert rules == {rule for rule, *_ in (*FAULTS.values(), *DOCUMENT_FAULTS.values())}
