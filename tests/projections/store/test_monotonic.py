"""The identity of the start of the machine, and what its absence means."""

import subprocess
import sys
from pathlib import Path

from joulie_projections.store.monotonic import boot_id

ELSEWHERE = (
    "from pathlib import Path; from joulie_projections.store.monotonic import boot_id;"
    "print(boot_id(Path({!r})))"
)


def of_another_process(proc: Path) -> str:
    words = [sys.executable, "-c", ELSEWHERE.format(str(proc))]
    return subprocess.run(words, check=True, capture_output=True, text=True).stdout.strip()


def test_processes_of_one_start_of_the_machine_have_one_id(tmp_path: Path) -> None:
    at = tmp_path / "sys/kernel/random/boot_id"
    at.parent.mkdir(parents=True)
    at.write_text("8c1b\n")

    assert boot_id(tmp_path) == of_another_process(tmp_path) == "8c1b"


def test_without_one_no_other_process_has_the_same(tmp_path: Path) -> None:
    """Otherwise a reading from before a restart of the machine would count as one of this start."""
    assert boot_id(tmp_path) == boot_id(tmp_path) != ""
    assert boot_id(tmp_path) != of_another_process(tmp_path)
