"""The herd that `assumed` is for, with everything real but the cluster: broker, projector, view,
HTTP; the stand-in for kube-scheduler places pods, and their bindings come back as facts."""

import math
from collections import Counter
from collections.abc import AsyncGenerator, Sequence
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest
from sqlalchemy import Engine

from bus_kit import CLUSTER, caps, eco, hardware, power, producer
from go_http import Client
from joulie_bus.events import Fact, PodBound
from joulie_bus.jetstream.log import JetStreamLog
from joulie_bus.runtime.settings import Source
from joulie_bus.runtime.tasks import background
from joulie_extender.service import serving
from joulie_extender.settings import ScoringSettings, ServerSettings
from joulie_projections.decision_log.heads import Signer
from joulie_projections.pods.demand import ask_of
from joulie_projections.pods.kubernetes_pod import Pod
from joulie_projections.projector.projector import Projector, ProjectorSettings
from joulie_projections.store import database
from joulie_projections.view.view import View
from kube_scheduler import Block, KubeScheduler, Node, a_pod, uid_of

pytestmark = pytest.mark.anyio
PATIENCE_S = 120
MORE = 3  # than an even share: samples and ties are not even
UP_TO_CAP = 7  # pods of 42 W beside the 100 W of an idle node, under a cap of 432 W
BEHIND = 2  # bindings that a snapshot may not have yet
SETTINGS = {
    "EXTENDER_ADDR": "127.0.0.1:0",
    "EXTENDER_DEADLINE": "20s",
    "TWIN_STALENESS_THRESHOLD": "1h",
}


class Cluster:
    """Equal nodes that were measured once, when they were idle, and never again."""

    def __init__(self, bus: JetStreamLog, view: View, port: int, count: int) -> None:
        self._bus, self._view = bus, view
        self._says = producer()
        self._told = 0
        self._names = [f"n{number}" for number in range(count)]
        self._port = port
        self.placed: Counter[str] = Counter()

    async def begin(self) -> None:
        for first in range(0, len(self._names), 1000):
            names = self._names[first : first + 1000]
            await self._tell(
                [
                    fact
                    for name in names
                    for fact in (hardware(name), eco(name), caps(name, 60), power(name, 100))
                ]
            )
        await self._view.wait_for(self._told, PATIENCE_S)

    async def place(self, pods: int) -> None:
        nodes = {name: Node(cpu=96) for name in self._names}
        client = Client("127.0.0.1", self._port, "")
        scheduler = KubeScheduler(nodes, [Block(client, preempts=True)])
        for number in range(pods):
            pod = a_pod(f"p{number}", cpu=8)
            attempt = await scheduler.attempt(pod)
            assert attempt.node is not None
            self.placed[attempt.node] += 1
            asked = ask_of(msgspec.convert(pod, Pod))
            assert asked.uid == uid_of(pod)
            await self._tell([PodBound(pod=asked, node=attempt.node)])
            await self._view.wait_for(self._told, PATIENCE_S)
        await client.close()
        assert scheduler.failed_prioritize == []

    async def _tell(self, facts: Sequence[Fact]) -> None:
        await self._bus.publish([self._says.stamp(fact) for fact in facts])
        self._told += len(facts)


@pytest.fixture
async def cluster(
    bus: JetStreamLog,
    writer: Engine,
    database_file: Path,
    tmp_path: Path,
    request: pytest.FixtureRequest,
) -> AsyncGenerator[Cluster, None]:
    count, settings = request.param
    source = Source.of(**(SETTINGS | settings))
    server = replace(source.load(ServerSettings), drain_s=0)
    weights = source.load(ScoringSettings).weights()
    signer, reader = Signer.of(tmp_path / "key"), database.reader(database_file)
    projector = Projector(bus, CLUSTER, writer, signer, ProjectorSettings())
    async with (
        background(projector.run(), "projector"),
        serving(CLUSTER, tmp_path / "spool", server, weights) as service,
        View.open(bus, reader, CLUSTER) as view,
        background(service.work(bus, view), "work"),
    ):
        assert service.http_server is not None
        found = Cluster(bus, view, service.http_server.port, count)
        await found.begin()
        yield found
    reader.dispose()


def share(pods: int, nodes: int) -> int:
    """Of one node: what it gets if all are equal, and a little more."""
    return math.ceil(pods / nodes) + MORE


@pytest.mark.parametrize("cluster", [(200, {})], indirect=True)
async def test_pods_that_come_faster_than_readings_spread_over_equal_nodes(
    cluster: Cluster,
) -> None:
    await cluster.place(150)

    assert max(cluster.placed.values()) <= share(150, 200)
    assert len(cluster.placed) > 120


@pytest.mark.parametrize("cluster", [(6, {"scoring": "energy"})], indirect=True)
async def test_packing_by_energy_fills_an_eco_node_up_to_its_cap_and_then_the_next(
    cluster: Cluster,
) -> None:
    await cluster.place(16)

    fullest = max(cluster.placed.values())
    assert UP_TO_CAP - BEHIND <= fullest <= UP_TO_CAP + BEHIND < 12  # that cores last for


@pytest.mark.drill
@pytest.mark.parametrize("cluster", [(5000, {})], indirect=True)
async def test_1500_pods_on_samples_of_5000_nodes_do_not_herd(cluster: Cluster) -> None:
    await cluster.place(1500)

    assert max(cluster.placed.values()) <= share(1500, 5000)
    assert len(cluster.placed) > 1400
