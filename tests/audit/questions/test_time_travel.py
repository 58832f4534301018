"""Back to any moment of the log."""

from collections.abc import Iterator, Sequence
from typing import Any

import pytest
from structlog.testing import capture_logs

from joulie_audit.archive.fact_source import plan_facts
from joulie_audit.questions.time_travel import Step, cluster_state_at, steps_of, twin_then
from joulie_audit.replay.fold import rows_of
from joulie_audit.testing import Gone, Past, Since
from joulie_bus.events import PlanMade
from joulie_bus.testing import caps, eco, power
from joulie_projections.state.rows import digests_of
from joulie_projections.testing import tamper
from joulie_projections.twin.twin import NodeClass

pytestmark = pytest.mark.anyio


async def test_the_cluster_state_at_the_end_is_the_one_in_the_database(small: Past) -> None:
    async with small.reading() as (history, facts):
        cluster_state = await cluster_state_at(history, facts, small.maker.position)

        assert digests_of(rows_of(cluster_state)) == history.digests()


@pytest.mark.parametrize(
    ("position", "watts", "node_class"),
    [
        pytest.param(8, 0.0, NodeClass.UNKNOWN, id="before any reading"),
        pytest.param(10, 190.0, NodeClass.UNKNOWN, id="in the middle of a batch"),
        pytest.param(12, 190.0, NodeClass.UNKNOWN, id="before the plan"),
        pytest.param(19, 190.0, NodeClass.PERFORMANCE, id="after it"),
        pytest.param(23, 200.0, NodeClass.PERFORMANCE, id="at the end"),
    ],
)
async def test_a_twin_is_what_was_believed_then(
    small: Past, position: int, watts: float, node_class: NodeClass
) -> None:
    async with small.reading() as (history, facts):
        found = twin_then(await cluster_state_at(history, facts, position), "n2", position, 0)

    assert found is not None
    assert (found.twin.measured_w, found.twin.node_class) == (watts, node_class)


async def test_a_node_that_was_not_known_then_has_no_twin(small: Past) -> None:
    async with small.reading() as (history, facts):
        assert twin_then(await cluster_state_at(history, facts, 1), "n2", 1, 0) is None


async def test_what_plans_did_to_a_node_is_told_with_the_reason(small: Past) -> None:
    async with small.reading() as (history, facts):
        steps = await steps_of(history, facts, "n2")
        none = await steps_of(history, facts, "n2", last=12)

    densest = "performance is wanted; it is among the densest"
    because = "p12: static_partition: 2 of 4 nodes supply performance"
    at = small.maker.clock() - 20_000_000_000
    assert steps == [
        Step(16, at, "caps set: cpu_cap_pct 100", because),
        Step(17, at, "profile assigned: profile performance", f"{densest}; {because}"),
    ]
    assert none == []


async def test_plan_facts_have_the_positions_that_the_projector_gave_them(small: Past) -> None:
    await small.maker.facts(power("n1", 1), eco("n1"), caps("n1", 60))
    async with small.reading() as (history, facts):
        found = [fact async for fact in plan_facts(history, facts)]
        cluster_state = await cluster_state_at(history, facts, found[-1].position)

    assert [fact.position for fact in found] == [*range(13, 20), 24, 25]
    assert isinstance(found[0].event, PlanMade)
    assert cluster_state.nodes["n1"].cpu_cap_pct == 60
    assert (
        cluster_state.nodes["n1"].samples[-1].power_mw == 120_000
    )  # the reading of that batch is later


async def test_a_moment_is_the_newest_position_that_was_committed_by_then(small: Past) -> None:
    now = small.maker.clock()
    async with small.reading() as (history, _):
        assert history.position_by(now) == 23
        assert history.position_by(now - 1) == 19
        assert history.position_by(1) == 0
        assert history.commit_time_range() == (now - 22_000_000_000, now)
        assert history.committed_at(19) == now - 20_000_000_000
        assert history.committed_at(24) is None


# --- from the nearest snapshot ----------------------------------------------------------------

DAMAGES = {
    "a flipped byte": "UPDATE snapshot SET body = zeroblob(9) WHERE position = {at}",
    "another world with a digest of its own": (
        "UPDATE snapshot SET (body, digest) = "
        "(SELECT body, digest FROM snapshot ORDER BY position LIMIT 1) WHERE position = {at}"
    ),
}


async def grown(past: Past, count: int) -> list[int]:
    """So many batches more, each with a snapshot behind it; where these are."""
    kept: list[int] = []
    for number in range(count):
        await past.maker.facts(power("n1", 100 + number), power("n2", 200 - number))
        kept.append(past.maker.snapshot())
    return kept


def told(lines: Sequence[Any]) -> Iterator[tuple[str, int]]:
    return ((line["event"], line["position"]) for line in lines)


async def test_travel_reads_no_fact_before_the_nearest_snapshot(small: Past) -> None:
    _, second, third = await grown(small, 3)
    async with small.reading() as (history, facts):
        between = await cluster_state_at(history, Since(facts, second), third - 1)
        upon = await cluster_state_at(history, Gone(), second)

    assert [between.nodes[name].samples[-1].power_mw for name in ("n1", "n2")] == [102_000, 199_000]
    assert upon.nodes["n1"].samples[-1].power_mw == 101_000


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES)
async def test_a_damaged_snapshot_is_told_and_an_earlier_one_used(small: Past, damage: str) -> None:
    first, second = await grown(small, 2)
    tamper(small.database, damage.format(at=second))
    async with small.reading() as (history, facts):
        with capture_logs() as lines:
            cluster_state = await cluster_state_at(history, Since(facts, first), second)

        assert list(told(lines)) == [("snapshot_damaged", second)]
        assert digests_of(rows_of(cluster_state)) == history.digests()


async def test_without_any_sound_snapshot_travel_starts_at_the_beginning(small: Past) -> None:
    kept = await grown(small, 2)
    tamper(small.database, "UPDATE snapshot SET digest = zeroblob(32)")
    async with small.reading() as (history, facts):
        with capture_logs() as lines:
            cluster_state = await cluster_state_at(history, facts, kept[-1])

        assert list(told(lines)) == [("snapshot_damaged", at) for at in reversed(kept)]
        assert digests_of(rows_of(cluster_state)) == history.digests()
