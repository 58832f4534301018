from collections.abc import Callable
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from joulie_cli.supervisor.disk_watch import SAY_AGAIN_S, DiskWatch
from joulie_projections.component import room

Fill = Callable[[bool], None]


class Clock:
    def __init__(self) -> None:
        self.now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
def fill(monkeypatch: pytest.MonkeyPatch) -> Fill:
    """No disk has as many free bytes as a full one would have."""
    return lambda full: monkeypatch.setattr(room, "FULL_BYTES", 2**62 if full else 0)


def test_a_disk_with_room_leaves_no_line_and_no_sentence(fill: Fill, tmp_path: Path) -> None:
    fill(False)
    watch = DiskWatch(tmp_path)
    with capture_logs() as lines:
        has_room_again = watch.look()

    assert (has_room_again, watch.why, watch.sentence, lines) == (False, "", "", [])


def test_a_full_disk_is_a_line_at_once_and_one_each_minute(fill: Fill, tmp_path: Path) -> None:
    fill(True)
    clock = Clock()
    watch = DiskWatch(tmp_path, clock)
    with capture_logs() as lines:
        for _ in range(round(2 * SAY_AGAIN_S)):
            watch.look()
            clock.now_s += 1

    assert [line["event"] for line in lines] == ["disk_full"] * 2
    assert "MiB are free" in watch.why
    assert watch.full_s == 2 * SAY_AGAIN_S
    assert "was full for 2 min, and is still full" in watch.sentence


def test_a_disk_that_has_room_again_stays_in_the_sentence(fill: Fill, tmp_path: Path) -> None:
    clock = Clock()
    watch = DiskWatch(tmp_path, clock)
    found = []
    for full in (True, False, False, True, False):
        fill(full)
        found.append(watch.look())
        clock.now_s += 10

    assert found == [False, True, False, False, True]
    assert (watch.why, watch.full_s) == ("", 20.0)
    assert "was full for 20.0 s, and has room again" in watch.sentence


def test_a_directory_that_cannot_be_written_has_no_room(tmp_path: Path) -> None:
    assert room.lack_of_room(tmp_path / "missing") == "No such file or directory"
