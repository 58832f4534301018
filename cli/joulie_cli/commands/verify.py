"""`joulie verify`: is the log what was written?"""

import argparse
import asyncio
import json
from collections.abc import Sequence
from typing import Any

from joulie_audit.verify import Report, verify
from joulie_bus.log import Log
from joulie_bus.subjects import Stream
from joulie_bus.tasks import rung
from joulie_cli.past import broker_of
from joulie_cli.wiring import Wiring
from joulie_projections import heads
from joulie_projections.heads import Head
from joulie_projections.history import History

SETTINGS = ()
PATIENCE_S = 5.0


def run(args: argparse.Namespace, wires: Wiring) -> int:
    report = asyncio.run(_verify(wires))
    print(json.dumps(_as_json(report)) if args.json else _as_text(report))
    return 0 if report.flaw is None else 1


async def _verify(wires: Wiring) -> Report:
    wires.data.require()
    async with broker_of(wires) as bus:
        anchored = await _anchored(bus)
    with History.of(wires.data.database) as history:
        return verify(history, heads.public_key(wires.data.public_key), anchored)


async def _anchored(bus: Log) -> Sequence[Head]:
    """The heads that were put out of the database's reach."""
    last = (await bus.state(Stream.HEADS)).last
    found: list[Head] = []
    bell = asyncio.Event()
    async with bus.reading(Stream.HEADS, 0, bell=bell) as reader:
        while len(found) < last:
            records = reader.take(1000)
            found.extend(heads.decode(record.data) for record in records)
            if not records:
                await rung(bell, PATIENCE_S)
    return found


def _as_json(report: Report) -> dict[str, Any]:
    told: dict[str, Any] = {"entries": report.entries, "heads": report.heads}
    if report.flaw is not None:
        told |= {"first_bad": report.flaw.place, "what": report.flaw.what}
    return told


def _as_text(report: Report) -> str:
    if report.flaw is not None:
        return f"NOT what was written: {report.flaw.what}."
    return (
        f"{report.entries} entries, {report.heads} signed heads, {report.batches} manifests: "
        "every hash, link and signature is right."
    )
