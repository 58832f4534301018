"""`joulie rebuild`: folds all facts again beside the rows that serve, then flips."""

import argparse
import asyncio
import json
import os
import socket

import joulie_migrations
from joulie_bus.errors import NoSnapshot
from joulie_cli.past import broker_of
from joulie_cli.wiring import Wiring
from joulie_projections import database
from joulie_projections.history import History
from joulie_projections.rebuild import Rebuilt, rebuild
from joulie_projections.snapshots import Snapshot

SETTINGS = ()


def run(args: argparse.Namespace, wires: Wiring) -> int:
    done = asyncio.run(_rebuild(wires, from_snapshot=args.from_snapshot))
    print(json.dumps(done._asdict()) if args.json else _as_text(done))
    return 1 if done.differs_at else 0


async def _rebuild(wires: Wiring, *, from_snapshot: bool) -> Rebuilt:
    wires.data.require()
    engine = database.writer(wires.data.database)
    try:
        database.require_reachable(engine)
        joulie_migrations.require(engine)
        start = _newest(wires) if from_snapshot else None
        owner = f"{socket.gethostname()}:{os.getpid()}"
        async with broker_of(wires) as bus:
            return await rebuild(bus, engine, owner, start)
    finally:
        engine.dispose()


def _newest(wires: Wiring) -> Snapshot:
    with History.of(wires.data.database) as history:
        held = history.checkpoint()
        found = history.snapshot_before(held.position) if held else None
    if found is None:
        raise NoSnapshot
    return found


def _as_text(done: Rebuilt) -> str:
    told = (
        f"{done.events} events folded in {done.seconds:.1f} s; generation {done.generation} of the "
        f"rows serves from position {done.position} on."
    )
    if done.differs_at:
        told += (
            f"\nThe same code once gave another state: the first difference is at "
            f"{done.differs_at}. `joulie verify` and `joulie replay` tell more."
        )
    return told
