"""fold all facts into a new generation of rows, then switch to it."""

from __future__ import annotations

import argparse
import contextlib
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import TYPE_CHECKING

from joulie_cli.command_line import options as shared
from joulie_cli.command_line.commands import Program

if TYPE_CHECKING:
    from joulie_bus.jetstream.log import JetStreamLog
    from joulie_projections.component.wiring import Wiring
    from joulie_projections.fold.commit import Snapshot
    from joulie_projections.projector.rebuild import HistorySource, RebuildResult


def options(parser: argparse.ArgumentParser) -> None:
    shared.output(parser)
    parser.add_argument("--from-snapshot", action="store_true", help="not from the first fact")
    shared.archive(parser)


def program() -> Program:
    from joulie_audit.access.past import ArchivePlace

    return Program((ArchivePlace,), run)


def run(args: argparse.Namespace, wires: Wiring) -> int:
    import asyncio

    from joulie_cli.display.output import show

    done = asyncio.run(_rebuild(args, wires))
    show(args, done._asdict(), _as_text(done))
    return 1 if done.differs_at else 0


async def _rebuild(args: argparse.Namespace, wires: Wiring) -> RebuildResult:
    import joulie_migrations
    from joulie_audit.access.past import archive_of, broker_of
    from joulie_projections.projector.rebuild import rebuild
    from joulie_projections.store import database
    from joulie_projections.store.lease_owner import new_owner

    wires.data.require()
    engine = database.writer(wires.data.database)
    try:
        database.require_reachable(engine)
        joulie_migrations.require(engine)
        start = _newest(wires) if args.from_snapshot else None
        owner = new_owner()
        archive = archive_of(args, wires)
        if start is None:
            _require_beginning(wires, archive)
        async with broker_of(wires) as bus:
            if start is not None or archive is None:
                return await rebuild(bus, engine, owner, start)
            async with _past(wires, bus, archive) as past:
                return await rebuild(bus, engine, owner, None, past)
    finally:
        engine.dispose()


@contextlib.asynccontextmanager
async def _past(
    wires: Wiring, bus: JetStreamLog, archive: Path
) -> AsyncGenerator[HistorySource, None]:
    from joulie_audit.access.past import history_of
    from joulie_audit.archive.combined_history import Sources
    from joulie_audit.archive.fact_source import StreamFacts, streams_of
    from joulie_audit.archive.parts import Archive, ArchivedFacts
    from joulie_projections.projector.rebuild import HistorySource

    with history_of(wires) as history:
        created = streams_of(history)
    async with StreamFacts.over(bus, created) as streams:
        facts = ArchivedFacts(Archive.of(archive), streams)
        yield HistorySource(Sources(wires.data.database, archive).reading, facts)


def _require_beginning(wires: Wiring, archive: Path | None) -> None:
    """Folding from the first fact requires that it is still stored."""
    from joulie_audit.access.past import history_of
    from joulie_audit.chain.log_start import trimmed_hint
    from joulie_bus.errors import NotInTheLog

    with history_of(wires) as history:
        cut = history.cut()
    if cut is not None and archive is None:
        raise NotInTheLog(
            f"Nothing was rebuilt: {trimmed_hint(cut)} Or start at a snapshot: --from-snapshot."
        )


def _newest(wires: Wiring) -> Snapshot:
    from joulie_bus.errors import NoSnapshot
    from joulie_projections.history.history import History

    with History.of(wires.data.database) as history:
        held = history.checkpoint()
        found = history.snapshot_before(held.position) if held else None
    if found is None:
        raise NoSnapshot
    return found


def _as_text(done: RebuildResult) -> str:
    result = (
        f"{done.events} events folded in {done.seconds:.1f} s; generation {done.generation} of the "
        f"rows is in use from position {done.position} on."
    )
    if done.set_aside:
        result += (
            f"\n{done.set_aside} messages that were folded before are refused by this version, and "
            f"are in quarantine now: `joulie dead list` shows them."
        )
    if done.differs_at:
        result += (
            f"\nThe state differs from the one that this version computed before: the first "
            f"difference is at {done.differs_at}. Run `joulie verify` and `joulie replay`."
        )
    return result
