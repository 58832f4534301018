"""Plans require working watches: their status with a manual clock, and outages end to end."""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import Counter, Gauge

import bus_kit
from bus_kit import CLUSTER
from joulie_bus.jetstream.log import JetStreamLog
from joulie_bus.runtime import metrics
from joulie_bus.runtime.settings import Source
from joulie_bus.runtime.tasks import background
from joulie_bus.streams.subjects import Stream
from joulie_operator.apply import writer
from joulie_operator.apply.writer import Applier
from joulie_operator.cluster_settings import ApplierSettings
from joulie_operator.kube.api_client import ApiServer as Api
from joulie_operator.observe import resource_watcher
from joulie_operator.observe.cluster_visibility import ClusterVisibility, WatchStatuses
from joulie_operator.observe.watch import ObservedCluster, watch_cluster
from joulie_operator.service import Operator
from joulie_operator.settings import OperatorSettings
from joulie_projections.view.view import View
from kube_api import ApiServer, Fault
from kube_builders import joulie_server, node, pod
from kube_requests import Asked

pytestmark = pytest.mark.anyio
PATIENCE_S = 120
PLANS_WITHOUT_SIGHT_S = 2.0
SELECTOR = {"joulie.io/managed": "true"}


class ManualClock:
    """A clock that the test sets."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


def open_watches(clock: ManualClock) -> WatchStatuses:
    watches = WatchStatuses(clock)
    for watch_status in (watches.nodes, watches.pods):
        watch_status.listed.set()
        watch_status.open()
    watches.is_view_current = True
    return watches


async def test_open_watches_have_no_problem() -> None:
    assert open_watches(ManualClock()).visibility(30) == ClusterVisibility()


async def test_nodes_and_pods_must_have_been_listed() -> None:
    watches = WatchStatuses(ManualClock())
    unread = watches.visibility(30)
    watches.nodes.listed.set()

    assert unread.problem == "nodes and pods have not been listed yet"
    assert watches.visibility(30).problem == "pods have not been listed yet"


async def test_the_view_must_contain_the_listed_objects() -> None:
    watches = open_watches(ManualClock())
    watches.is_view_current = False

    assert watches.visibility(30).problem == "the view does not contain the listed objects yet"


@pytest.mark.parametrize(
    ("closed_s", "expected"),
    [
        (0, ClusterVisibility(pods_known=False)),
        (30, ClusterVisibility(pods_known=False)),
        (
            31,
            ClusterVisibility(
                "the watch of nodes and pods has been broken for 30 s", pods_known=False
            ),
        ),
    ],
)
async def test_a_short_interruption_of_a_watch_is_tolerated(
    closed_s: float, expected: ClusterVisibility
) -> None:
    clock = ManualClock()
    watches = open_watches(clock)
    watches.nodes.close()
    watches.pods.close()
    clock.now_s = closed_s

    assert watches.visibility(30) == expected


async def test_an_outage_starts_with_its_first_failure() -> None:
    clock = ManualClock()
    watches = open_watches(clock)
    watches.nodes.close()
    clock.now_s = 20
    watches.nodes.close()
    clock.now_s = 40

    assert watches.visibility(30).problem == "the watch of nodes has been broken for 30 s"


async def test_a_watch_that_was_opened_again_has_no_problem() -> None:
    clock = ManualClock()
    watches = open_watches(clock)
    watches.nodes.close()
    clock.now_s = 99
    watches.nodes.open()

    assert watches.visibility(30) == ClusterVisibility()


# --- end to end -------------------------------------------------------------------------------


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> ApiServer:
    """Four managed nodes; the operator tolerates short outages only, and retries quickly."""
    monkeypatch.setattr(resource_watcher, "FIRST_PAUSE_S", 0.05)
    monkeypatch.setattr(resource_watcher, "LONGEST_PAUSE_S", 0.2)
    monkeypatch.setattr(writer, "FIRST_PAUSE_S", 0.05)
    monkeypatch.setattr(writer, "LONGEST_PAUSE_S", 0.2)
    made = joulie_server()
    for number in range(4):
        made.put("nodes", node(f"n{number}"))
    return made


@contextlib.asynccontextmanager
async def operating(
    server: ApiServer, bus: JetStreamLog, view: View, tmp: Path, **more: str
) -> AsyncGenerator[WatchStatuses, None]:
    """Watches, plans and applies."""
    cluster = ObservedCluster.empty()
    values = {"RECONCILE_INTERVAL": "200ms", "APPLY_RATE": "1000"}
    settings = Source.of(**values | more)

    def visibility() -> ClusterVisibility:
        return cluster.watches.visibility(PLANS_WITHOUT_SIGHT_S)

    planning = replace(settings.load(OperatorSettings), caps_settle_s=0)
    operator = Operator(bus, CLUSTER, view, planning, visibility)
    async with (
        Api.of(server.kubeconfig(tmp)) as api,
        background(watch_cluster(api, bus, CLUSTER, view, cluster), "watch"),
        background(
            Applier(api, view, cluster, SELECTOR, settings.load(ApplierSettings)).run(), "apply"
        ),
        background(operator.run(), "operator"),
    ):
        yield cluster.watches


async def until(condition: Callable[[], bool]) -> None:
    await bus_kit.until(condition, PATIENCE_S)


def counted(metric: Gauge | Counter, **labels: str) -> float:
    samples = [sample for found in metric.collect() for sample in found.samples]
    return sum(sample.value for sample in samples if labels.items() <= sample.labels.items())


def is_stopped() -> bool:
    return counted(metrics.PLANS_STOPPED, reason="cluster") == 1


def profiles(server: ApiServer) -> list[str]:
    found = (twin["spec"].get("profile", "") for twin in server.all("nodetwins").values())
    return sorted(found)


async def until_failed(times: int) -> None:
    """Waits for this number of further failures of the watchers."""

    def failures() -> float:
        return counted(metrics.WATCH_FAILURES, kind="nodes")

    wanted = failures() + times
    await until(lambda: failures() >= wanted)


async def plans(bus: JetStreamLog) -> int:
    return (await bus.state(Stream.PLAN)).last


async def test_an_outage_stops_plans_leaves_twins_and_ends_without_a_burst_of_requests(
    server: ApiServer, bus: JetStreamLog, view: View, tmp_path: Path
) -> None:
    async with operating(server, bus, view, tmp_path):
        async with server.listening():
            await until(lambda: profiles(server) == ["eco", "eco", "performance", "performance"])
        await until(is_stopped)
        await until_failed(5)  # a plan that was under way has been published
        before, asked, twins = await plans(bus), len(server.asked), server.all("nodetwins")
        for number in range(4, 8):
            server.put("nodes", node(f"n{number}"))
        await until_failed(10)  # long enough for several plans
        assert (await plans(bus), server.all("nodetwins")) == (before, twins)
        async with server.listening():
            await until(lambda: profiles(server) == 4 * ["eco"] + 4 * ["performance"])
            await until(lambda: not is_stopped())  # said once the broker has confirmed the plan

    again = server.asked[asked:]
    whole = sum(each.verb == "list" or each.initial for each in again)
    assert whole <= 6  # at most one per kind
    written = [each.name for each in again if each.resource == "nodetwins"]
    assert sum(name in ("n0", "n1", "n2", "n3") for name in written) <= 4


async def test_nothing_is_planned_before_the_pods_are_known(
    server: ApiServer, bus: JetStreamLog, view: View, tmp_path: Path
) -> None:
    def lists_pods(asked: Asked) -> bool:
        return asked.resource == "pods" and (asked.initial or asked.verb == "list")

    server.put("pods", pod("p1", node="n0", workload="performance"), "team")
    server.faults.append(Fault(lists_pods, 503, "ServiceUnavailable", times=1_000_000))
    async with server.listening(), operating(server, bus, view, tmp_path):
        await until(lambda: len(view.cluster_state.nodes) == 4 and is_stopped())
        assert await plans(bus) == 0
        server.faults.clear()
        await until(lambda: len(profiles(server)) == 4)

    assert view.cluster_state.nodes["n0"].performance_pods == 1
    assert not is_stopped()


def draining(server: ApiServer, name: str) -> bool:
    """Whether the node is planned as eco and still has its old caps."""
    spec: dict[str, Any] = server.all("nodetwins").get(name, {"spec": {}})["spec"]
    return bool(spec.get("profile") == "eco" and spec.get("scheduling") == {"draining": True})


@pytest.mark.parametrize(
    "change",
    [
        {"status": {"phase": "Pending"}},
        {"status": {"phase": "Running"}},
        {"status": {"phase": "Unknown"}},
        {"metadata": {"deletionTimestamp": "2026-11-21T10:00:00Z"}},
    ],
    ids=["pending", "running", "unknown", "terminating"],
)
async def test_eco_caps_wait_until_the_last_performance_pod_of_the_node_is_gone(
    server: ApiServer, bus: JetStreamLog, view: View, tmp_path: Path, change: dict[str, Any]
) -> None:
    server.put("pods", pod("p1", node="n0", workload="performance"), "team")
    server.put("pods", _named(change), "team")
    async with server.listening(), operating(server, bus, view, tmp_path, STATIC_HP_FRAC="0"):
        await until(lambda: draining(server, "n0") and len(profiles(server)) == 4)
        before = await plans(bus)
        await until(lambda: capped(server) == ["n1", "n2", "n3"])
        while await plans(bus) < before + 5:  # through several plans
            await asyncio.sleep(0.05)
        assert draining(server, "n0")
        assert capped(server) == ["n1", "n2", "n3"]
        server.delete("pods", "p1", "team")
        await until(lambda: capped(server) == ["n0", "n1", "n2", "n3"])


def _named(change: dict[str, Any]) -> dict[str, Any]:
    return {**change, "metadata": {"name": "p1", **change.get("metadata", {})}}


def capped(server: ApiServer) -> list[str]:
    """The nodes with eco caps."""
    twins = server.all("nodetwins").items()
    eco = {"packagePowerCapPctOfMax": 60}
    return [name for name, twin in twins if twin["spec"].get("cpu") == eco]
