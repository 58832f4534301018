"""Replay: decisions and plans are identical, or the first difference is named."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from audit_kit import ArchiveOpener, FactsAfter, RecordedLog, record_small_log, written_archive
from bus_kit import ask, hardware, plan_made, power, producer
from joulie_audit.archive.combined_history import Sources
from joulie_audit.archive.fact_source import FactSource, plan_facts
from joulie_audit.recompute import fold
from joulie_audit.recompute.answers import Mismatch, compare
from joulie_audit.replay.replay import (
    WHOLE_LOG,
    ReplayReport,
    Scope,
    WorkerSource,
    other_versions,
    replay,
)
from joulie_bus.errors import NotInTheLog, StreamReplaced
from joulie_bus.events import PrioritizeDecided, SettingsDeclared
from joulie_bus.streams.records import Record
from joulie_bus.streams.subjects import MERGE_ORDER, Stream
from joulie_extender.catalogue.declaration import CODE_VERSION as ANSWERS_BY
from joulie_extender.catalogue.weights import Weights
from joulie_extender.decide.decide import DecisionContext, decide_filter, decide_prioritize
from joulie_extender.terms import marginal_power
from joulie_operator.planning import policies
from joulie_projections.chain.entry import header_of
from joulie_projections.fold.manifest import CODE_VERSION as FOLDED_BY
from joulie_projections.fold.manifest import Manifest
from joulie_projections.twin.columns import TwinColumns
from joulie_projections.twin.power import marginal_w
from projections_kit import tamper

pytestmark = pytest.mark.anyio


async def replayed(recorded: RecordedLog, scope: Scope = WHOLE_LOG) -> ReplayReport:
    async with recorded.reading() as (history, facts):
        return await replay(history, facts, scope)


async def test_every_decision_and_every_plan_is_recomputed_identically(
    small_log: RecordedLog,
) -> None:
    done = await replayed(small_log)

    assert (done.decisions, done.plans, done.reported) == (8, 1, [])
    assert done.events == small_log.builder.position


@pytest.mark.parametrize("on_gpu_nodes", ["avoid", "allow"])
@pytest.mark.parametrize("scoring", ["headroom", "energy"])
async def test_decisions_of_every_scoring_are_recomputed_identically(
    recorded: RecordedLog, scoring: str, on_gpu_nodes: str
) -> None:
    made = recorded.builder
    made.weights = Weights(scoring=scoring, cpu_pods_on_gpu_nodes=on_gpu_nodes)
    await record_small_log(recorded)
    await made.facts(hardware("n4", gpus=8))
    await made.answer(ask("with-cards", gpus=2))
    await made.answer(ask("without-cards"))

    done = await replayed(recorded)

    assert (done.decisions, done.reported) == (12, [])


async def test_an_empty_log_has_no_mismatch(recorded: RecordedLog) -> None:
    done = await replayed(recorded)

    assert done[:4] == (0, 0, 0, 0)


async def test_a_changed_coefficient_is_a_mismatch_of_scores(
    small_log: RecordedLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(marginal_power, "marginal_w", lambda *args: marginal_w(*args) * 2)

    done = await replayed(small_log)

    assert done.mismatches == 4
    assert done.reported[0].kind == "score-differs"
    assert re.match(r"headroom of n1: 8\d\.\d+ then, 8\d\.\d+ now", done.reported[0].what)


async def test_a_header_that_differs_from_its_message_is_a_mismatch(
    small_log: RecordedLog,
) -> None:
    async with small_log.reading() as (history, _):
        entry = history.entry(5)
    assert entry is not None
    body = header_of(entry.fields._replace(pod="team/other")) + entry.message
    tamper(small_log.database, "UPDATE decision SET body = ? WHERE pos = 5", body)

    done = await replayed(small_log)

    what = "pod of its header does not match its message"
    assert (done.mismatches, done.reported) == (1, [Mismatch(5, "answer-differs", what)])


def decided() -> PrioritizeDecided:
    twin_columns = TwinColumns.empty()
    return decide_prioritize(ask(), ["a", "b"], DecisionContext(twin_columns, 1, 0, 1), Weights())


@pytest.mark.parametrize(
    ("change", "kind", "what"),
    [
        pytest.param({"trend": 1.0}, "score-differs", "trend of a: 0.0 then, 1.0 now", id="term"),
        pytest.param(
            {"score": 51.0},
            "score-differs",
            "score of a: 50.0 then, 51.0 now; every term is equal, so the sum is computed "
            "differently",
            id="sum",
        ),
        pytest.param(
            {"score": 51.0, "cooling": 9.0},
            "score-differs",
            "cooling of a: 0.0 then, 9.0 now",
            id="a term is named before its score",
        ),
    ],
)
def test_the_first_differing_term_is_named(change: dict[str, Any], kind: str, what: str) -> None:
    then = decided()
    now = replace(then, top=[replace(then.top[0], **change), *then.top[1:]])

    assert compare(7, then, now) == Mismatch(7, kind, what)


def test_another_order_of_equal_scores_has_its_own_kind() -> None:
    then = decided()
    now = replace(then, top=then.top[::-1])

    found = compare(7, then, now)

    assert found == Mismatch(7, "order-differs", "the best were a, b then, and are b, a now")


def test_a_difference_below_the_top_five_is_a_mismatch() -> None:
    then = decided()

    found = compare(7, then, replace(then, terms_digest=bytes(32)))

    assert found == Mismatch(7, "score-differs", "terms_digest differs")


def test_a_filter_with_other_verdicts_is_a_mismatch() -> None:
    then = decide_filter(ask(), ["a"], DecisionContext(TwinColumns.empty(), 1, 0, 1), Weights())

    found = compare(7, then, replace(then, verdicts=b"\1"))

    assert found == Mismatch(7, "answer-differs", "verdicts differs")


async def test_a_policy_that_decides_differently_is_a_mismatch_of_its_plan(
    small_log: RecordedLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(policies, "share_of", lambda count, share: 1)

    done = await replayed(small_log)

    assert [(miss.kind, miss.what) for miss in done.reported] == [
        ("plan-differs", "p12: performance differs")
    ]


async def test_a_plan_without_settings_is_a_mismatch(small_log: RecordedLog) -> None:
    await small_log.builder.facts(plan_made("old"))

    done = await replayed(small_log)

    assert [miss.what for miss in done.reported] == ["old names no settings"]


async def test_undeclared_settings_are_a_mismatch(recorded: RecordedLog) -> None:
    await recorded.builder.facts(power("n1", 100))
    await recorded.builder.answer(ask(), ["n1"])

    done = await replayed(recorded)

    assert [miss.what for miss in done.reported] == ["its settings are not in the log"] * 2


async def test_a_view_after_the_last_position_is_a_mismatch(small_log: RecordedLog) -> None:
    await small_log.builder.facts(power("n1", 100))
    await small_log.builder.answer(ask("last"))
    end = small_log.builder.position
    tamper(small_log.database, f"DELETE FROM batch WHERE p_to = {end}")

    done = await replayed(small_log)

    what = f"its view {end} is beyond the last position {end - 1}"
    assert {miss.what for miss in done.reported} == {what}


# --- facts and rows ---------------------------------------------------------------------------


class ChangedFacts:
    """A fact source that changes one batch."""

    def __init__(self, facts: FactSource, at: int, change: Callable[[Record], Record]) -> None:
        self._facts, self._at, self._change = facts, at, change

    async def of(
        self, manifest: Manifest, streams: frozenset[Stream] = frozenset(MERGE_ORDER)
    ) -> list[Record]:
        records = await self._facts.of(manifest, streams)
        if manifest.p_from <= self._at <= manifest.p_to:
            records = [self._change(record) for record in records]
        return records


def a_watt_more(record: Record) -> Record:
    """Changes the last byte of the reading."""
    return record._replace(data=record.data.replace(b"\x00\x01\x86\xa0", b"\x00\x01\x86\xa1"))


def an_hour_later(record: Record) -> Record:
    return record._replace(at=record.at + 3_600_000_000_000)


ANOTHER_NODES_TWIN = (
    "UPDATE node_twin SET body = (SELECT body FROM node_twin ORDER BY key DESC LIMIT 1) "
    "WHERE key = (SELECT min(key) FROM node_twin)"
)


@pytest.mark.parametrize("stride", [1, 10_000], ids=["batch by batch", "in one stride"])
@pytest.mark.parametrize(
    ("change", "reported"),
    [
        pytest.param(a_watt_more, ["facts at 9 to 12 differ", "state at 12 differs"], id="body"),
        pytest.param(an_hour_later, ["state at 12 differs"], id="time of storing"),
    ],
)
async def test_a_changed_fact_is_reported_with_its_batch(
    small_log: RecordedLog,
    monkeypatch: pytest.MonkeyPatch,
    stride: int,
    change: Callable[[Record], Record],
    reported: list[str],
) -> None:
    monkeypatch.setattr(fold, "STRIDE", stride)
    async with small_log.reading() as (history, facts):
        done = await replay(history, ChangedFacts(facts, 9, change))

    states = [miss.what for miss in done.reported if miss.kind == "state-differs"]
    assert states[: len(reported)] == reported


async def test_rows_that_differ_from_the_facts_are_reported_with_their_table(
    any_database: RecordedLog,
) -> None:
    tamper(any_database.database, ANOTHER_NODES_TWIN)

    done = await replayed(any_database)

    assert [miss.what for miss in done.reported] == [
        "the rows of node differ from the folded state"
    ]


# --- a range of positions ---------------------------------------------------------------------


async def test_a_range_compares_only_the_decisions_of_its_views(small_log: RecordedLog) -> None:
    whole, end = await replayed(small_log), small_log.builder.position

    first = await replayed(small_log, Scope(last=12))
    rest = await replayed(small_log, Scope(first=13, last=end))

    assert (first.decisions, rest.decisions, whole.decisions) == (4, 4, 8)
    assert (first.mismatches, rest.mismatches) == (0, 0)


async def test_a_sample_is_spread_evenly(small_log: RecordedLog) -> None:
    done = await replayed(small_log, Scope(sample=4))

    assert (done.decisions, done.mismatches) == (4, 0)


async def test_facts_that_have_aged_out_give_an_error_with_the_remedy(
    small_log: RecordedLog,
) -> None:
    small_log.builder.broker.trim(Stream.TEL, 4)

    with pytest.raises(NotInTheLog, match=r"1 to 4 have aged out of it.*Give --archive DIR"):
        await replayed(small_log)


async def test_a_recreated_stream_is_refused(
    small_log: RecordedLog,
) -> None:
    small_log.builder.broker.recreate(Stream.PLAN)

    with pytest.raises(StreamReplaced):
        await replayed(small_log)


async def test_a_stream_that_was_restored_and_grew_again_is_refused(
    small_log: RecordedLog,
) -> None:
    """Also if only older facts are requested, which it still holds."""
    log_without_headers = small_log.builder.broker.stream(Stream.PLAN).copy()
    await small_log.builder.plan()
    small_log.builder.broker.set_back(Stream.PLAN, log_without_headers)
    plans = producer(boot="other")
    await small_log.builder.bus.publish([plans.stamp(plan_made(f"p{n}")) for n in range(50)])

    async with small_log.reading() as (history, facts):
        with pytest.raises(StreamReplaced, match=r"JOULIE_PLAN is at a different message"):
            await anext(plan_facts(history, facts))


# --- from snapshots, and by several processes -------------------------------------------------


@pytest.fixture
async def long(small_log: RecordedLog) -> RecordedLog:
    """The small log and six more batches, each with a plan, a snapshot and a pod."""
    for number in range(6):
        await small_log.builder.facts(power("n1", 100 + number), after_s=20)
        await small_log.builder.plan()
        small_log.builder.snapshot()
        await small_log.builder.answer(ask(f"more-{number}"))
    small_log.builder.sign()
    return small_log


async def test_a_range_reads_no_fact_before_its_snapshot(long: RecordedLog) -> None:
    async with long.reading() as (history, facts):
        third = history.starts()[2]
        done = await replay(history, FactsAfter(facts, third), Scope(first=third + 1))

    assert done.events == long.builder.position - third
    assert (done.decisions, done.plans, done.mismatches) == (6, 3, 0)


async def test_after_a_damaged_snapshot_an_earlier_one_is_used(long: RecordedLog) -> None:
    async with long.reading() as (history, _):
        second, third = history.starts()[1:3]
    tamper(long.database, "UPDATE snapshot SET digest = zeroblob(32) WHERE position = ?", third)
    async with long.reading() as (history, facts):
        done = await replay(history, FactsAfter(facts, second), Scope(first=third + 1))

    assert (done.decisions, done.mismatches) == (6, 0)


BY_TWO = Scope(jobs=2)


async def replayed_by_two(
    recorded: RecordedLog, archive: Path, scope: Scope = BY_TWO
) -> ReplayReport:
    """Replays with two worker processes."""
    await written_archive(recorded, archive)
    async with recorded.reading() as (history, facts):
        by_workers = WorkerSource(Sources(recorded.database), ArchiveOpener(archive))
        return await replay(history, facts, scope, worker_source=by_workers)


@pytest.mark.slow
async def test_worker_processes_find_the_same_mismatches(long: RecordedLog, tmp_path: Path) -> None:
    long.builder.weights = Weights(headroom=0.9)  # never declared
    await long.builder.answer(ask("odd"))

    here, by_workers = await replayed(long), await replayed_by_two(long, tmp_path / "a")

    assert (here.decisions, here.plans, here.mismatches) == (22, 7, 2)
    assert by_workers._replace(seconds=0) == here._replace(seconds=0)


@pytest.mark.slow
async def test_worker_processes_take_the_same_sample(long: RecordedLog, tmp_path: Path) -> None:
    by_workers = await replayed_by_two(long, tmp_path / "a", Scope(sample=5, jobs=2))
    here = await replayed(long, Scope(sample=5))

    assert (by_workers.decisions, by_workers.mismatches) == (here.decisions, 0)


@pytest.mark.slow
async def test_an_error_of_a_worker_process_is_raised_here(
    long: RecordedLog, tmp_path: Path
) -> None:
    await replayed_by_two(long, tmp_path / "a")
    file = next((tmp_path / "a").rglob("messages.seg"))
    file.write_bytes(file.read_bytes()[:-1])

    with pytest.raises(NotInTheLog, match="its SHA-256 does not match"):
        await replayed_by_two(long, tmp_path / "a")


# --- versions ---------------------------------------------------------------------------------


async def test_other_versions_in_the_log_are_named(small_log: RecordedLog) -> None:
    await small_log.builder.publish(SettingsDeclared(settings="old", code="joulie/0", values={}))
    tamper(small_log.database, "UPDATE batch SET fold_version = '0' WHERE p_to = 8")

    async with small_log.reading() as (history, _):
        found = other_versions(history)

    assert found is not None
    assert (found.folds, found.answers) == (["0"], ["joulie/0"])
    reported = (
        f"folds of version 0 (this is {FOLDED_BY}) and decisions of joulie/0 (this is {ANSWERS_BY})"
    )
    assert reported in str(found)


async def test_a_log_of_this_version_names_no_other_version(small_log: RecordedLog) -> None:
    async with small_log.reading() as (history, _):
        assert other_versions(history) is None
