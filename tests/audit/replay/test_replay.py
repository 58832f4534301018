"""Everything once more: equal to the last bit, or the first thing that differs is named."""

import contextlib
import re
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from joulie_audit.archive.archiver import Archiver
from joulie_audit.archive.columnar import Segment
from joulie_audit.archive.combined_history import Sources
from joulie_audit.archive.fact_source import Facts, plan_facts
from joulie_audit.archive.parts import Archive, ArchivedFacts
from joulie_audit.replay import fold
from joulie_audit.replay.recompute import Mismatch, compare
from joulie_audit.replay.replay import ALL, Elsewhere, Replayed, Scope, other_versions, replay
from joulie_audit.testing import Gone, Past, Since
from joulie_bus.errors import NotInTheLog, StreamReplaced
from joulie_bus.events import PrioritizeDecided, SettingsDeclared
from joulie_bus.streams.records import Record
from joulie_bus.streams.subjects import MERGE_ORDER, Stream
from joulie_bus.testing import ask, plan_made, power, producer
from joulie_extender.decide import marginal_power
from joulie_extender.decide.decide import CODE_VERSION as ANSWERS_BY
from joulie_extender.decide.decide import DecisionContext, decide_filter, decide_prioritize
from joulie_extender.decide.scoring import Weights
from joulie_operator.planning import policies
from joulie_projections.decision_log.entry import header
from joulie_projections.fold.manifest import CODE_VERSION as FOLDED_BY
from joulie_projections.fold.manifest import Manifest
from joulie_projections.history.history import History
from joulie_projections.testing import edited
from joulie_projections.twin.columns import TwinColumns
from joulie_projections.twin.power import marginal_w

pytestmark = pytest.mark.anyio


async def replayed(past: Past, scope: Scope = ALL) -> Replayed:
    async with past.reading() as (history, facts):
        return await replay(history, facts, scope)


async def test_every_decision_and_every_plan_comes_out_the_same(small: Past) -> None:
    done = await replayed(small)

    assert (done.decisions, done.plans, done.told) == (8, 1, [])
    assert done.events == small.maker.position


async def test_an_empty_log_has_nothing_that_could_differ(past: Past) -> None:
    done = await replayed(past)

    assert done[:4] == (0, 0, 0, 0)


async def test_a_weight_that_was_changed_in_the_code_is_named_by_its_score(
    small: Past, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(marginal_power, "marginal_w", lambda *args: marginal_w(*args) * 2)

    done = await replayed(small)

    assert done.mismatches == 4
    assert done.told[0].kind == "score-differs"
    assert re.match(r"headroom of n1: 8\d\.\d+ then, 8\d\.\d+ now", done.told[0].what)


async def test_an_entry_under_a_header_that_it_does_not_say_is_named(small: Past) -> None:
    async with small.reading() as (history, _):
        entry = history.entry(5)
    assert entry is not None
    body = header(entry.about._replace(pod="team/other")) + entry.message
    edited(small.database, "UPDATE decision SET body = ? WHERE pos = 5", body)

    done = await replayed(small)

    what = "pod of its header is not what it says"
    assert (done.mismatches, done.told) == (1, [Mismatch(5, "answer-differs", what)])


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
            "score of a: 50.0 then, 51.0 now; every term is the same, so they are added up "
            "otherwise",
            id="sum",
        ),
        pytest.param(
            {"score": 51.0, "cooling": 9.0},
            "score-differs",
            "cooling of a: 0.0 then, 9.0 now",
            id="a term goes before the score that it made",
        ),
    ],
)
def test_the_first_differing_term_is_named(change: dict[str, Any], kind: str, what: str) -> None:
    then = decided()
    now = replace(then, top=[replace(then.top[0], **change), *then.top[1:]])

    assert compare(7, then, now) == Mismatch(7, kind, what)


def test_another_order_of_equal_scores_is_a_class_of_its_own() -> None:
    then = decided()
    now = replace(then, top=then.top[::-1])

    found = compare(7, then, now)

    assert found == Mismatch(7, "order-differs", "the best were a, b then, and are b, a now")


def test_a_difference_beyond_the_best_five_is_still_one() -> None:
    then = decided()

    found = compare(7, then, replace(then, terms_digest=bytes(32)))

    assert found == Mismatch(7, "score-differs", "terms_digest differs")


def test_a_filter_that_answers_otherwise_is_told() -> None:
    then = decide_filter(ask(), ["a"], DecisionContext(TwinColumns.empty(), 1, 0, 1), Weights())

    found = compare(7, then, replace(then, verdicts=b"\1"))

    assert found == Mismatch(7, "answer-differs", "verdicts differs")


async def test_a_policy_that_decides_otherwise_is_told_with_its_plan(
    small: Past, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(policies, "share_of", lambda count, share: 1)

    done = await replayed(small)

    assert [(miss.kind, miss.what) for miss in done.told] == [
        ("plan-differs", "p12: performance differs")
    ]


async def test_a_plan_that_names_no_settings_cannot_be_made_again(small: Past) -> None:
    await small.maker.facts(plan_made("old"))

    done = await replayed(small)

    assert [miss.what for miss in done.told] == ["old names no settings"]


async def test_settings_that_were_never_declared_are_told(past: Past) -> None:
    await past.maker.facts(power("n1", 100))
    await past.maker.answer(ask(), ["n1"])

    done = await replayed(past)

    assert [miss.what for miss in done.told] == ["its settings are not in the log"] * 2


async def test_a_view_beyond_the_end_is_told(small: Past) -> None:
    await small.maker.facts(power("n1", 100))
    await small.maker.answer(ask("last"))
    end = small.maker.position
    edited(small.database, f"DELETE FROM batch WHERE p_to = {end}")

    done = await replayed(small)

    what = f"its view {end} is beyond the last position {end - 1}"
    assert {miss.what for miss in done.told} == {what}


# --- what is folded ---------------------------------------------------------------------------


class Changed:
    """Facts of which one batch is not what it was."""

    def __init__(self, facts: Facts, at: int, change: Callable[[Record], Record]) -> None:
        self._facts, self._at, self._change = facts, at, change

    async def of(
        self, manifest: Manifest, streams: frozenset[Stream] = frozenset(MERGE_ORDER)
    ) -> list[Record]:
        records = await self._facts.of(manifest, streams)
        if manifest.p_from <= self._at <= manifest.p_to:
            records = [self._change(record) for record in records]
        return records


def a_watt_more(record: Record) -> Record:
    """The same bytes, but for the last one of the reading."""
    return record._replace(data=record.data.replace(b"\x00\x01\x86\xa0", b"\x00\x01\x86\xa1"))


def an_hour_later(record: Record) -> Record:
    return record._replace(at=record.at + 3_600_000_000_000)


ANOTHER_NODES_TWIN = (
    "UPDATE node_twin SET body = (SELECT body FROM node_twin ORDER BY key DESC LIMIT 1) "
    "WHERE key = (SELECT min(key) FROM node_twin)"
)


@pytest.mark.parametrize("stride", [1, 10_000], ids=["batch by batch", "in one stride"])
@pytest.mark.parametrize(
    ("change", "told"),
    [
        pytest.param(a_watt_more, ["other facts at 9 to 12", "another state at 12"], id="body"),
        pytest.param(an_hour_later, ["another state at 12"], id="time of storing"),
    ],
)
async def test_a_changed_fact_is_named_by_its_batch(
    small: Past,
    monkeypatch: pytest.MonkeyPatch,
    stride: int,
    change: Callable[[Record], Record],
    told: list[str],
) -> None:
    monkeypatch.setattr(fold, "STRIDE", stride)
    async with small.reading() as (history, facts):
        done = await replay(history, Changed(facts, 9, change))

    states = [miss.what for miss in done.told if miss.kind == "state-differs"]
    assert states[: len(told)] == told


async def test_rows_that_the_facts_do_not_give_are_told_by_their_table(either: Past) -> None:
    edited(either.database, ANOTHER_NODES_TWIN)

    done = await replayed(either)

    assert [miss.what for miss in done.told] == ["the rows of node are not the folded ones"]


# --- a part of it -----------------------------------------------------------------------------


async def test_a_part_compares_only_what_looked_at_it(small: Past) -> None:
    whole, end = await replayed(small), small.maker.position

    first = await replayed(small, Scope(last=12))
    rest = await replayed(small, Scope(first=13, last=end))

    assert (first.decisions, rest.decisions, whole.decisions) == (4, 4, 8)
    assert (first.mismatches, rest.mismatches) == (0, 0)


async def test_a_sample_is_spread_evenly(small: Past) -> None:
    done = await replayed(small, Scope(sample=4))

    assert (done.decisions, done.mismatches) == (4, 0)


async def test_facts_that_have_aged_out_are_told_with_a_way_out(small: Past) -> None:
    small.maker.broker.trim(Stream.TEL, 4)

    with pytest.raises(NotInTheLog, match=r"1 to 4 have aged out of it.*Give --archive DIR"):
        await replayed(small)


async def test_the_streams_of_another_cluster_are_not_taken_for_ours(small: Past) -> None:
    small.maker.broker.recreate(Stream.PLAN)

    with pytest.raises(StreamReplaced):
        await replayed(small)


async def test_a_stream_that_was_set_back_and_grew_again_is_not_taken_for_ours(small: Past) -> None:
    """Also where only older facts are asked for, which it still holds."""
    older = small.maker.broker.stream(Stream.PLAN).copy()
    await small.maker.plan()
    small.maker.broker.set_back(Stream.PLAN, older)
    says = producer(boot="other")
    await small.maker.bus.publish([says.stamp(plan_made(f"p{n}")) for n in range(50)])

    async with small.reading() as (history, facts):
        with pytest.raises(StreamReplaced, match=r"JOULIE_PLAN is at a different message"):
            await anext(plan_facts(history, facts))


# --- from snapshots, and by several processes --------------------------------------------------


@pytest.fixture
async def long(small: Past) -> Past:
    """Each of six more batches has its snapshot, and pods that looked at it."""
    for number in range(6):
        await small.maker.facts(power("n1", 100 + number), after_s=20)
        await small.maker.plan()
        small.maker.snapshot()
        await small.maker.answer(ask(f"more-{number}"))
    small.maker.sign()
    return small


async def test_a_part_reads_no_fact_before_its_snapshot(long: Past) -> None:
    async with long.reading() as (history, facts):
        third = history.starts()[2]
        done = await replay(history, Since(facts, third), Scope(first=third + 1))

    assert done.events == long.maker.position - third
    assert (done.decisions, done.plans, done.mismatches) == (6, 3, 0)


async def test_behind_a_damaged_snapshot_an_earlier_one_serves(long: Past) -> None:
    async with long.reading() as (history, _):
        second, third = history.starts()[1:3]
    edited(long.database, "UPDATE snapshot SET digest = zeroblob(32) WHERE position = ?", third)
    async with long.reading() as (history, facts):
        done = await replay(history, Since(facts, second), Scope(first=third + 1))

    assert (done.decisions, done.mismatches) == (6, 0)


BY_TWO = Scope(jobs=2)


@dataclass(frozen=True)
class Archived:
    """Facts that another process can open."""

    path: Path

    def __call__(self, history: History) -> AbstractAsyncContextManager[Facts]:
        return contextlib.nullcontext(ArchivedFacts(Archive.of(self.path), Gone()))


async def shared(past: Past, archive: Path, scope: Scope = BY_TWO) -> Replayed:
    """By two processes."""
    async with past.reading() as (history, facts):
        await Archiver(archive, Segment(), 2**62).run(history, facts)
        elsewhere = Elsewhere(Sources(past.database), Archived(archive))
        return await replay(history, facts, scope, elsewhere=elsewhere)


@pytest.mark.slow
async def test_other_processes_find_what_this_one_finds(long: Past, tmp_path: Path) -> None:
    long.maker.weights = Weights(headroom=0.9)  # never declared
    await long.maker.answer(ask("odd"))

    here, elsewhere = await replayed(long), await shared(long, tmp_path / "a")

    assert (here.decisions, here.plans, here.mismatches) == (22, 7, 2)
    assert elsewhere._replace(seconds=0) == here._replace(seconds=0)


@pytest.mark.slow
async def test_other_processes_take_the_same_sample(long: Past, tmp_path: Path) -> None:
    elsewhere = await shared(long, tmp_path / "a", Scope(sample=5, jobs=2))
    here = await replayed(long, Scope(sample=5))

    assert (elsewhere.decisions, elsewhere.mismatches) == (here.decisions, 0)


@pytest.mark.slow
async def test_what_another_process_cannot_read_is_told(long: Past, tmp_path: Path) -> None:
    await shared(long, tmp_path / "a")
    file = next((tmp_path / "a").rglob("facts.seg"))
    file.write_bytes(file.read_bytes()[:-1])

    with pytest.raises(NotInTheLog, match="its sha256 is another one"):
        await shared(long, tmp_path / "a")


# --- versions ---------------------------------------------------------------------------------


async def test_the_work_of_other_code_is_told_first(small: Past) -> None:
    await small.maker.say(SettingsDeclared(settings="old", code="joulie/0", values={}))
    edited(small.database, "UPDATE batch SET fold_version = '0' WHERE p_to = 8")

    async with small.reading() as (history, _):
        found = other_versions(history)

    assert found is not None
    assert (found.folds, found.answers) == (["0"], ["joulie/0"])
    told = f"folds of version 0 (here {FOLDED_BY}) and answers of joulie/0 (here {ANSWERS_BY})"
    assert told in str(found)


async def test_a_log_of_this_code_needs_no_such_remark(small: Past) -> None:
    async with small.reading() as (history, _):
        assert other_versions(history) is None
