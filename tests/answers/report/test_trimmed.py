"""Reports of a log that was trimmed, without its archive."""

from collections.abc import AsyncGenerator
from pathlib import Path
from typing import NamedTuple

import pytest

from audit_kit import RecordedLog, small_log_in, written_archive
from bus_kit import CLUSTER, ask, node_seen, power
from joulie_answers.report.document import differences, document_of
from joulie_answers.report.form import Document, Period
from joulie_answers.report.gather import gathered
from joulie_audit.archive.combined_history import Sources
from joulie_audit.archive.parts import Archive
from joulie_audit.ledger.refold import refolded
from joulie_audit.retention.cut_points import CutOptions
from joulie_bus.events import (
    Fact,
    NodeSeen,
    PodAsk,
    PodBound,
    PodFinished,
    PodPending,
    SleepOrdered,
    TelemetrySampled,
    WakeOrdered,
)
from joulie_bus.streams.records import Message
from joulie_projections.decision_log import heads
from joulie_projections.history.history import NEWEST, History
from joulie_projections.history.trimming import TrimStore
from joulie_projections.projector.trim_streams import anchored_heads
from joulie_projections.store import database
from joulie_projections.store.energy_table import EnergyTable
from projections_kit import tamper
from trim_kit import ArchiveTrim

pytestmark = pytest.mark.anyio
MINUTE_S, HOUR_MS = 60, 3_600_000
CUT, NEXT, END = 110, 200, 240  # minutes
AFTER_CUT, LAST = 3, 5  # hours
ASLEEP = NodeSeen(node="n4", uid="uid-n4", ready=False, cpu_milli=96_000)


def pod(uid: str) -> PodAsk:
    return ask(uid, cores=40)


def runs(uid: str, node: str) -> PodBound:
    return PodBound(pod=pod(uid), node=node)


# By the minute. Those before the cut are of what runs, waits or is off behind it, and of what ends.
FACTS: dict[int, list[Fact]] = {
    10: [runs("runs-on", "n1"), runs("ends-before", "n2")],
    20: [SleepOrdered(node="n4", plan="p"), runs("runs-until-after", "n3")],
    21: [ASLEEP],
    100: [PodFinished(uid="ends-before"), PodPending(pod=pod("waits"))],
    150: [runs("waits", "n2"), PodPending(pod=pod("later"))],
    155: [runs("later", "n2")],
    180: [PodFinished(uid="runs-until-after"), WakeOrdered(node="n4", plan="p")],
    185: [node_seen("n4"), runs("on-the-woken", "n4")],
}


class TrimmedLog(NamedTuple):
    recorded: RecordedLog
    table: EnergyTable
    start_ms: int
    cut_position: int
    cut_ms: int
    before: Document  # the trim, of hours after the cut

    async def report(self, first: int = 0, last: int = LAST) -> Document:
        """Of these hours of the log."""
        first_ms, last_ms = (self.start_ms + hours * HOUR_MS for hours in (first, last))
        period = Period(first_ms, last_ms)
        async with self.recorded.reading() as (history, facts):
            got = await gathered(self.table, history, facts, period, history.tip())
        return document_of(got, "c")


@pytest.fixture
async def log(database_file: Path, tmp_path: Path) -> AsyncGenerator[TrimmedLog, None]:
    async with small_log_in(database_file, tmp_path) as recorded:
        builder = recorded.builder
        start_ms = builder.clock() // 1_000_000
        start_ms -= start_ms % HOUR_MS
        snapshots: list[tuple[int, int]] = []  # positions and times
        for minute in range(END):
            if minute in (CUT, NEXT):
                snapshots.append((builder.snapshot(), builder.clock() // 1_000_000))
            await builder.facts(*FACTS.get(minute, ()), *_readings(minute), after_s=MINUTE_S)
        await builder.answer(ask("last"))
        builder.sign()
        await _anchor(recorded)
        reading = recorded.reading()
        async with reading as (history, facts), refolded(history, facts, NEWEST) as table:
            made = TrimmedLog(recorded, table, start_ms, *snapshots[0], {})
            yield made._replace(before=await made.report(AFTER_CUT))


def _readings(minute: int) -> list[TelemetrySampled]:
    awake = 150 + minute % 7
    watts = {"n1": awake, "n2": awake, "n3": awake, "n4": 15 if 21 <= minute < 185 else 150}
    return [power(name, each) for name, each in watts.items()]


async def _anchor(recorded: RecordedLog) -> None:
    with History.of(recorded.database) as history:
        signed = history.heads()
    sent = [Message(CLUSTER.heads, f"head:{each.pos}", heads.encode(each)) for each in signed]
    await recorded.builder.bus.publish(sent)


async def trim(log: TrimmedLog, archive: Path) -> None:
    builder, place = log.recorded.builder, log.recorded.database
    await written_archive(log.recorded, archive)
    engine = database.trimmer(place)
    try:
        made = ArchiveTrim(
            Archive.of(archive), TrimStore(engine), Sources(place).reading, builder.signer.public
        )
        anchored = await anchored_heads(builder.bus, 1000)
        options = CutOptions(log.cut_ms * 1_000_000 + 999_999, "test")
        done = await made.run(builder.bus, anchored, options, builder.clock())
    finally:
        engine.dispose()
    assert done.cut is not None
    assert done.messages


async def test_a_report_of_the_time_after_a_trim_is_as_before_it(
    log: TrimmedLog, tmp_path: Path
) -> None:
    assert log.before["saved"]["kwh"]["low"] > 0
    assert log.before["counterfactual"]["waited_for_the_scheduler"] == 1

    await trim(log, tmp_path / "archive")

    assert list(differences(log.before, await log.report(AFTER_CUT))) == []


async def test_what_was_saved_is_compared_from_the_trim_on(log: TrimmedLog, tmp_path: Path) -> None:
    """The measured energy is that of the same time: else the factor of requests is too large."""
    use = log.before["counterfactual"]["use_of_requests"]

    await trim(log, tmp_path / "archive")
    found = (await log.report())["counterfactual"]

    assert found["from"] == log.cut_ms
    assert found["use_of_requests"] == pytest.approx(use, rel=0.3)
    assert found["saved"]["share"]["low"] > 0


async def test_nothing_is_compared_of_the_time_before_a_trim(
    log: TrimmedLog, tmp_path: Path
) -> None:
    await trim(log, tmp_path / "archive")
    found = await log.report(last=1)

    assert found["saved"] is None
    assert "begins after this time" in found["counterfactual"]["why"]


async def test_a_damaged_snapshot_is_replaced_by_a_later_one(
    log: TrimmedLog, tmp_path: Path
) -> None:
    await trim(log, tmp_path / "archive")
    first = f"(SELECT min(position) FROM snapshot WHERE position >= {log.cut_position})"
    tamper(
        log.recorded.database, f"UPDATE snapshot SET digest = zeroblob(32) WHERE position = {first}"
    )
    found = (await log.report())["counterfactual"]

    assert found["from"] > log.cut_ms
    assert found["saved"]


async def test_the_state_may_be_of_an_earlier_version(log: TrimmedLog, tmp_path: Path) -> None:
    await trim(log, tmp_path / "archive")
    tamper(log.recorded.database, "UPDATE snapshot SET fold_version = 'earlier'")

    assert list(differences(log.before, await log.report(AFTER_CUT))) == []


async def test_without_a_state_after_a_trim_a_report_names_the_archive(
    log: TrimmedLog, tmp_path: Path
) -> None:
    await trim(log, tmp_path / "archive")
    tamper(log.recorded.database, "DELETE FROM snapshot")
    found = await log.report(AFTER_CUT)

    assert found["saved"] is None
    assert "--archive DIR" in found["counterfactual"]["why"]
