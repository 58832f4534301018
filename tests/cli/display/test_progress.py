"""Commands that take a while show that they work, where a person looks at stderr."""

import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest

JOULIE = [sys.executable, "-m", "joulie_cli.main"]
SIMULATE = ["simulate", "gpus", "--nodes", "40", "--seeds", "1"]
ENERGY = ["--loads", "mid", "--policies", "joulie-energy", "--sleep", "off"]
WAITS = [
    SIMULATE,
    [*SIMULATE, "--published"],
    ["simulate", "energy", "--quick", "--nodes", "4", "--hours", "1", *ENERGY],
]


def on_a_terminal(words: list[str], where: Path) -> str:
    """What the command writes to a terminal as its stderr."""
    ours, theirs = pty.openpty()
    environ = {**os.environ, "TERM": "xterm"}
    with subprocess.Popen(
        [*JOULIE, *words], stdout=subprocess.DEVNULL, stderr=theirs, cwd=where, env=environ
    ) as running:
        os.close(theirs)
        shown = b""
        while True:
            try:
                part = os.read(ours, 4096)
            except OSError:  # the other end is closed
                break
            if not part:
                break
            shown += part
        os.close(ours)
        assert running.wait() == 0, shown
    return shown.decode()


@pytest.mark.long
@pytest.mark.parametrize("words", WAITS, ids=["gpus", "published", "energy"])
def test_a_simulation_shows_progress_on_a_terminal_and_nothing_elsewhere(
    words: list[str], tmp_path: Path
) -> None:
    done = subprocess.run(
        [*JOULIE, *words], capture_output=True, text=True, cwd=tmp_path, check=False
    )

    assert (done.returncode, done.stderr) == (0, "")
    assert "simulate" in on_a_terminal(words, tmp_path)
