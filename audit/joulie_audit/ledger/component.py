"""`joulie ledger`: follows the log and keeps the ledger of energy."""

import argparse
import asyncio
import contextlib
from collections.abc import AsyncGenerator, Callable, Generator
from pathlib import Path

import joulie_migrations
from joulie_audit.access.past import ArchivePlace, archive_of, broker_of, history_of, usual_archive
from joulie_audit.archive.archived_facts import ArchivedFacts
from joulie_audit.archive.fact_source import ColumnSource, StreamFacts
from joulie_audit.archive.parts import Archive
from joulie_audit.ledger.day_reports import DayReports, SavingsSettings
from joulie_audit.ledger.follow import NOT_READ, REST_S, LedgerFollower
from joulie_bus.core.backoff import Backoff
from joulie_bus.jetstream.log import JetStreamLog
from joulie_bus.runtime.logging import get_logger
from joulie_bus.runtime.vital_tasks import VitalTask, living, vital
from joulie_projections.component.opening import await_migration
from joulie_projections.component.process import serve_part
from joulie_projections.component.wiring import Wiring
from joulie_projections.store import database
from joulie_projections.store.energy_table import EnergyTable
from joulie_projections.store.retrying import DatabaseExecutor, until_usable

SETTINGS = (ArchivePlace, SavingsSettings)
FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.5, 30.0  # after passes that failed
log = get_logger("ledger")


def run(args: argparse.Namespace, wires: Wiring) -> int:
    archive = archive_of(args, wires)
    if args.once or args.rebuild:
        position = asyncio.run(_once(wires, archive, rebuild=args.rebuild))
        print(f"The ledger holds the energy of the facts up to position {position}.")
        return 0
    await_migration(wires)
    return serve_part(wires, "ledger", _follow(wires, archive, args.config))


def fold_once(wires: Wiring) -> None:
    """Folds what the log holds now."""
    asyncio.run(_once(wires, usual_archive(wires), rebuild=False))


async def _once(wires: Wiring, archive: Path | None, *, rebuild: bool) -> int:
    """The position up to which the ledger is folded then."""
    async with _table(wires, waits=False) as (table, executor):
        if rebuild:
            table.clear()
        follower = _follower(wires, table, executor)
        async with broker_of(wires) as bus, contextlib.AsyncExitStack() as stack:
            passes = _Passes(wires, archive, follower, bus, stack)
            while not await passes.next():
                pass
        state = table.load()
        return state.position if state else 0


async def _follow(wires: Wiring, archive: Path | None, config: Path | None) -> None:
    """Runs until cancelled."""
    async with _table(wires, waits=True) as (table, executor):
        follower = _follower(wires, table, executor)
        async with broker_of(wires) as bus, _computing(wires, (archive, config)):

            def passes(stack: contextlib.AsyncExitStack) -> _Passes:
                return _Passes(wires, archive, follower, bus, stack)

            await vital(VitalTask.LEDGER, lambda: _repeat(follower, passes))


def _follower(wires: Wiring, table: EnergyTable, executor: DatabaseExecutor) -> LedgerFollower:
    return LedgerFollower(table, executor)


@contextlib.asynccontextmanager
async def _computing(
    wires: Wiring, places: tuple[Path | None, Path | None]
) -> AsyncGenerator[None, None]:
    """Has what was saved computed beside the block. A fold does not wait for its queries: they
    have a connection and a thread of their own."""
    interval_s = wires.source.load(SavingsSettings).interval_s
    named = zip(("--archive", "--config"), places, strict=True)
    options = [word for name, place in named if place for word in (name, place)]
    engine = database.ledger_reader(wires.data.database)
    try:
        with _executor() as executor:
            words = ("--data", wires.data.path, *options)
            reports = DayReports(EnergyTable(engine), executor, words)
            async with living(VitalTask.SAVINGS, lambda: reports.run(interval_s)):
                yield
    finally:
        engine.dispose()


async def _repeat(
    follower: LedgerFollower, passes: "Callable[[contextlib.AsyncExitStack], _Passes]"
) -> None:
    """A failed pass is logged and repeated."""
    pauses = Backoff(FIRST_PAUSE_S, LONGEST_PAUSE_S)
    while True:
        follower.reload()
        try:
            async with contextlib.AsyncExitStack() as stack:
                await _until_one_fails(passes(stack), pauses)
        except NOT_READ as error:
            pause_s = pauses.failed()
            log.error("not_folded", why=str(error), retry_in_s=pause_s)
            await asyncio.sleep(pause_s)


async def _until_one_fails(passes: "_Passes", pauses: Backoff) -> None:
    while True:
        is_done = await passes.next()
        pauses.succeeded()
        if is_done:
            await asyncio.sleep(REST_S)


class _Passes:
    """Passes of the fold over the log as it is then. The readers of the streams stay open: to open
    them takes longer than to read what is new."""

    def __init__(
        self,
        wires: Wiring,
        archive: Path | None,
        follower: LedgerFollower,
        bus: JetStreamLog,
        stack: contextlib.AsyncExitStack,
    ) -> None:
        self._wires, self._archive, self._follower = wires, archive, follower
        self._bus, self._stack = bus, stack
        self._streams: StreamFacts | None = None

    async def next(self) -> bool:
        """Returns whether the ledger holds every committed fact."""
        with history_of(self._wires, self._archive) as history:
            if self._streams is None:
                opened = StreamFacts.on(self._bus, history)
                self._streams = await self._stack.enter_async_context(opened)
            facts = _facts(self._archive, self._streams)
            return await self._follower.catch_up(history, facts)


def _facts(archive: Path | None, streams: ColumnSource) -> ColumnSource:
    return streams if archive is None else ArchivedFacts(Archive.of(archive), streams)


@contextlib.contextmanager
def _executor() -> Generator[DatabaseExecutor, None, None]:
    executor = DatabaseExecutor()
    try:
        yield executor
    finally:
        executor.close()


@contextlib.asynccontextmanager
async def _table(
    wires: Wiring, *, waits: bool
) -> AsyncGenerator[tuple[EnergyTable, DatabaseExecutor], None]:
    """`waits`: for a server that does not answer yet."""
    wires.data.require()
    await _require_log(wires, waits=waits)
    engine = database.ledger(wires.data.database)
    try:
        with _executor() as executor:
            yield EnergyTable(engine), executor
    finally:
        engine.dispose()


async def _require_log(wires: Wiring, *, waits: bool) -> None:
    log_engine = database.reader(wires.data.database)
    try:
        if waits:
            await until_usable(log_engine)
        else:
            database.require_reachable(log_engine)
            joulie_migrations.require(log_engine)
    finally:
        log_engine.dispose()
