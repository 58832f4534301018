"""fold the facts into a new generation of rows, then switch to it.

joulie rebuild
joulie rebuild --whole
"""

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
    parser.add_argument(
        "--whole", action="store_true", help="fold from the first fact, not from a snapshot"
    )
    shared.archive(parser)


def program() -> Program:
    from joulie_audit.access.past import ArchivePlace

    return Program((ArchivePlace,), run)


def run(args: argparse.Namespace, wires: Wiring) -> int:
    import asyncio

    from joulie_cli.display.output import show

    done = asyncio.run(_rebuild(args, wires))
    show(args, done._asdict(), as_text(done))
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
        owner = new_owner()
        archive = archive_of(args, wires)
        start = _start(wires, archive, is_whole=args.whole)
        async with broker_of(wires) as bus:
            if archive is None:
                return await rebuild(bus, engine, owner, start)
            async with _past(wires, bus, archive) as past:
                return await rebuild(bus, engine, owner, start, past)
    finally:
        engine.dispose()


@contextlib.asynccontextmanager
async def _past(
    wires: Wiring, bus: JetStreamLog, archive: Path
) -> AsyncGenerator[HistorySource, None]:
    from joulie_audit.access.past import history_of
    from joulie_audit.archive.archived_facts import ArchivedFacts
    from joulie_audit.archive.combined_history import Sources
    from joulie_audit.archive.fact_source import StreamFacts, streams_of
    from joulie_audit.archive.parts import Archive
    from joulie_projections.projector.rebuild import HistorySource

    with history_of(wires) as history:
        created = streams_of(history)
    async with StreamFacts.over(bus, created) as streams:
        facts = ArchivedFacts(Archive.of(archive), streams)
        yield HistorySource(Sources(wires.data.database, archive).reading, facts)


def _start(wires: Wiring, archive: Path | None, *, is_whole: bool) -> Snapshot | None:
    """The newest snapshot that the folds of this version alone made; None to begin at the first
    fact. If that was trimmed, any snapshot will do.
    """
    from joulie_audit.access.past import history_of
    from joulie_audit.chain.log_start import trimmed_hint
    from joulie_audit.replay.fold_start import newest_start
    from joulie_bus.errors import NotInTheLog

    with history_of(wires) as history:
        cut = history.cut()
        is_beginning_there = cut is None or archive is not None
        start = None if is_whole else newest_start(history, history.pure_starts())
        if start is None and not is_beginning_there and not is_whole:
            start = newest_start(history, history.starts())
    if start is None and cut is not None and not is_beginning_there:
        raise NotInTheLog(f"Nothing was rebuilt: {trimmed_hint(cut)}")
    return start


def as_text(done: RebuildResult) -> str:
    from joulie_projections.fold.comparison import uncompared_text

    result = (
        f"{done.events} events folded in {done.seconds:.1f} s; generation {done.generation} of the "
        f"rows is in use from position {done.position} on."
    )
    if done.folded_from:
        result += (
            f"\nFolded from the snapshot at position {done.folded_from} on; --whole folds from the "
            "first fact."
        )
    if done.set_aside:
        result += (
            f"\n{done.set_aside} messages that were folded before are refused by this version, and "
            f"are in quarantine now: `joulie dead list` shows them."
        )
    if done.uncompared:
        result += f"\n{uncompared_text(done.uncompared)}"
    if done.differs_at:
        result += (
            f"\nThe state differs from the one that this version computed before: the first "
            f"difference is at {done.differs_at}. Run `joulie verify` and `joulie replay`."
        )
    return result
