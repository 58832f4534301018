"""Why pods are pending, over a real console."""

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from typing import Any

import httpx2
import pytest

from bus_kit import (
    ask,
    asleep,
    eco,
    hardware,
    node_seen,
    pending,
    performance,
)
from console_kit import ConsoleHarness
from joulie_bus.events import PodPending
from joulie_operator.planning.refused_on_sample import SMALLEST_SAMPLE

pytestmark = pytest.mark.anyio
NewHarness = Callable[..., AbstractAsyncContextManager[ConsoleHarness]]


async def answer_of(harness: ConsoleHarness) -> Any:
    """Once the console shows what the view has."""
    async with httpx2.AsyncClient(base_url=harness.url) as client:
        while True:
            cluster = (await client.get("/v1/cluster")).json()
            reached = (cluster.get("position"), cluster.get("entries"))
            if reached == (harness.view.position, harness.entries):
                break
        answer = await client.get("/v1/pending")
    assert answer.status_code == 200, answer.text
    return answer.json()


async def test_a_refused_pod_has_the_reason_of_its_newest_refusal(new_harness: NewHarness) -> None:
    async with new_harness() as harness:
        await harness.publish(node_seen("n1"), hardware("n1"), eco("n1"))
        await harness.publish(pending("fast", performance=True))
        await harness.filter(ask("fast", performance=True))
        found = await answer_of(harness)

    (item,) = found["items"]
    assert item["cause"] == "refused"
    assert "0 of 1 nodes pass: the node is reserved for saving energy" in item["reason"]
    assert "STATIC_HP_FRAC" in item["advice"]
    assert (item["entry"], item["since_ms"] > 0) == (2, True)
    assert (found["causes"], found["total"], found["unread"]) == ({"refused": 1}, 1, 0)


async def test_each_pod_has_a_cause_of_its_own(new_harness: NewHarness) -> None:
    async with new_harness() as harness:
        await harness.publish(node_seen("n1", cores=8), hardware("n1"), performance("n1"))
        await harness.publish(
            pending("unseen"), pending("scored"), PodPending(pod=ask("huge", cores=64))
        )
        await harness.decide(ask("scored"))
        found = await answer_of(harness)

    causes = {item["pod"]["name"]: item["cause"] for item in found["items"]}
    assert causes == {"scored": "not placed", "unseen": "not asked", "huge": "no room"}


async def test_a_pod_waits_for_nodes_that_sleep(new_harness: NewHarness) -> None:
    async with new_harness() as harness:
        await harness.publish(node_seen("n1"), hardware("n1"), eco("n1"), asleep("n1"))
        await harness.publish(pending("early"))
        (item,) = (await answer_of(harness))["items"]

    assert item["cause"] == "no room"
    assert "1 sleep or wake up" in item["reason"]
    assert "wakes nodes" in item["advice"]


async def test_a_pod_rests_that_only_a_sample_refused(new_harness: NewHarness) -> None:
    saving = [f"n{number:03d}" for number in range(SMALLEST_SAMPLE)]
    async with new_harness() as harness:
        await harness.publish(*map(node_seen, [*saving, "fit"]), performance("fit"))
        await harness.publish(*map(eco, saving), pending("fast", performance=True))
        await harness.filter(ask("fast", performance=True), saving)
        (item,) = (await answer_of(harness))["items"]

    assert item["cause"] == "refused on sample"
    assert f"all {SMALLEST_SAMPLE} nodes of a sample" in item["reason"]


async def test_nothing_is_pending_in_an_empty_cluster(new_harness: NewHarness) -> None:
    async with new_harness() as harness:
        found = await answer_of(harness)

    assert (found["items"], found["total"], found["causes"]) == ([], 0, {})
