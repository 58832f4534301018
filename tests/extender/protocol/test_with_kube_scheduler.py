"""The extender under a simulated kube-scheduler, as a cluster observes it."""

import json
from typing import Any

import pytest

from extender_kit import PATIENT, QUICK, performing, saving, served, snapshot_of
from joulie_projections.view.view import ViewSnapshot
from kube_scheduler import KubeScheduler, Node, Victim, a_pod

pytestmark = pytest.mark.anyio
COUNT = 300
LARGE = QUICK._replace(body=10_000_000)
ALL_ECO = snapshot_of(*(saving(f"n{at}", at) for at in range(COUNT)))
HALF = snapshot_of(
    *(performing(f"n{at}", at) if at % 2 else saving(f"n{at}", at) for at in range(COUNT))
)
FAST = a_pod("fast", workload="performance")


def machines(count: int, **more: Any) -> dict[str, Node]:
    return {f"n{number}": Node(**more) for number in range(count)}


def full_of_others(count: int) -> dict[str, Node]:
    return {f"n{n}": Node(cpu=4, pods=[Victim(f"v{n}", cpu=4)]) for n in range(count)}


def eco() -> ViewSnapshot:
    return ALL_ECO


def half() -> ViewSnapshot:
    return HALF


@pytest.mark.parametrize("by_names", [True, False], ids=["names", "full"])
@pytest.mark.parametrize("count", [4, 99, COUNT])
async def test_a_pod_that_is_refused_everywhere_is_filtered_twice_and_rests(
    count: int, by_names: bool
) -> None:
    async with served(eco, limits=LARGE) as extender:
        block = extender.block(node_cache_capable=by_names)
        made = await KubeScheduler(machines(count), [block]).settle(FAST)

    assert (len(made), block.calls["filter"]) == (2, 2)
    assert made[0].message == made[1].message


async def test_a_pod_that_is_refused_in_every_sample_gets_the_same_text() -> None:
    async with served(eco, limits=LARGE) as extender:
        scheduler = KubeScheduler(machines(COUNT), [extender.block()])
        texts = {(await scheduler.attempt(FAST)).message for _ in range(4)}

    assert len(texts) == 1


async def test_a_refused_pod_of_high_priority_evicts_no_pod() -> None:
    urgent = a_pod("urgent", cpu=4, priority=1000, workload="performance")
    async with served(eco) as extender:
        block = extender.block()
        scheduler = KubeScheduler(full_of_others(40), [block])
        made = await scheduler.settle(urgent)

    assert (scheduler.evicted, made[-1].node) == ([], None)
    assert block.calls == {"preempt": 2}


async def test_a_pod_of_high_priority_is_made_room_for_where_it_may_run() -> None:
    urgent = a_pod("urgent", cpu=4, priority=1000, workload="performance")
    async with served(half) as extender:
        scheduler = KubeScheduler(full_of_others(40), [extender.block()])
        made = await scheduler.settle(urgent)

    placed = made[-1].node
    assert placed is not None
    assert int(placed[1:]) % 2 == 1
    assert scheduler.evicted == [f"v{placed[1:]}"]


async def test_whole_victims_are_answered_by_their_uids() -> None:
    urgent = a_pod("urgent", cpu=4, priority=1000)
    async with served(half) as extender:
        scheduler = KubeScheduler(full_of_others(4), [extender.block(node_cache_capable=False)])
        made = await scheduler.settle(urgent)

    assert made[-1].node is not None
    assert len(scheduler.evicted) == 1


@pytest.mark.parametrize("by_names", [True, False], ids=["names", "full"])
async def test_pods_are_placed_where_they_may_run_and_every_score_counts(by_names: bool) -> None:
    async with served(half, limits=LARGE) as extender:
        block = extender.block(node_cache_capable=by_names)
        scheduler = KubeScheduler(machines(20), [block])
        made = await scheduler.attempt(FAST)

    assert made.node is not None
    assert int(made.node[1:]) % 2 == 1
    assert (scheduler.failed_prioritize, min(made.totals.values()) > 0) == ([], True)


@pytest.mark.parametrize("workload", ["standard", "performance"])
async def test_a_refused_nominated_node_is_answered_like_any(workload: str) -> None:
    async with served(half) as extender:
        block = extender.block()
        scheduler = KubeScheduler(machines(4), [block])
        scheduler.nominated["p"] = "n0"
        made = await scheduler.attempt(a_pod("p", workload=workload))

    calls = 1 if workload == "standard" else 2
    assert (made.node is None, block.calls["filter"]) == (False, calls)


async def test_one_connection_serves_filter_and_prioritize() -> None:
    async with served(half) as extender:
        block = extender.block()
        scheduler = KubeScheduler(machines(10), [block])
        for number in range(5):
            await scheduler.attempt(a_pod(f"p{number}"))

    assert block.client.dialled == 1


async def test_not_ready_and_closed_is_an_error_that_rests() -> None:
    fallback_policy = PATIENT._replace(fails="closed")
    async with served(half, is_ready=lambda: False, fallback_policy=fallback_policy) as extender:
        block = extender.block()
        made = await KubeScheduler(machines(4), [block]).settle(FAST)

    assert [(attempt.is_error, "%" in attempt.message) for attempt in made] == [(True, False)]
    assert block.calls == {"filter": 1}


async def test_a_replica_that_is_not_ready_and_fails_open_passes_every_node() -> None:
    empty = snapshot_of(position=0, age_ms=10**12)
    async with served(lambda: empty, is_ready=lambda: False) as extender:
        made = await KubeScheduler(machines(4), [extender.block()]).attempt(FAST)

    assert (made.node is None, set(made.totals.values())) == (False, {500})


async def test_what_is_logged_of_a_refused_pod_is_why_each_node_was_refused() -> None:
    async with served(half) as extender:
        await KubeScheduler(machines(4), [extender.block()]).attempt(FAST)
        page = json.loads(extender.extender.explain("fast") or b"{}")

    assert page["answers"][0]["refused"] == {"n0": "eco", "n2": "eco"}
