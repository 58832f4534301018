"""The cluster state at any position of the log."""

from collections.abc import Iterator, Sequence
from typing import Any

import pytest
from structlog.testing import capture_logs

from audit_kit import FactsAfter, NoFacts, RecordedLog
from bus_kit import caps, eco, power
from joulie_audit.archive.fact_source import plan_facts
from joulie_audit.recompute.fold import rows_of
from joulie_bus.events import PlanMade
from joulie_projections.state.rows import digests_of
from projections_kit import tamper
from state_at import cluster_state_at

pytestmark = pytest.mark.anyio


async def test_the_cluster_state_at_the_end_is_the_one_in_the_database(
    small_log: RecordedLog,
) -> None:
    async with small_log.reading() as (history, facts):
        cluster_state = await cluster_state_at(history, facts, small_log.builder.position)

        assert digests_of(rows_of(cluster_state)) == history.digests()


async def test_plan_facts_have_the_positions_of_the_projector(
    small_log: RecordedLog,
) -> None:
    await small_log.builder.facts(power("n1", 1), eco("n1"), caps("n1", 60))
    async with small_log.reading() as (history, facts):
        found = [fact async for fact in plan_facts(history, facts)]
        cluster_state = await cluster_state_at(history, facts, found[-1].position)

    assert [fact.position for fact in found] == [*range(13, 20), 24, 25]
    assert isinstance(found[0].event, PlanMade)
    assert cluster_state.nodes["n1"].cpu_cap_pct == 60
    assert (
        cluster_state.nodes["n1"].samples[-1].power_mw == 120_000
    )  # the reading of that batch is later


async def test_a_time_means_the_newest_position_committed_by_then(
    small_log: RecordedLog,
) -> None:
    now = small_log.builder.clock()
    async with small_log.reading() as (history, _):
        assert history.position_by(now) == 23
        assert history.position_by(now - 1) == 19
        assert history.position_by(1) == 0
        assert history.commit_time_range() == (now - 22_000_000_000, now)
        assert history.committed_at(19) == now - 20_000_000_000
        assert history.committed_at(24) is None


# --- from the nearest snapshot ----------------------------------------------------------------

DAMAGES = {
    "a flipped byte": "UPDATE snapshot SET body = zeroblob(9) WHERE position = {at}",
    "another state with a matching digest": (
        "UPDATE snapshot SET (body, digest) = "
        "(SELECT body, digest FROM snapshot ORDER BY position LIMIT 1) WHERE position = {at}"
    ),
}


async def grown(recorded: RecordedLog, count: int) -> list[int]:
    """Commits `count` more batches with a snapshot after each; returns their positions."""
    kept: list[int] = []
    for number in range(count):
        await recorded.builder.facts(power("n1", 100 + number), power("n2", 200 - number))
        kept.append(recorded.builder.snapshot())
    return kept


def reported(lines: Sequence[Any]) -> Iterator[tuple[str, int]]:
    return ((line["event"], line["position"]) for line in lines)


async def test_time_travel_reads_no_fact_before_the_nearest_snapshot(
    small_log: RecordedLog,
) -> None:
    _, second, third = await grown(small_log, 3)
    async with small_log.reading() as (history, facts):
        between = await cluster_state_at(history, FactsAfter(facts, second), third - 1)
        at_second = await cluster_state_at(history, NoFacts(), second)

    assert [between.nodes[name].samples[-1].power_mw for name in ("n1", "n2")] == [102_000, 199_000]
    assert at_second.nodes["n1"].samples[-1].power_mw == 101_000


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES)
async def test_a_damaged_snapshot_is_logged_and_an_earlier_one_is_used(
    small_log: RecordedLog, damage: str
) -> None:
    first, second = await grown(small_log, 2)
    tamper(small_log.database, damage.format(at=second))
    async with small_log.reading() as (history, facts):
        with capture_logs() as lines:
            cluster_state = await cluster_state_at(history, FactsAfter(facts, first), second)

        assert list(reported(lines)) == [("snapshot_damaged", second)]
        assert digests_of(rows_of(cluster_state)) == history.digests()


async def test_without_an_intact_snapshot_folding_starts_at_the_first_position(
    small_log: RecordedLog,
) -> None:
    kept = await grown(small_log, 2)
    tamper(small_log.database, "UPDATE snapshot SET digest = zeroblob(32)")
    async with small_log.reading() as (history, facts):
        with capture_logs() as lines:
            cluster_state = await cluster_state_at(history, facts, kept[-1])

        assert list(reported(lines)) == [("snapshot_damaged", at) for at in reversed(kept)]
        assert digests_of(rows_of(cluster_state)) == history.digests()
