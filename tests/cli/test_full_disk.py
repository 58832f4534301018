"""A disk of its own, which fills while `joulie demo` runs."""

import contextlib
import subprocess
import tempfile
from collections.abc import Generator
from pathlib import Path

import pytest

from joulie_demo import Running, demo, told_by

SIZE, PATIENCE_S = "110m", 120.0


@pytest.fixture
def disk() -> Generator[Path, None, None]:
    with tempfile.TemporaryDirectory() as directory:
        mounted = subprocess.run(
            ["mount", "-t", "tmpfs", "-o", f"size={SIZE}", "tmpfs", directory], capture_output=True
        )
        if mounted.returncode:
            pytest.skip("may not mount a file system: run it as root")
        try:
            yield Path(directory)
        finally:
            subprocess.run(["umount", "-l", directory], check=True)


def fill(disk: Path) -> Path:
    filler = disk / "filler"
    with contextlib.suppress(OSError), open(filler, "wb", buffering=0) as file:
        while True:
            file.write(bytes(2**16))
    return filler


def is_behind(up: Running) -> bool:
    """The broker has facts that cannot be committed."""
    return any("behind the broker" in text for text in status(up)["stale"])


def status(up: Running) -> dict[str, list[str]]:
    found: dict[str, list[str]] = told_by("status", "--data", up.data.path)[1]
    return found


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.timeout(300)
@pytest.mark.parametrize("gets_room", [True, False])
def test_a_disk_that_fills_is_on_the_terminal_in_the_status_and_in_the_exit_code(
    gets_room: bool, disk: Path
) -> None:
    with demo(disk / "data", "--nodes", "20") as started:
        started.await_decisions(20)
        filler = fill(disk)
        started.wait_until(lambda: is_behind(started), PATIENCE_S)
        stale = status(started)["stale"]
        if gets_room:
            filler.unlink()
            known = started.counts().answers
            started.wait_until(lambda: started.counts().answers > known + 20, PATIENCE_S)
        started.process.terminate()
        _, err = started.process.communicate(timeout=PATIENCE_S)

    assert stale[0].startswith(f"the disk of {disk / 'data'} is full (")
    assert "disk_full" in err
    assert f"The disk of {disk / 'data'} was full for" in err
    assert ("and has room again" in err) == gets_room
    assert started.process.returncode == 1
