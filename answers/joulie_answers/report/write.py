"""Computes a report from the ledger and the log as they are, and writes it."""

import time
from pathlib import Path

import joulie_migrations
from joulie_answers.report.document import document_of
from joulie_answers.report.form import JSON_SUFFIX, Document, Period, as_json_text
from joulie_answers.report.gather import gathered
from joulie_answers.report.page import page_of
from joulie_answers.report.signature import head_json, signed
from joulie_audit.access.past import ArchivePlace, facts_of
from joulie_bus.core.times import MS
from joulie_bus.runtime.logging import get_logger
from joulie_bus.streams.roles import Role
from joulie_projections.component.opening import require_readable
from joulie_projections.component.wiring import Wiring
from joulie_projections.energy.savings import savings_of
from joulie_projections.store import database
from joulie_projections.store.energy_table import EnergyTable

log = get_logger("report")


async def report_of_period(
    wires: Wiring, archive: Path | None, period: Period, *, signs: bool
) -> Document:
    document = await computed(wires, archive, period)
    keep_savings(wires, document)
    return signed(document, wires.data.key) if signs else document


async def computed(
    wires: Wiring, archive: Path | None, period: Period, role: Role = Role.AUDITOR
) -> Document:
    """Without a signature. Writes nothing."""
    require_readable(wires.data)
    engine = database.ledger_reader(wires.data.database)
    try:
        joulie_migrations.require(engine)
        async with facts_of(wires, archive, role) as (history, facts):
            got = await gathered(EnergyTable(engine), history, facts, period, history.tip())
            newest = max(history.heads(), key=lambda head: head.pos, default=None)
    finally:
        engine.dispose()
    return {**document_of(got, wires.bus.cluster), "head": head_json(newest)}


def keep_savings(wires: Wiring, document: Document) -> None:
    """For the console. Without a right to write in the database there is a report all the same."""
    now_ms = time.time_ns() // MS
    found = savings_of(document, now_ms, time.process_time())
    engine = database.ledger(wires.data.database)
    try:
        why = EnergyTable(engine).keep_savings(found)
    finally:
        engine.dispose()
    if why:
        log.warning("savings_not_kept", why=why, what="the console does not show what was saved")


async def report_now(wires: Wiring, *, signs: bool) -> Document:
    """Of the whole log."""
    directory = wires.source.load(ArchivePlace).directory
    archive = Path(directory) if directory else None
    period = Period(0, time.time_ns() // MS)
    return await report_of_period(wires, archive, period, signs=signs)


def write(file: Path, document: Document) -> None:
    """JSON for a name that ends in .json, else a page."""
    is_json = file.suffix == JSON_SUFFIX
    file.write_text(as_json_text(document) if is_json else page_of(document))
