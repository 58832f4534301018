"""The files of the page: what is derived, what is vendored, and how they are served."""

import gzip
import hashlib
import re
from pathlib import Path

import page_vocabulary
from joulie_console.api.app import GZIP_LEVEL
from joulie_console.page_files import page_files
from joulie_extender.catalogue.rules import RULES, sentence_of

PAGE = Path(__file__).parents[2] / "console" / "joulie_console" / "page"
SUM = re.compile(r"^\| `([^`]+)` \| .* \| `([0-9a-f]{64})` \|$", re.MULTILINE)


def test_the_vocabulary_of_the_page_is_that_of_the_code() -> None:
    assert (PAGE / "vocabulary.js").read_text() == page_vocabulary.text(), "renew it: make page"


def test_every_verdict_has_a_text() -> None:
    codes = [verdict for rule in RULES for verdict, _ in rule.advice]

    assert [code for code in codes if "refused with code" in sentence_of(code)] == []


def test_vendored_files_are_those_that_their_table_names() -> None:
    vendor = PAGE / "vendor"
    named = dict(SUM.findall((vendor / "README.md").read_text()))
    served = [file for file in vendor.iterdir() if file.suffix in (".js", ".mjs", ".css")]

    assert {file.name: hashlib.sha256(file.read_bytes()).hexdigest() for file in served} == named


def test_all_of_the_page_is_at_most_120_kb_as_it_is_sent() -> None:
    sizes = {
        path: len(gzip.compress(file.content, GZIP_LEVEL)) for path, file in page_files().items()
    }

    assert sum(sizes.values()) <= 120_000, sizes


def test_nothing_but_the_line_of_health_is_red() -> None:
    css = (PAGE / "style.css").read_text()
    red = {rule.partition("{")[0].strip() for rule in css.split("}") if "var(--bad" in rule}

    assert red == {".top-line.serious"}
    drawn = [file.name for file in PAGE.glob("*.js") if '"bad"' in file.read_text()]
    assert drawn == []


def test_licenses_are_not_served_and_modules_are() -> None:
    paths = page_files().keys()

    assert {"/", "/main.js", "/vendor/preact.mjs", "/vendor/uPlot.min.css"} <= paths
    assert [path for path in paths if "LICENSE" in path or "README" in path] == []


def test_the_document_has_no_inline_script_or_style() -> None:
    html = (PAGE / "index.html").read_text()

    assert re.findall(r"<script(?![^>]*src=)[^>]*>|<style|\sstyle=|\son\w+=", html) == []


def test_no_module_parses_text_as_markup() -> None:
    ours = [file for file in PAGE.glob("*.js") if file.name != "vocabulary.js"]
    found = {
        file.name: re.findall(r"innerHTML|insertAdjacentHTML|eval\(|new Function", file.read_text())
        for file in ours
    }

    assert len(ours) > 10
    assert {name: hits for name, hits in found.items() if hits} == {}
