"""An answer about a member of a group is written once a minute while nothing of it changes."""

import asyncio
from collections.abc import Sequence
from pathlib import Path

import pytest
from msgspec.structs import replace

from bus_kit import CLUSTER, NOON, ask, hardware
from joulie_bus.events import DecisionEntry, FallbackAnswered, FilterDecided, PodAsk, Ties
from joulie_bus.log.producer import Producer
from joulie_bus.runtime import metrics
from joulie_extender.catalogue.weights import Weights
from joulie_extender.decide.context import DecisionContext
from joulie_extender.decide.decide import decide_filter, decide_prioritize
from joulie_extender.decision_log.repeats import MOST_BYTES, WRITTEN_AGAIN_NS, Repeats
from joulie_extender.decision_log.shipping import Durability, Shipper
from joulie_extender.decision_log.spool import Spool
from joulie_projections.state.state import NodeState, Sample
from joulie_projections.twin.columns import TwinColumns

NAMES = ("a", "b", "c")
MEMBER = replace(ask("p"), ties=Ties(group="podgroup/train"))
LATER = 1_000_000_000


def context(
    *, position: int = 1, now: int = NOON, watts: int = 300, incarnation: str = "x"
) -> DecisionContext:
    nodes = {
        name: NodeState(
            ordinal=at,
            at=NOON,
            hardware=hardware(name),
            samples=(Sample(NOON, (watts + at) * 1000),),
        )
        for at, name in enumerate(NAMES)
    }
    return DecisionContext(TwinColumns.of(nodes, 0), position, 0, now, incarnation=incarnation)


def both(
    at: DecisionContext,
    pod: PodAsk = MEMBER,
    names: Sequence[str] = NAMES,
    weights: Weights = Weights(),  # noqa: B008
) -> list[DecisionEntry]:
    return [
        decide_filter(pod, names, at, weights),
        decide_prioritize(pod, names, at, weights),
    ]


def repeated(first: Sequence[DecisionEntry], then: Sequence[DecisionEntry]) -> list[bool]:
    repeats = Repeats()
    for entry in first:
        repeats.written(entry)
    return [repeats.is_repeat(entry) for entry in then]


@pytest.mark.parametrize("names", [NAMES, ("c", "a", "b")], ids=["same order", "another order"])
def test_an_answer_that_differs_by_position_and_clock_alone_is_a_repeat(
    names: Sequence[str],
) -> None:
    later = context(position=9, now=NOON + LATER)

    assert repeated(both(context()), both(later, names=names)) == [True, True]


def test_a_later_answer_with_other_terms_is_none() -> None:
    """The integers of the answer are equal."""
    assert repeated(both(context()), both(context(watts=301))) == [True, False]


CHANGES = {
    "other names": both(context(), names=("a", "b")),
    "more names": both(context(), names=(*NAMES, "stranger")),
    "another pod": both(context(), replace(MEMBER, uid="q")),
    "another ask": both(context(), replace(MEMBER, cpu_milli=7000)),
    "other settings": both(context(), weights=Weights(neutral=1.0)),
    "another database": both(context(incarnation="y")),
    "a minute later": both(context(now=NOON + WRITTEN_AGAIN_NS)),
    "earlier": both(context(now=NOON - 1)),
}


@pytest.mark.parametrize("then", CHANGES.values(), ids=CHANGES.keys())
def test_anything_else_is_written(then: Sequence[DecisionEntry]) -> None:
    assert repeated(both(context()), then) == [False, False]


def test_an_answer_repeats_the_last_one_alone() -> None:
    """So that the newest entry about a pod is always its newest answer."""
    changed = both(context(), names=("a", "b"))

    assert repeated([*both(context()), *changed], both(context())) == [False, False]


def test_an_answer_after_a_fallback_is_written() -> None:
    """The newest entry about the pod is the fallback then."""
    entries = both(context())
    asked = entries[0]
    assert isinstance(asked, FilterDecided)
    fallback = FallbackAnswered(
        pod_uid=MEMBER.uid,
        namespace=MEMBER.namespace,
        name=MEMBER.name,
        verb="prioritize",
        why="overdue",
        answer="open",
        candidates=3,
        basis=asked.basis,
    )

    assert repeated([*entries, fallback], both(context())) == [False, False]


def test_answers_about_pods_of_no_group_are_all_written() -> None:
    assert repeated(both(context(), ask("p")), both(context(), ask("p"))) == [False, False]


def test_the_oldest_are_forgotten_when_there_are_too_many() -> None:
    repeats = Repeats()
    names = [f"n{at}" for at in range(5000)]
    entries = [
        decide_filter(replace(MEMBER, uid=f"p{at}"), names, context(), Weights())
        for at in range(MOST_BYTES // (8 * len(names)))
    ]
    for entry in entries:
        repeats.written(entry)

    assert [repeats.is_repeat(entries[at]) for at in (0, -1)] == [False, True]


def spooled(directory: Path, durability: Durability) -> tuple[Shipper, Spool]:
    spool = Spool(directory)
    return Shipper(Producer("r", CLUSTER, lambda: NOON), spool, durability), spool


def test_a_repeat_is_counted_and_not_spooled(tmp_path: Path) -> None:
    shipper, spool = spooled(tmp_path, Durability.ASYNC)
    before = metrics.DECISIONS_UNCHANGED._value.get()

    for entry in [*both(context()), *both(context(now=NOON + LATER))]:
        assert shipper.record(entry) is None

    assert len(spool.unshipped(10).messages) == 1 + len(both(context()))  # the key of promises
    assert metrics.DECISIONS_UNCHANGED._value.get() == before + 2
    spool.close()


def test_an_answer_that_could_not_be_spooled_is_no_entry(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shipper, spool = spooled(tmp_path, Durability.ASYNC)
    entry = both(context())[0]
    with monkeypatch.context() as patch:
        patch.setattr(spool, "append", refuse)
        shipper.record(entry)
    shipper.record(entry)

    # The key of promises, the entry, and the record of the loss.
    assert len(spool.unshipped(10).messages) == 3
    spool.close()


def refuse(_: object) -> None:
    raise OSError(28, "the disk is full")


@pytest.mark.anyio
async def test_an_entry_that_the_broker_has_not_is_waited_for_again(tmp_path: Path) -> None:
    shipper, spool = spooled(tmp_path, Durability.STRICT)
    entry = both(context())[0]
    first, second = shipper.record(entry), shipper.record(entry)

    assert first is not None
    assert second is not None
    second.cancel()
    first.set_result(True)
    await asyncio.sleep(0)
    assert shipper.record(entry) is None
    spool.close()


@pytest.mark.anyio
async def test_an_answer_is_written_again_after_another_one_that_the_broker_does_not_have_yet(
    tmp_path: Path,
) -> None:
    """Else the newest entry about the pod would not be its newest answer."""
    shipper, spool = spooled(tmp_path, Durability.STRICT)
    answer, other = both(context())[0], both(context(), names=("a", "b"))[0]
    first, second = shipper.record(answer), shipper.record(other)

    assert first is not None
    first.set_result(True)
    await asyncio.sleep(0)
    assert shipper.record(answer) is not None
    assert second is not None
    spool.close()
