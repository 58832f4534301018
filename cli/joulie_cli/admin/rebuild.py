"""`joulie rebuild`: folds all facts into a new generation of rows, then switches to it."""

import argparse
import asyncio
from pathlib import Path

import joulie_migrations
from joulie_audit.archive.combined_history import Sources
from joulie_audit.archive.fact_source import StreamFacts, streams_of
from joulie_audit.archive.parts import Archive, ArchivedFacts
from joulie_audit.chain.log_start import trimmed_hint
from joulie_bus.errors import NoSnapshot, NotInTheLog
from joulie_cli.display.output import show
from joulie_cli.log_access.past import ArchivePlace, archive_of, broker_of, history_of
from joulie_cli.wiring import Wiring
from joulie_projections.fold.snapshots import Snapshot
from joulie_projections.history.history import History
from joulie_projections.projector.rebuild import HistorySource, RebuildResult, rebuild
from joulie_projections.store import database
from joulie_projections.store.lease_owner import new_owner

SETTINGS = (ArchivePlace,)


def run(args: argparse.Namespace, wires: Wiring) -> int:
    done = asyncio.run(_rebuild(args, wires))
    show(args, done._asdict(), _as_text(done))
    return 1 if done.differs_at else 0


async def _rebuild(args: argparse.Namespace, wires: Wiring) -> RebuildResult:
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
            with history_of(wires) as history:
                created = streams_of(history)
            async with StreamFacts.over(bus, created) as streams:
                facts = ArchivedFacts(Archive.of(archive), streams)
                past = HistorySource(Sources(wires.data.database, archive).reading, facts)
                return await rebuild(bus, engine, owner, None, past)
    finally:
        engine.dispose()


def _require_beginning(wires: Wiring, archive: Path | None) -> None:
    """Folding from the first fact requires that it is still stored."""
    with history_of(wires) as history:
        cut = history.cut()
    if cut is not None and archive is None:
        raise NotInTheLog(
            f"Nothing was rebuilt: {trimmed_hint(cut)} Or start at a snapshot: --from-snapshot."
        )


def _newest(wires: Wiring) -> Snapshot:
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
