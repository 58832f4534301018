"""The archiver of a fresh installation, whose broker starts a little later."""

import asyncio
import contextlib
from pathlib import Path
from typing import Any, cast

import msgspec
import pytest

from bus_kit import VirtualClock
from joulie_audit.archive.archiver import ArchiveResult
from joulie_audit.archive.parts import MANIFEST, Part, sealed
from joulie_audit.retention import periodic as archiving
from joulie_audit.retention.retention_risks import RetentionRisk
from joulie_bus.errors import JoulieError

pytestmark = pytest.mark.anyio
NOTHING = ArchiveResult(parts=0, facts_to=0, log_to=0)


class Archiver(archiving.PeriodicArchiver):
    """Without a broker and a database to look at beside the passes."""

    async def _check_dangers(self) -> None:
        pass


async def test_the_first_pass_is_tried_again_soon(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """`helm test` reports an archiver that fails, and may run at once after `helm install`."""
    answers = ["late", "late", ""]
    pauses: list[float] = []

    async def write(_: bool) -> ArchiveResult:
        if answers.pop(0):
            raise JoulieError("The broker does not answer.")
        return NOTHING

    async def slept(seconds: float) -> None:
        pauses.append(seconds)
        if not answers:
            raise asyncio.CancelledError

    monkeypatch.setattr(asyncio, "sleep", slept)
    schedule = archiving.Schedule(tmp_path, 3600.0, None, now=False)
    with pytest.raises(asyncio.CancelledError):
        await Archiver(schedule, cast(Any, None), write).run()

    soon, later = archiving.FIRST_RETRY_S, archiving.CHECK_INTERVAL_S
    assert pauses == [soon, soon, later]


async def test_after_a_restart_the_archive_says_what_was_archived(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """An archiver whose first pass fails does not take all that was archived before for lost."""
    asked: list[int] = []

    def looked(_: object, archived_to: int) -> None:
        asked.append(archived_to)
        raise JoulieError("The broker does not answer.")

    async def write(_: bool) -> ArchiveResult:
        raise JoulieError("The broker does not answer.")

    async def slept(_: float) -> None:
        raise asyncio.CancelledError

    place = tmp_path / "facts/2026-11-27/16/000000000001-000000000007"
    place.mkdir(parents=True)
    part = sealed(Part(kind="facts", first=1, last=7, files=[], root="", prev="", created={}))
    (place / MANIFEST).write_bytes(msgspec.json.encode(part))
    monkeypatch.setattr(asyncio, "sleep", slept)
    monkeypatch.setattr(archiving, "history_of", lambda _: contextlib.nullcontext())
    monkeypatch.setattr(archiving, "oldest_unarchived", looked)
    schedule = archiving.Schedule(tmp_path, 3600.0, None, now=False)
    with pytest.raises(asyncio.CancelledError):
        await archiving.PeriodicArchiver(schedule, cast(Any, None), write).run()

    assert asked == [7]


class OfAShortStream(archiving.PeriodicArchiver):
    """A stream is about to refuse messages, whatever is trimmed."""

    trims = 0

    async def _risks(self) -> list[RetentionRisk]:
        self._is_short = True
        return []

    async def _trim(self) -> None:
        self.trims += 1


async def test_a_stream_that_runs_out_of_room_is_archived_and_trimmed_at_once_and_again_later(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    written: list[bool] = []
    clock = VirtualClock(0)
    monkeypatch.setattr("time.monotonic", lambda: clock() / 1e9)

    async def write(now: bool) -> ArchiveResult:
        written.append(now)
        return NOTHING

    schedule = archiving.Schedule(tmp_path, 3600.0, 86_400.0, now=False)
    archiver = OfAShortStream(schedule, cast(Any, None), write)
    for _ in range(3):
        await archiver._check_dangers()
        clock.advance(archiving.ROOM_INTERVAL_S / 2)

    assert archiver.trims == 2
    assert written == [True, True]  # the running hour, too
