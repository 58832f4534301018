"""`joulie archive --every`: archives periodically and warns before streams drop messages."""

import asyncio
import shutil
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import NamedTuple

from joulie_audit.access.past import broker_of, history_of
from joulie_audit.archive.archiver import ArchiveResult
from joulie_audit.archive.parts import Archive
from joulie_audit.retention.retention_risks import (
    RetentionRisk,
    oldest_unarchived,
    retention_risks,
    trim_due_s,
)
from joulie_audit.retention.room import TRIMMED, is_short
from joulie_audit.retention.trimming import trim
from joulie_bus.errors import JoulieError
from joulie_bus.runtime import metrics
from joulie_bus.runtime.logging import get_logger
from joulie_projections.component.wiring import Wiring

CHECK_INTERVAL_S = 60.0  # between two checks for messages about to be dropped or refused
ROOM_INTERVAL_S = 600.0  # between two passes for the room of a stream
FIRST_RETRY_S = 5.0  # until one has succeeded: broker and database of an installation start, too
Pass = Callable[[bool], Awaitable[ArchiveResult]]  # whether the running hour is archived too
log = get_logger("archive")


class Schedule(NamedTuple):
    to: Path
    every_s: float
    keep_s: float | None  # archived data older than this is trimmed; None: nothing is trimmed
    now: bool  # whether the running hour is archived, too


class PeriodicArchiver:
    def __init__(self, schedule: Schedule, wires: Wiring, write: Pass) -> None:
        self._schedule = schedule
        self._wires = wires
        self._write = write
        self._archived_to = 0
        self._is_short = False  # a stream is about to refuse messages
        self._freed_at = -ROOM_INTERVAL_S

    async def run(self) -> None:
        """Run until cancelled. A failed pass is logged and retried at the next check."""
        due, pause = 0.0, FIRST_RETRY_S
        while True:
            is_well = True
            if time.monotonic() >= due:
                is_well = await self._succeeds(self._archive(self._schedule.now))
                is_well = is_well and await self._succeeds(self._trim(), "not_trimmed")
                due = time.monotonic() + self._schedule.every_s if is_well else 0.0
            is_well = await self._succeeds(self._check_dangers()) and is_well
            metrics.ARCHIVE_FAILING.set(not is_well)
            pause = CHECK_INTERVAL_S if is_well else pause
            await asyncio.sleep(min(pause, self._schedule.every_s))

    async def _succeeds(self, act: Awaitable[None], otherwise: str = "not_archived") -> bool:
        try:
            await act
        except JoulieError as error:
            log.error(otherwise, why=str(error))
            return False
        return True

    async def _archive(self, now: bool) -> None:
        kept = await self._write(now)
        self._archived_to = kept.facts_to
        metrics.ARCHIVE_POSITION.set(kept.facts_to)
        if kept.lost:
            metrics.ARCHIVE_LOST.inc(kept.lost)
            log.error("lost_unarchived", messages=kept.lost, to=str(self._schedule.to))
        if kept.parts:
            log.info("archived", to=str(self._schedule.to), **kept._asdict())

    async def _trim(self) -> None:
        if self._schedule.keep_s is None:
            return
        keep_s = self._schedule.keep_s
        done = await trim(self._schedule.to, self._wires, keep_s, follows_room=True)
        if done.cut is not None and done.answer.is_new:
            log.info("cut", entry=done.cut.pos, position=done.cut.p_to)

    async def _check_dangers(self) -> None:
        """Archive at once, including the current hour, if a stream is about to drop messages; then
        also trim, if one is about to refuse them.
        """
        self._measure_disk()
        found = await self._risks()
        for risk in found:
            log.warning("near_its_end", **_log_fields(risk))
        is_due = self._is_short and time.monotonic() - self._freed_at >= ROOM_INTERVAL_S
        if found or is_due:
            await self._archive(now=True)
        if is_due:
            self._freed_at = time.monotonic()
            await self._trim()

    def _measure_disk(self) -> None:
        usage = shutil.disk_usage(self._schedule.to)
        metrics.ARCHIVE_FREE_BYTES.set(usage.free)
        metrics.ARCHIVE_SIZE_BYTES.set(usage.total)

    async def _risks(self) -> list[RetentionRisk]:
        # After a restart whose first pass failed, the archive knows what it has.
        parts = [] if self._archived_to else Archive(self._schedule.to).facts
        self._archived_to = parts[-1][1].last if parts else self._archived_to
        with history_of(self._wires) as history:
            oldest = oldest_unarchived(history, self._archived_to)
            age_s = 0.0 if oldest is None else max(0.0, time.time() - oldest / 1e9)
            metrics.ARCHIVE_AGE_SECONDS.set(age_s)
            keep_s = self._schedule.keep_s
            due_s = 0.0 if keep_s is None else trim_due_s(history, keep_s, time.time_ns())
            metrics.ARCHIVE_TRIM_DUE_SECONDS.set(due_s)
            async with broker_of(self._wires) as bus:
                self._is_short = any([is_short(await bus.size(each)) for each in TRIMMED])
                return await retention_risks(history, bus, self._archived_to)


def _log_fields(risk: RetentionRisk) -> dict[str, object]:
    return {
        "stream": str(risk.stream),
        "needed": risk.needed,
        "first": risk.first,
        "lost": risk.is_lost,
    }
