"""An older version of this repository, out of its history: its code, its chart and its schema.

python tests/kit/process/older_version.py DIRECTORY
"""

import io
import os
import subprocess
import sys
import tarfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[3]
# The first chart that was tested, 0.1.0, and the last one with this schema.
COMMIT = "4b6b5c3b58af337fe2f5192b9340d68f922c0389"
RELEASE_0_2_0 = "2e7607e3"
SCHEMA = "0005"
CHART = "deploy/chart"


class OlderVersionMissing(Exception):
    """Why it is not here."""


def extracted(place: Path, commit: str = COMMIT) -> Path:
    """The files of the older version in this directory."""
    words = ["git", "-C", str(ROOT), "archive", commit]
    try:
        done = subprocess.run(words, capture_output=True, check=False)
    except FileNotFoundError as missing:
        raise OlderVersionMissing("there is no git") from missing
    if done.returncode:
        raise OlderVersionMissing(f"no commit {commit}: {done.stderr.decode().strip()}")
    place.mkdir(parents=True, exist_ok=True)
    with tarfile.open(fileobj=io.BytesIO(done.stdout)) as archive:
        archive.extractall(place, filter="data")
    return place


def import_path(place: Path) -> str:
    """For PYTHONPATH: its packages, before those of the environment."""
    rooms = sorted(path.parents[1] for path in place.glob("*/joulie_*/__init__.py"))
    return os.pathsep.join(map(str, rooms))


def assert_recomputed(replayed: dict[str, Any]) -> None:
    """What `joulie replay --json` says of a log of both versions: every decision and plan is
    recomputed. Only states that the folds of the other version made differ.
    """
    assert replayed["other_code"]["folds"]
    assert {each["kind"] for each in replayed["told"]} <= {"state-differs"}
    assert len(replayed["told"]) == replayed["mismatches"]


if __name__ == "__main__":
    extracted(Path(sys.argv[1]))
