"""Every version that something kept carries has a row in one table."""

import importlib
import re
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

import pytest

import joulie_migrations
from joulie_bus.core.formats import FORMATS, IN_FORCE, Format
from joulie_bus.events.codec import UPCASTERS

ROOT = Path(__file__).parents[3]
ROOMS = (
    "bus",
    "projections",
    "extender",
    "operator",
    "agent",
    "audit",
    "answers",
    "console",
    "cli",
)
VERSION = re.compile(r"""["']joulie[-a-z]*/\d""")


def test_one_version_of_each_axis_is_in_force() -> None:
    axes = Counter(each.axis for each in FORMATS if each.until == IN_FORCE)

    assert axes.keys() == {each.axis for each in FORMATS}
    assert set(axes.values()) == {1}


def test_the_first_version_of_each_axis_is_one() -> None:
    firsts = {each.axis: each.version for each in reversed(FORMATS)}

    assert firsts.pop("schema") == joulie_migrations.FIRST
    assert set(firsts.values()) == {"1"}


@pytest.mark.parametrize("row", FORMATS, ids=lambda row: f"{row.axis} {row.version}")
def test_what_reads_a_version_exists(row: Format) -> None:
    assert importlib.import_module(row.read_by)


def test_an_event_that_is_read_in_an_older_version_has_a_row() -> None:
    assert without_a_row(UPCASTERS) == []
    assert without_a_row([("pod.bound", 1)]) == ["event pod.bound 1"]


def without_a_row(upcasters: Iterable[tuple[str, int]]) -> list[str]:
    rows = {f"{each.axis} {each.version}" for each in FORMATS}
    return [name for kind, old in upcasters if (name := f"event {kind} {old}") not in rows]


def test_no_module_states_a_version_that_is_not_of_the_table() -> None:
    files = [file for room in ROOMS for file in (ROOT / room).glob("joulie_*/**/*.py")]
    found = {file.name for file in files if VERSION.search(file.read_text())}

    assert len(files) > 300
    assert found == set()
