"""What a process of ours is before it is one: how much of the processor it leaves to others."""

import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest

from joulie_bus.children import OWN_SESSION, give_way

ASKED = """
import os, pathlib
own = pathlib.Path("/proc/self/autogroup")
print(os.getpriority(os.PRIO_PROCESS, 0), own.read_text().strip() if own.exists() else "")
"""


def told_of_itself(nice: int) -> tuple[str, str]:
    """How nice a process says it is, and its session."""
    done = subprocess.run(
        [sys.executable, "-c", ASKED],
        capture_output=True,
        text=True,
        check=True,
        start_new_session=True,
        preexec_fn=partial(give_way, nice),
    )
    own, _, session = done.stdout.strip().partition(" ")
    return own, session


def test_a_process_that_gives_way_is_as_nice_as_it_was_told() -> None:
    assert told_of_itself(7)[0] == "7"


@pytest.mark.skipif(not OWN_SESSION.exists(), reason="has no such sessions")
def test_so_is_its_session_where_sessions_share_the_processor() -> None:
    assert told_of_itself(7)[1].endswith(" nice 7")


def test_who_comes_too_soon_tries_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of those who are not root the kernel hears ten a second, and refuses the others."""
    tried: list[str] = []

    def write(_: Path, text: str) -> None:
        tried.append(text)
        if len(tried) < 4:
            raise BlockingIOError

    monkeypatch.setattr(Path, "write_text", write)
    give_way(0)

    assert tried == ["0"] * 4
