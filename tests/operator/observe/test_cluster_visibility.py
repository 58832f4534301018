"""What cannot be seen is not planned upon: eyes by a clock of our own, outages as a whole loop."""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import Counter, Gauge

from joulie_bus import testing
from joulie_bus.jetstream.log import JetStreamLog
from joulie_bus.runtime import metrics
from joulie_bus.runtime.settings import Source
from joulie_bus.runtime.tasks import background
from joulie_bus.streams.subjects import Stream
from joulie_bus.testing import CLUSTER
from joulie_operator.apply import writer
from joulie_operator.apply.writer import Applier
from joulie_operator.cluster_settings import ApplierSettings
from joulie_operator.kube.api_client import ApiServer as Api
from joulie_operator.observe import resource_watcher
from joulie_operator.observe.cluster_visibility import ClusterVisibility, Eyes
from joulie_operator.observe.watch import Cluster, watch_cluster
from joulie_operator.service import Operator
from joulie_operator.settings import OperatorSettings
from joulie_projections.view.view import View
from kube_api import ApiServer, Trouble
from kube_builders import joulie_server, node, pod
from kube_requests import Asked

pytestmark = pytest.mark.anyio
PATIENCE_S = 30
PLANS_WITHOUT_SIGHT_S = 2.0
SELECTOR = {"joulie.io/managed": "true"}


class Hand:
    """A clock that only we move."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


def open_eyes(clock: Hand) -> Eyes:
    eyes = Eyes(clock)
    for eye in (eyes.nodes, eyes.pods):
        eye.listed.set()
        eye.open()
    eyes.is_folded = True
    return eyes


async def test_open_eyes_see() -> None:
    assert open_eyes(Hand()).sight(30) == ClusterVisibility()


async def test_nothing_is_known_before_nodes_and_pods_were_listed() -> None:
    eyes = Eyes(Hand())
    unread = eyes.sight(30)
    eyes.nodes.listed.set()

    assert unread.blind == "the API server has not yet shown its nodes and pods"
    assert eyes.sight(30).blind == "the API server has not yet shown its pods"


async def test_what_was_listed_counts_once_the_view_holds_it() -> None:
    eyes = open_eyes(Hand())
    eyes.is_folded = False

    assert eyes.sight(30).blind == "the view does not yet hold what the API server has shown"


@pytest.mark.parametrize(
    ("closed_s", "expected"),
    [
        (0, ClusterVisibility(pods_known=False)),
        (30, ClusterVisibility(pods_known=False)),
        (
            31,
            ClusterVisibility(
                "the API server has shown no nodes and pods for 30 s", pods_known=False
            ),
        ),
    ],
)
async def test_a_watch_that_breaks_is_waited_for_and_no_longer(
    closed_s: float, expected: ClusterVisibility
) -> None:
    clock = Hand()
    eyes = open_eyes(clock)
    eyes.nodes.close()
    eyes.pods.close()
    clock.now_s = closed_s

    assert eyes.sight(30) == expected


async def test_an_outage_begins_with_its_first_failure() -> None:
    clock = Hand()
    eyes = open_eyes(clock)
    eyes.nodes.close()
    clock.now_s = 20
    eyes.nodes.close()
    clock.now_s = 40

    assert eyes.sight(30).blind == "the API server has shown no nodes for 30 s"


async def test_a_watch_that_was_opened_again_sees() -> None:
    clock = Hand()
    eyes = open_eyes(clock)
    eyes.nodes.close()
    clock.now_s = 99
    eyes.nodes.open()

    assert eyes.sight(30) == ClusterVisibility()


# --- the whole loop ---------------------------------------------------------------------------


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> ApiServer:
    """Four managed nodes; the operator's patience is short, its pauses at most a tenth of that."""
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
) -> AsyncGenerator[Eyes, None]:
    """Watches, plans and applies."""
    cluster = Cluster.unseen()
    values = {"RECONCILE_INTERVAL": "200ms", "APPLY_RATE": "1000"}
    settings = Source.of(**values | more)

    def sight() -> ClusterVisibility:
        return cluster.eyes.sight(PLANS_WITHOUT_SIGHT_S)

    planning = replace(settings.load(OperatorSettings), caps_settle_s=0)
    operator = Operator(bus, CLUSTER, view, planning, sight)
    async with (
        Api.of(server.kubeconfig(tmp)) as api,
        background(watch_cluster(api, bus, CLUSTER, view, cluster), "watch"),
        background(
            Applier(api, view, cluster, SELECTOR, settings.load(ApplierSettings)).run(), "apply"
        ),
        background(operator.run(), "operator"),
    ):
        yield cluster.eyes


async def until(condition: Callable[[], bool]) -> None:
    await testing.until(condition, PATIENCE_S)


def counted(metric: Gauge | Counter, **labels: str) -> float:
    samples = [sample for found in metric.collect() for sample in found.samples]
    return sum(sample.value for sample in samples if labels.items() <= sample.labels.items())


def is_stopped() -> bool:
    return counted(metrics.PLANS_STOPPED, reason="cluster") == 1


def profiles(server: ApiServer) -> list[str]:
    found = (twin["spec"].get("profile", "") for twin in server.all("nodetwins").values())
    return sorted(found)


async def until_failed(times: int) -> None:
    """The watchers have knocked so often again."""

    def failures() -> float:
        return counted(metrics.WATCH_FAILURES, kind="nodes")

    wanted = failures() + times
    await until(lambda: failures() >= wanted)


async def plans(bus: JetStreamLog) -> int:
    return (await bus.state(Stream.PLAN)).last


async def test_an_outage_stops_plans_leaves_twins_and_ends_without_a_storm(
    server: ApiServer, bus: JetStreamLog, view: View, tmp_path: Path
) -> None:
    async with operating(server, bus, view, tmp_path):
        async with server.listening():
            await until(lambda: profiles(server) == ["eco", "eco", "performance", "performance"])
        await until(is_stopped)
        before, asked, twins = await plans(bus), len(server.asked), server.all("nodetwins")
        for number in range(4, 8):
            server.put("nodes", node(f"n{number}"))
        await until_failed(10)  # long enough for several plans
        assert (await plans(bus), server.all("nodetwins")) == (before, twins)
        async with server.listening():
            await until(lambda: profiles(server) == 4 * ["eco"] + 4 * ["performance"])
            assert not is_stopped()

    again = server.asked[asked:]
    whole = sum(each.verb == "list" or each.initial for each in again)
    assert whole <= 6  # one for each kind, at most
    written = [each.name for each in again if each.resource == "nodetwins"]
    assert sum(name in ("n0", "n1", "n2", "n3") for name in written) <= 4


async def test_nothing_is_planned_before_the_pods_are_known(
    server: ApiServer, bus: JetStreamLog, view: View, tmp_path: Path
) -> None:
    def lists_pods(asked: Asked) -> bool:
        return asked.resource == "pods" and (asked.initial or asked.verb == "list")

    server.put("pods", pod("p1", node="n0", workload="performance"), "team")
    server.troubles.append(Trouble(lists_pods, 503, "ServiceUnavailable", times=1_000_000))
    async with server.listening(), operating(server, bus, view, tmp_path):
        await until(lambda: len(view.cluster_state.nodes) == 4 and is_stopped())
        assert await plans(bus) == 0
        server.troubles.clear()
        await until(lambda: len(profiles(server)) == 4)

    assert view.cluster_state.nodes["n0"].performance_pods == 1
    assert not is_stopped()


def draining(server: ApiServer, name: str) -> bool:
    """Shall save, with the caps that it had."""
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
async def test_a_performance_pod_on_a_node_planned_eco_keeps_its_caps_away_until_it_is_gone(
    server: ApiServer, bus: JetStreamLog, view: View, tmp_path: Path, change: dict[str, Any]
) -> None:
    server.put("pods", pod("p1", node="n0", workload="performance"), "team")
    server.put("pods", _named(change), "team")
    async with server.listening(), operating(server, bus, view, tmp_path, STATIC_HP_FRAC="0"):
        await until(lambda: draining(server, "n0") and len(profiles(server)) == 4)
        before = await plans(bus)
        await until(lambda: capped(server) == ["n1", "n2", "n3"])
        while await plans(bus) < before + 5:  # whatever is thought of it meanwhile
            await asyncio.sleep(0.05)
        assert draining(server, "n0")
        assert capped(server) == ["n1", "n2", "n3"]
        server.delete("pods", "p1", "team")
        await until(lambda: capped(server) == ["n0", "n1", "n2", "n3"])


def _named(change: dict[str, Any]) -> dict[str, Any]:
    return {**change, "metadata": {"name": "p1", **change.get("metadata", {})}}


def capped(server: ApiServer) -> list[str]:
    """The nodes that have eco's caps."""
    twins = server.all("nodetwins").items()
    eco = {"packagePowerCapPctOfMax": 60}
    return [name for name, twin in twins if twin["spec"].get("cpu") == eco]
