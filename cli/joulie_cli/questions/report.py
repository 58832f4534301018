"""`joulie report`: one signed document of a period, as HTML or JSON."""

import argparse
import asyncio
import time

import msgspec

import joulie_migrations
from joulie_bus.errors import NotInTheLog
from joulie_cli.display.time_arguments import as_time
from joulie_cli.log_access.past import ArchivePlace, archive_of, facts_of, require_readable
from joulie_cli.reporting.document import Document, document_of
from joulie_cli.reporting.gather import Period, gathered
from joulie_cli.reporting.page import page_of
from joulie_cli.reporting.signature import head_json, signed
from joulie_cli.wiring import Wiring
from joulie_projections.energy.table import EnergyTable
from joulie_projections.store import database

SETTINGS = (ArchivePlace,)
NS_PER_MS = 1_000_000


def run(args: argparse.Namespace, wires: Wiring) -> int:
    period = _period(args)
    document = asyncio.run(_document(args, wires, period))
    if not args.unsigned:
        document = signed(document, wires.data.key)
    text = (
        msgspec.json.encode(document, order="deterministic").decode()
        if args.json
        else page_of(document)
    )
    if args.out is None:
        print(text)
    else:
        args.out.write_text(text)
        print(f"Wrote {args.out}. Check it with `joulie verify --report {args.out}`.")
    return 0


async def _document(args: argparse.Namespace, wires: Wiring, period: Period) -> Document:
    require_readable(wires.data)
    engine = database.reader(wires.data.database)
    try:
        joulie_migrations.require(engine)
        async with facts_of(wires, archive_of(args, wires)) as (history, facts):
            got = await gathered(EnergyTable(engine), history, facts, period, history.tip())
            newest = max(history.heads(), key=lambda head: head.pos, default=None)
    finally:
        engine.dispose()
    return {**document_of(got, wires.bus.cluster), "head": head_json(newest)}


def _period(args: argparse.Namespace) -> Period:
    now = time.time_ns()
    first = _time(args.first, now) // NS_PER_MS if args.first else 0
    return Period(first, (_time(args.last, now) if args.last else now) // NS_PER_MS)


def _time(text: str, now: int) -> int:
    try:
        return as_time(text, now)
    except ValueError as error:
        why = "a time such as 2026-11-21T10:30, or -10m"
        raise NotInTheLog(f"{text!r} is not {why}.") from error
