"""Colours on a terminal, and none in a pipe, with NO_COLOR, or on a dumb terminal."""

import os
import pty
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from joulie_cli.display.colours import coloured
from joulie_cli.display.output import has_colours
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
    text = "STALE        it is down\n *n1   20\nIDLE: a holds b\nplain line"
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


def test_a_command_on_a_terminal_prints_the_same_text_in_colours(golden: Golden) -> None:
    with History.of(golden.data / "joulie.db") as history:
        scored = next(history.find(EntryQuery(kinds=("decision.prioritize",)), 1))
    words = ("explain", scored.pod, "--data", golden.data, "--archive", golden.archive)
    plain = on_a_terminal(*words, NO_COLOR="1")

    assert ESCAPE not in plain
    shown = on_a_terminal(*words)
    assert f"{ESCAPE}32m*" in shown, "the best candidate"
    assert UNSEEN.sub("", shown) == plain


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
