"""Nodes come and go at the API server, and every page names those of the time of the decision."""

import asyncio
import contextlib
import os
import random
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path

import httpx2
import pytest
from msgspec.structs import replace

from audit_kit import about_node
from bus_kit import CLUSTER, ask, until
from console_kit import WEIGHTS, ConsoleHarness
from joulie_audit.questions.explain import EXAMPLES, explain_pod
from joulie_bus.runtime.tasks import background
from joulie_extender.decide.decide import DecisionContext, decide_filter
from joulie_extender.rules.eco import ECO
from joulie_operator.facts.hardware_inventory import Inventory
from joulie_operator.kube.api_client import ApiServer as Api
from joulie_operator.observe.watch import ObservedCluster, watch_cluster
from joulie_projections.catalog_file import shipped_catalog
from joulie_projections.history.history import EntryQuery, History
from kube_builders import joulie_server, node

pytestmark = pytest.mark.anyio
NewHarness = Callable[..., AbstractAsyncContextManager[ConsoleHarness]]
CHANGES_PER_S = 10
MINUTES = float(os.environ.get("NAMES_MINUTES", "10"))
POSITIONS = 1_000


class ChangingCluster:
    """The nodes of an API server: the oldest one goes, and a new one comes."""

    def __init__(self, count: int) -> None:
        self.server = joulie_server()
        self.names = [f"spot-{number}" for number in range(count)]
        self._made = count
        self._chance = random.Random(41)
        for name in self.names:
            self.server.put("nodes", node(name))

    def change(self) -> None:
        gone = self.names.pop(self._chance.randrange(len(self.names)))
        self.server.delete("nodes", gone)
        # Some names come again, in another row.
        name = gone if self._chance.random() < 0.1 else f"spot-{self._made}"
        self._made += 1
        self.names.append(name)
        self.server.put("nodes", node(name))


@contextlib.asynccontextmanager
async def watched(
    cluster: ChangingCluster, harness: ConsoleHarness, directory: Path
) -> AsyncGenerator[None, None]:
    observed, inventory = ObservedCluster.empty(), Inventory(shipped_catalog())
    async with (
        cluster.server.listening(),
        Api.of(cluster.server.kubeconfig(directory)) as api,
        background(
            watch_cluster(api, harness.bus, CLUSTER, harness.view, observed, inventory), "watch"
        ),
    ):
        await until(lambda: present(harness) == set(cluster.names), 60)
        yield


def present(harness: ConsoleHarness) -> set[str]:
    return {name for name, held in harness.view.cluster_state.nodes.items() if held.present}


async def refuse_all(harness: ConsoleHarness, names: list[str], number: int) -> None:
    """A filter decision over the nodes of the API server, by the view of this moment."""
    seen = harness.view.snapshot()
    moment = DecisionContext(seen.twin_columns, seen.position, seen.age_ms, time.time_ns())
    filtered = decide_filter(ask(f"p{number}"), names, moment, WEIGHTS)
    refused = replace(filtered, verdicts=bytes([ECO]) * len(names), reason="eco")
    await harness.publish_decisions(refused)


async def change_and_decide(
    cluster: ChangingCluster, harness: ConsoleHarness, seconds: float, positions: int
) -> list[list[str]]:
    """The nodes that the API server had at each decision."""
    truth, begun = list[list[str]](), time.monotonic()
    pause = seconds / positions
    while len(truth) < positions:
        due = (time.monotonic() - begun) * CHANGES_PER_S - (cluster._made - len(cluster.names))
        for _ in range(round(due)):
            cluster.change()
        truth.append(list(cluster.names))
        await refuse_all(harness, truth[-1], len(truth))
        await asyncio.sleep(max(0.0, begun + len(truth) * pause - time.monotonic()))
    return truth


async def require_true_names(
    harness: ConsoleHarness, database: Path, truth: list[list[str]]
) -> None:
    async with httpx2.AsyncClient(base_url=harness.url, timeout=60) as browser:
        for entry, names in enumerate(truth, 1):
            found = (await browser.get(f"/v1/decisions/{entry}")).json()
            assert sorted(each["node"] for each in found["candidates"]) == sorted(names), entry
    with History.of(database) as history:
        for number, names in enumerate(truth, 1):
            [rejection] = explain_pod(history, f"team/p{number}").rejections
            assert (rejection.refused, rejection.nodes) == (len(names), names[:EXAMPLES])
        node_name = truth[len(truth) // 2][-1]
        is_about = about_node(history, node_name)
        listed = {entry.pos for entry in history.find(EntryQuery()) if is_about(entry)}
    assert listed == {at for at, names in enumerate(truth, 1) if node_name in names}


async def drill(
    new_harness: NewHarness, tmp_path: Path, nodes: int, seconds: float, positions: int
) -> None:
    cluster = ChangingCluster(nodes)
    async with new_harness() as harness, watched(cluster, harness, tmp_path):
        truth = await change_and_decide(cluster, harness, seconds, positions)
        await require_true_names(harness, tmp_path / "joulie.db", truth)

        await until(lambda: present(harness) == set(cluster.names), 60)
        await until(lambda: len(harness.view.cluster_state.nodes) == nodes, 60)
        async with httpx2.AsyncClient(base_url=harness.url) as browser:
            shown = (await browser.get("/v1/map")).json()
        assert set(shown["name"]) == set(cluster.names)
        assert len({tuple(names) for names in truth}) > positions / 2  # they did change


@pytest.mark.long
async def test_pages_and_explanations_name_the_nodes_of_their_time(
    new_harness: NewHarness, tmp_path: Path
) -> None:
    await drill(new_harness, tmp_path, nodes=40, seconds=6, positions=40)


@pytest.mark.drill
async def test_names_are_right_while_nodes_come_and_go_for_ten_minutes(
    new_harness: NewHarness, tmp_path: Path
) -> None:
    await drill(new_harness, tmp_path, nodes=500, seconds=60 * MINUTES, positions=POSITIONS)
