"""Replays a long demo of real processes: every decision is recomputed identically."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest


def joulie(*words: str) -> dict[str, Any]:
    command = [sys.executable, "-m", "joulie_cli.main", *words, "-o", "json"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    reported: dict[str, Any] = json.loads(done.stdout)
    return reported


@pytest.mark.drill
def test_a_long_demo_of_many_nodes_replays_from_streams_and_from_its_archive(
    tmp_path: Path,
) -> None:
    data = ("--data", str(tmp_path / "data"))
    archive = ("--archive", str(tmp_path / "archive"))
    made = joulie("demo", "--headless", "--nodes", "500", "--for", "5m", *data)
    joulie("archive", "--dir", archive[1], "--now", *data)

    log = joulie("verify", *archive, *data)
    streams = joulie("replay", "--jobs", "2", *data)
    archived = joulie("replay", *archive, *data)

    assert log["archive"]["flaw"] is None
    assert (streams["mismatches"], archived["mismatches"]) == (0, 0)
    assert streams["decisions"] == archived["decisions"] == made["decisions"]
