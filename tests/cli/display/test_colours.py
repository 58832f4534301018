"""Colours on a terminal, and none in a pipe, with NO_COLOR, or on a dumb terminal."""

import io
import os
import pty
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from msgspec import convert, to_builtins
from msgspec.structs import replace
from rich.console import Console
from rich.theme import Theme

from joulie_answers.schema.responses import Energy, EnergyShare
from joulie_answers.text.energy import energy_text
from joulie_answers.text.tables import TextTable, TextWithTables
from joulie_cli.display import output
from joulie_cli.display.colours import STYLES, coloured, drawn
from joulie_cli.display.output import has_colours
from joulie_cli.main import main
from joulie_projections.history.history import EntryQuery, History

Golden = Any  # of conftest.py
ESCAPE = "\x1b["
UNSEEN = re.compile(r"\x1b\[[\d;]*m")


@pytest.mark.parametrize(
    ("is_terminal", "environ", "wanted"),
    [
        (True, {}, True),
        (True, {"NO_COLOR": ""}, True),
        (True, {"NO_COLOR": "1"}, False),
        (True, {"TERM": "dumb"}, False),
        (False, {}, False),
    ],
)
def test_a_terminal_has_colours_unless_it_refuses_them(
    is_terminal: bool, environ: dict[str, str], wanted: bool
) -> None:
    assert has_colours(is_terminal, environ) == wanted


def test_what_is_stale_idle_or_best_has_a_colour_and_the_text_stays() -> None:
    text = "STALE        it is down\n *n1   20\nIDLE: a holds b\nplain *line"
    found = coloured(text)
    styles = {str(span.style): found.plain[span.start : span.end] for span in found.spans}

    assert found.plain == text
    assert styles == {
        "joulie.stale": "STALE        it is down",
        "joulie.best": "*n1",
        "joulie.warning": "IDLE: a holds b",
    }


def on_a_terminal(*words: str | Path, **environ: str) -> str:
    leader, follower = pty.openpty()
    command = [sys.executable, "-m", "joulie_cli.main", *map(str, words)]
    child = {**os.environ, "TERM": "xterm-256color", **environ}
    with subprocess.Popen(command, stdout=follower, env=child) as process:
        os.close(follower)
        out = b""
        try:
            while chunk := os.read(leader, 65_536):
                out += chunk
        except OSError:  # Linux: the other end is closed
            pass
        assert process.wait() == 0
    os.close(leader)
    return out.decode()


@pytest.mark.long
def test_a_command_on_a_terminal_prints_the_same_text_in_colours(golden: Golden) -> None:
    with History.of(golden.data / "joulie.db") as history:
        scored = next(history.find(EntryQuery(kinds=("decision.prioritize",)), 1))
    words = ("explain", scored.pod, "--data", golden.data, "--archive", golden.archive)
    plain = on_a_terminal(*words, NO_COLOR="1")

    assert ESCAPE not in plain
    shown = on_a_terminal(*words, COLUMNS="400")
    assert f"{ESCAPE}32m*" in shown, "the best candidate"
    assert UNSEEN.sub("", shown).split() == plain.split()


@pytest.mark.long
def test_a_table_on_a_terminal_is_as_wide_as_the_terminal_and_keeps_every_word(
    golden: Golden,
) -> None:
    words = ("plans", "--all", "--data", golden.data, "--archive", golden.archive)
    plain = on_a_terminal(*words, NO_COLOR="1", COLUMNS="60")
    wide, narrow = (on_a_terminal(*words, COLUMNS=each) for each in ("400", "60"))

    assert max(map(len, plain.splitlines())) > 60
    assert max(len(UNSEEN.sub("", line)) for line in narrow.splitlines()) <= 60
    assert f"{ESCAPE}1mPOSITION" in wide
    assert UNSEEN.sub("", wide).split() == plain.split()
    letters = [sorted("".join(UNSEEN.sub("", each).split())) for each in (narrow, plain)]
    assert letters[0] == letters[1]


def test_a_pipe_gets_a_table_as_before_without_rich() -> None:
    """Importing rich costs a tenth of a second of CPU."""
    code = (
        "import argparse, sys\n"
        "from joulie_answers.text.tables import TextTable, TextWithTables\n"
        "from joulie_cli.display.output import show\n"
        "table = TextTable(('a', 'MB'), [('x' * 100, '1')], {'MB'}, indent=1)\n"
        "show(argparse.Namespace(output='table'), 0, TextWithTables.of(['one', table]))\n"
        "print('rich' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert done.stdout.splitlines() == ["one", f" {'a':<100}  MB", f" {'x' * 100}   1", "False"]


def tables_of(
    words: Sequence[str | Path], monkeypatch: pytest.MonkeyPatch
) -> tuple[TextTable, ...]:
    """Of the text that a command prints."""
    texts = list[str]()
    monkeypatch.setattr(output, "print_text", texts.append)
    assert main([*map(str, words)]) == 0
    (text,) = texts
    assert isinstance(text, TextWithTables)
    return tuple(part for part in text.parts if isinstance(part, TextTable))


def lines_at(width: int, table: TextTable) -> list[str]:
    shown = io.StringIO()
    console = Console(file=shown, width=width, theme=Theme(STYLES))
    for drawing in drawn(table, width):
        console.print(drawing)
    return shown.getvalue().splitlines()


def assert_fits(table: TextTable) -> None:
    lines = lines_at(80, table)
    words = " ".join(lines).split()

    assert max(map(len, lines)) <= 80
    assert len(lines) > len(table.rows)
    names = {cell for row in table.rows for cell in row[: table.keys]}
    assert {word for name in names for word in name.split()} <= {*words}
    numbers = {at for at, head in enumerate(table.head) if head in table.numbers}
    assert {word for row in table.rows for at in numbers for word in row[at].split()} <= {*words}


def test_explain_has_a_table_of_scores_that_a_terminal_of_80_columns_draws(
    golden: Golden, monkeypatch: pytest.MonkeyPatch
) -> None:
    with History.of(golden.data / "joulie.db") as history:
        scored = next(history.find(EntryQuery(kinds=("decision.prioritize",)), 1))
    words = ("explain", scored.pod, "--data", golden.data, "--archive", golden.archive)

    (table,) = tables_of(words, monkeypatch)

    assert table.head.index("|") < table.head.index("score")
    assert table.head[-1] == "from"
    assert_fits(table)


def test_whatif_has_a_table_of_groups_that_a_terminal_of_80_columns_draws(
    golden: Golden, monkeypatch: pytest.MonkeyPatch
) -> None:
    where = ("--data", golden.data, "--archive", golden.archive)

    (table,) = tables_of(("whatif", "--set", "scoring=energy", *where), monkeypatch)

    assert table.rows[0][0] == "all"
    assert_fits(table)


def test_energy_has_a_table_of_shares_that_a_terminal_of_80_columns_draws() -> None:
    figures = ("kwh", "pods_kwh", "idle_kwh", "cost", "unpriced_kwh", "kgco2e", "unweighed_kwh")
    share = EnergyShare(
        name="team-a/cpu-93ad3f-1367", modelled_kwh=2469.1, **dict.fromkeys(figures, 12345.678)
    )
    other = replace(share, name="(free)", modelled_kwh=None, cost=None)
    text = energy_text(energy_of([share, other]))

    assert isinstance(text, TextWithTables)
    (table,) = (part for part in text.parts if isinstance(part, TextTable))
    assert table.head[-3:] == ("EUR", "kgCO2e", "modelled")
    assert [row[-1] for row in table.rows] == ["20%", ""]
    assert_fits(table)


def energy_of(shares: list[EnergyShare]) -> Energy:
    empty: dict[str, object] = {
        "next": None,
        "grid": [],
        "series": [],
        "saved_in_period": None,
        "saved": None,
    }
    figures = dict.fromkeys(Energy.__struct_fields__, 1)
    words = {"by": "pod", "currency": "EUR"}
    return convert({**figures, **words, **empty, "items": to_builtins(shares)}, Energy)


SMALL = ("--nodes", "10", "--seeds", "1")
SIMULATED = {
    "gpus": ("gpus", *SMALL),
    "published": ("gpus", "--published", "--policies", "joulie-savings", *SMALL),
    "moves": ("gpus", "--published", "--defragment", "--policies", "joulie-savings", *SMALL),
    "energy": ("energy", "--quick", "--loads", "mid", "--hours", "1", "--nodes", "10"),
}


@pytest.mark.parametrize("words", SIMULATED.values(), ids=SIMULATED)
def test_simulate_has_tables_that_a_terminal_of_80_columns_draws(
    words: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    (table,) = tables_of(("simulate", *words), monkeypatch)

    assert_fits(table)
