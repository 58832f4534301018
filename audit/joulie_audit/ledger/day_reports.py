"""Keeps what was saved on each day computed, while `joulie ledger` runs.

Each computation is a `joulie report` of one day (UTC) in a process of its own, at a low priority:
the fold of the ledger must not wait for it. What the database holds decides which day is next, so
that a restart computes nothing twice and leaves nothing out.
"""

import asyncio
import contextlib
import os
import sys
import time
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

from joulie_bus.core.backoff import Backoff
from joulie_bus.runtime.child_process import die_with_parent
from joulie_bus.runtime.logging import get_logger
from joulie_projections.energy.intervals import DAY_MS, start_of
from joulie_projections.energy.savings import Savings
from joulie_projections.store.energy_table import EnergyTable
from joulie_projections.store.retrying import DatabaseExecutor

CHECK_S = 5.0
INTERVAL_S = 60.0  # between two reports of a day; CPU_PAUSES keeps them from taking a core
CPU_PAUSES = 19  # a pause lasts this many times what the last report took: 5 % of a core
FIRST_PAUSE_S, LONGEST_PAUSE_S = 60.0, 3600.0  # after reports that failed
NICE = 5
MS_PER_S = 1000
log = get_logger("savings")


@dataclass(frozen=True, kw_only=True)
class SavingsSettings:
    interval_s: float = INTERVAL_S


class Kept(NamedTuple):
    """What the database holds."""

    newest: Savings | None
    by_day: Mapping[int, Savings]
    days: Set[int]  # of which the ledger has energy
    began_ms: int  # of the log
    complete_to_ms: int


def kept(table: EnergyTable, now_ms: int) -> Kept:
    first_ms, state = _first_of_month(now_ms), table.load()
    return Kept(
        table.savings(),
        table.savings_by_day(first_ms, now_ms),
        table.days(first_ms, now_ms),
        table.log_began_ms(),
        state.ledger.newest_ms if state else 0,
    )


def rests(newest: Savings | None, now_ms: int, interval_s: float) -> bool:
    """After a computation, whether it is too early for the next one."""
    if newest is None:
        return False
    pause_s = max(interval_s, CPU_PAUSES * newest.cpu_s)
    return 0 <= now_ms - newest.computed_ms < pause_s * MS_PER_S


def due(found: Kept, now_ms: int, interval_s: float, failed: Set[int]) -> int | None:
    """The day to compute: this one first, from an interval of readings on; then days of this month
    that are not complete, then this one again."""
    today = start_of("day", now_ms)
    known_s = (found.complete_to_ms - max(today, found.began_ms)) / MS_PER_S
    is_known = known_s >= interval_s
    current = found.by_day.get(today)
    if is_known and current is None:
        return today
    for day in sorted(found.days - failed - {today}, reverse=True):
        if day not in found.by_day or not found.by_day[day].holds_all_of(day):
            return day
    is_newer = current is not None and current.complete_to_ms < found.complete_to_ms
    return today if is_known and is_newer else None


def _first_of_month(now_ms: int) -> int:
    day = datetime.fromtimestamp(start_of("day", now_ms) / MS_PER_S, UTC)
    return int(day.replace(day=1).timestamp()) * MS_PER_S


class DayReports:
    """`words` are the options of this process that a report needs, too."""

    def __init__(
        self, table: EnergyTable, database: DatabaseExecutor, words: Sequence[str | Path]
    ) -> None:
        self._table, self._database, self._words = table, database, words
        self._failed: set[int] = set()  # earlier days; a restart tries them again
        self._pauses = Backoff(FIRST_PAUSE_S, LONGEST_PAUSE_S)

    async def run(self, interval_s: float) -> None:
        """Runs until cancelled."""
        while True:
            await asyncio.sleep(CHECK_S)
            newest = await self._database.until_done(self._table.savings)
            now_ms = _now_ms()
            if rests(newest, now_ms, interval_s):
                continue
            found = await self._database.until_done(kept, self._table, now_ms)
            day_ms = due(found, now_ms, interval_s, self._failed)
            if day_ms is not None:
                await self._report(day_ms, now_ms)

    async def _report(self, day_ms: int, now_ms: int) -> None:
        day = _iso(day_ms)
        why = await self._written(day, _iso(day_ms + DAY_MS))
        if not why:
            self._pauses.succeeded()
            log.info("savings_computed", day=day)
            return
        if day_ms != start_of("day", now_ms):
            self._failed.add(day_ms)
        pause_s = self._pauses.failed()
        what = "the console shows the last result, or none"
        log.warning("savings_not_computed", day=day, why=why, what=what, retry_in_s=pause_s)
        await asyncio.sleep(pause_s)

    async def _written(self, first: str, last: str) -> str:
        """Returns why there is none."""
        report = ("report", "-o", "json", "--unsigned", "--out", os.devnull)
        child = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "joulie_cli.main", *report, "--from", first, "--to", last),
            *self._words,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.PIPE,
            preexec_fn=_gently,
        )
        try:
            _, errors = await child.communicate()
        except asyncio.CancelledError:
            with contextlib.suppress(ProcessLookupError):
                child.kill()
            await child.wait()
            raise
        lines = errors.decode(errors="replace").strip().splitlines()
        if child.returncode:
            return lines[-1] if lines else f"it ended with {child.returncode}"
        # The report exists, and could not be kept.
        return next((line for line in lines if "savings_not_kept" in line), "")


def _gently() -> None:
    die_with_parent()
    os.nice(NICE)


def _iso(ms: int) -> str:
    return f"{datetime.fromtimestamp(ms / MS_PER_S, UTC):%Y-%m-%d}"


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
