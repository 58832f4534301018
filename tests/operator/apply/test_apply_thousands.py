"""The applier with 5,000 NodeTwins, over HTTP: every request is counted."""

import contextlib
import time
from collections import Counter
from collections.abc import AsyncGenerator, Callable
from pathlib import Path
from typing import NamedTuple

import pytest

from bus_kit import eco, hardware, node_seen, performance, power, until
from joulie_bus.events import Fact
from joulie_bus.runtime.settings import Source
from joulie_bus.runtime.tasks import background
from joulie_operator.apply.writer import Applier
from joulie_operator.cluster_settings import ApplierSettings
from joulie_operator.facts.facts_from_objects import Node
from joulie_operator.kube.api_client import ApiServer as Api
from joulie_operator.observe.resource_watcher import Watcher, decoder_of
from joulie_operator.observe.watch import NODES, ObservedCluster
from joulie_operator.resources.custom_resources import NODETWINS, read_twin
from joulie_projections.fold.registry import evolve
from joulie_projections.state.state import ClusterState
from joulie_projections.state.state_changes import Draft
from kube_api import ApiServer
from kube_builders import joulie_server
from kube_settled import SELECTOR, settle

pytestmark = [pytest.mark.anyio, pytest.mark.long]
NAMES = [f"n{number:04}" for number in range(5_000)]
CHANGED = NAMES[::50]


class StaticView(NamedTuple):
    """A view that changes when the test changes it."""

    cluster_state: ClusterState

    def change(self, *facts: Fact) -> None:
        draft = Draft(self.cluster_state)
        for fact in facts:
            evolve(draft, fact, time.time_ns())
        draft.commit()


@pytest.fixture(scope="module")
def crowd() -> tuple[ApiServer, StaticView]:
    """5,000 nodes with hardware, planned as eco, with their NodeTwins, labels and statuses."""
    server, view = joulie_server(), StaticView(ClusterState())
    for name in NAMES:
        view.change(node_seen(name), hardware(name), eco(name))
    settle(server, view.cluster_state, time.time_ns())
    return server, view


@contextlib.asynccontextmanager
async def applying(server: ApiServer, view: StaticView, tmp: Path) -> AsyncGenerator[None, None]:
    """A restarted operator: it lists what it wrote before."""
    cluster = ObservedCluster.empty()
    settings = Source.of(APPLY_RATE="10000").load(ApplierSettings)
    server.asked.clear()
    async with server.listening(), Api.of(server.kubeconfig(tmp)) as api:
        applier = Applier(api, view, cluster, SELECTOR, settings)
        async with (
            background(Watcher(api, NODES, decoder_of(Node), cluster.nodes).run(), "nodes"),
            background(Watcher(api, NODETWINS, read_twin, cluster.twins).run(), "twins"),
            background(applier.run(), "apply"),
        ):
            await cluster.twins.complete.wait()
            yield


def requests(server: ApiServer) -> Counter[tuple[str, str]]:
    return Counter((asked.verb, asked.resource) for asked in server.writes())


def wrote(server: ApiServer, verb: str, resource: str, times: int) -> Callable[[], bool]:
    return lambda: server.count(verb, resource) >= times


@pytest.mark.slow
async def test_a_hundred_changed_nodes_cause_a_hundred_patches_of_each_object(
    crowd: tuple[ApiServer, StaticView], tmp_path: Path
) -> None:
    server, view = crowd
    async with applying(server, view, tmp_path):
        view.change(*map(performance, CHANGED))
        await until(wrote(server, "patch", "nodes", len(CHANGED)))
        view.change(performance("n0001"))  # the last change: all others were written before it
        await until(wrote(server, "patch", "nodes", len(CHANGED) + 1))
        await until(wrote(server, "create", "events", len(CHANGED) + 1))

    patched = [asked.name for asked in server.writes() if asked.resource == "nodetwins"]
    assert sorted(patched) == sorted([*CHANGED, "n0001"])
    assert requests(server) == {
        ("patch", "nodetwins"): 101,
        ("patch", "nodetwins/status"): 101,
        ("patch", "nodes"): 101,  # their label
        ("create", "events"): 101,
    }


@pytest.mark.slow
async def test_a_hundred_measured_nodes_cause_a_hundred_patches(
    crowd: tuple[ApiServer, StaticView], tmp_path: Path
) -> None:
    server, view = crowd
    async with applying(server, view, tmp_path):
        view.change(*[power(name, 250.0) for name in CHANGED])
        await until(wrote(server, "patch", "nodetwins/status", len(CHANGED)))
        view.change(power("n0002", 250.0))
        await until(wrote(server, "patch", "nodetwins/status", len(CHANGED) + 1))

    assert requests(server) == {("patch", "nodetwins/status"): 101}


@pytest.mark.slow
async def test_nodes_that_are_up_to_date_are_not_written(
    crowd: tuple[ApiServer, StaticView], tmp_path: Path
) -> None:
    server, view = crowd
    async with applying(server, view, tmp_path):
        view.change(power("n0003", 250.0))
        await until(wrote(server, "patch", "nodetwins/status", 1))

    assert [(asked.resource, asked.name) for asked in server.writes()] == [
        ("nodetwins/status", "n0003")
    ]
