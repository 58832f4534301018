"""Renews the figures of the pages from the results of benchmarks.

    make figures, or: .venv/bin/python docs/figures.py

A page marks what is taken from a file of benchmarks/results:

    <!-- figure: FILE; TABLE; ROW; COLUMN -->2.4<!-- / -->      one figure; `; .2f` is its format
    <!-- option: FILE; NAME -->5,000<!-- / -->                  an option of the run
    <!-- table: FILE; TABLE -->...<!-- / -->                    a whole table
    <!-- from: FILE -->2026-11-28, ...<!-- / -->               when and on what it was measured

A test holds pages and results together.
"""

import re
import sys
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import TypeVar

sys.path.insert(0, str(Path(__file__).parents[1] / "benchmarks" / "kit"))

from report import MEASURED, RESULTS, ROOT, Result, Table, read, shown

PAGES = (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")))
PAGES += tuple(sorted((ROOT / "docs" / "contributing").glob("*.md")))
MARK = re.compile(
    r"<!-- (?P<kind>figure|option|table|from): (?P<words>[^>]*?) -->.*?<!-- / -->", re.S
)


T = TypeVar("T")


class WrongMark(Exception):
    """A mark that names no result."""


@cache
def result(name: str) -> Result:
    file = RESULTS / f"{name}.json"
    if not file.exists():
        raise WrongMark(f"there is no {file.relative_to(ROOT)}; `make bench NAME=...` writes it")
    return read(file)


def figure(name: str, *words: str) -> str:
    title, row, column, *form = words
    number = _found(_found(_table(name, title).rows, row, name), column, name)
    return format(number, form[0]) if form else shown(number)


def option(name: str, of: str) -> str:
    text = _found(result(name).options, of, name)
    return f"{int(text):,}" if text.isdecimal() else text


def table(name: str, title: str) -> str:
    found = _table(name, title)
    titles = [] if found.columns == [MEASURED] else list(found.columns)
    lines = [["", *(titles or [title])], ["---"] * (len(found.columns) + 1)]
    lines += [[row, *map(shown, each.values())] for row, each in found.rows.items()]
    text = "\n".join(f"| {' | '.join(cells)} |" for cells in lines)
    return f"\n\n{text}\n\n"


def where(name: str) -> str:
    found = result(name)
    load = ", load " + " to ".join(f"{each:.0f}" for each in sorted(found.load))
    cores = f"{found.machine['cores']} cores of {found.machine['processor']}"
    return f"{found.at}, commit {found.commit.rstrip('+')}, {cores}{load if found.load else ''}"


KINDS: dict[str, Callable[..., str]] = {
    "figure": figure,
    "option": option,
    "table": table,
    "from": where,
}


def renewed(page: str) -> str:
    return MARK.sub(_renewed, page)


def _renewed(mark: re.Match[str]) -> str:
    kind, words = mark["kind"], [each.strip() for each in mark["words"].split(";")]
    try:
        made = KINDS[kind](*words)
    except (TypeError, ValueError) as error:
        raise WrongMark(f"{mark[0][:80]}: {error}") from error
    return f"<!-- {kind}: {mark['words']} -->{made}<!-- / -->"


def unmarked(page: str) -> str:
    """The page without what is taken from results."""
    return MARK.sub(lambda mark: f"<{mark['kind']}: {mark['words'].split(';')[0]}>", page)


def _table(name: str, title: str) -> Table:
    found = {each.title: each for each in result(name).tables}
    return _found(found, title, name)


def _found(among: Mapping[str, T], key: str, name: str) -> T:
    if key not in among:
        raise WrongMark(f"{name} has {', '.join(among)}, and no {key!r}")
    return among[key]


def main() -> None:
    for path in PAGES:
        text = path.read_text()
        try:
            path.write_text(renewed(text))
        except WrongMark as error:
            sys.exit(f"{path.relative_to(ROOT)}: {error}")


if __name__ == "__main__":
    main()
