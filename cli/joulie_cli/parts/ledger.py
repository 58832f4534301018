"""`joulie ledger`: follows the log and keeps the ledger of energy."""

import argparse
import asyncio
import contextlib
from collections.abc import AsyncGenerator, Generator
from pathlib import Path

import joulie_migrations
from joulie_audit.archive.fact_source import ColumnSource, StreamFacts
from joulie_audit.archive.parts import Archive, ArchivedFacts, is_archive
from joulie_audit.ledger.follow import REST_S, LedgerFollower
from joulie_bus.errors import JoulieError
from joulie_bus.jetstream.log import JetStreamLog
from joulie_bus.runtime.logging import get_logger
from joulie_cli.log_access.past import ArchivePlace, archive_of, broker_of, history_of
from joulie_cli.wiring import Wiring, serve_part
from joulie_projections.history.history import History
from joulie_projections.store import database
from joulie_projections.store.energy_table import EnergyTable

SETTINGS = (ArchivePlace,)
log = get_logger("ledger")


def run(args: argparse.Namespace, wires: Wiring) -> int:
    archive = archive_of(args, wires)
    if args.once or args.rebuild:
        position = asyncio.run(_once(wires, archive, rebuild=args.rebuild))
        print(f"The ledger holds the energy of the facts up to position {position}.")
        return 0
    return serve_part(wires, "ledger", _follow(wires, archive))


def fold_once(wires: Wiring) -> None:
    """Folds what the log holds now."""
    archive = wires.source.load(ArchivePlace).directory
    place = Path(archive) if archive and is_archive(Path(archive)) else None
    asyncio.run(_once(wires, place, rebuild=False))


async def _once(wires: Wiring, archive: Path | None, *, rebuild: bool) -> int:
    """The position up to which the ledger is folded then."""
    with _table(wires) as table:
        if rebuild:
            table.clear()
        follower = LedgerFollower(table)
        async with broker_of(wires) as bus, _log(wires, bus, archive) as (history, facts):
            while not await follower.catch_up(history, facts):
                pass
        state = table.load()
        return state.position if state else 0


async def _follow(wires: Wiring, archive: Path | None) -> None:
    """Runs until cancelled. A failed pass is logged and repeated."""
    with _table(wires) as table:
        follower = LedgerFollower(table)
        async with broker_of(wires) as bus:
            while True:
                is_done = True
                try:
                    async with _log(wires, bus, archive) as (history, facts):
                        is_done = await follower.catch_up(history, facts)
                except JoulieError as error:
                    log.error("not_folded", why=str(error))
                    follower.reload()
                if is_done:
                    await asyncio.sleep(REST_S)


@contextlib.asynccontextmanager
async def _log(
    wires: Wiring, bus: JetStreamLog, archive: Path | None
) -> AsyncGenerator[tuple[History, ColumnSource], None]:
    """As it is now."""
    with history_of(wires, archive) as history:
        async with StreamFacts.on(bus, history) as streams:
            yield history, _facts(archive, streams)


def _facts(archive: Path | None, streams: ColumnSource) -> ColumnSource:
    return streams if archive is None else ArchivedFacts(Archive.of(archive), streams)


@contextlib.contextmanager
def _table(wires: Wiring) -> Generator[EnergyTable, None, None]:
    wires.data.require()
    engine = database.writer(wires.data.database)
    try:
        database.require_reachable(engine)
        joulie_migrations.require(engine)
        yield EnergyTable(engine)
    finally:
        engine.dispose()
