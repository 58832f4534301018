"""A real cluster of many nodes without kubelets, and the extenders that kube-scheduler can call."""

import asyncio
import contextlib
import socket
import sys
import tempfile
import time
from collections.abc import AsyncGenerator, Callable
from pathlib import Path
from typing import NamedTuple

from joulie_answers.readers.gauges import gauges_of
from joulie_bus.broker.embedded import address_within
from joulie_bus.jetstream.log import JetStreamLog
from joulie_bus.log.producer import Producer
from joulie_bus.runtime.ports import free_port
from joulie_bus.streams.roles import Role
from joulie_bus.streams.subjects import Subjects
from joulie_bus.testing import power
from joulie_process import joulie
from joulie_projections.component.data_directory import DataDirectory
from kube_builders import schedulable
from kube_conditions import NODES, PODS, profiles
from kube_real import (
    ASSETS,
    SCHEDULER,
    Running,
    Tree,
    all_of,
    program,
    real_server,
    started,
)
from kube_scheduled import deployed_block

CLUSTER = Subjects("local")
PATIENCE_S = 600.0
LOOK_S = 2.0
UNTHROTTLED = {"qps": 5000, "burst": 10000}
# One plan a minute, the default. Readings stay fresh for the whole run.
ENVIRON = {
    "LEASE_DURATION": "15s",
    "RECONCILE_INTERVAL": "1m",
    "TWIN_STALENESS_THRESHOLD": "10h",
    "LOG_LEVEL": "warning",
}
HARDWARE = {"joulie.io/hw.cpu-model": "AMD-EPYC-9654", "joulie.io/hw.cpu-sockets": "2"}
DENSE, SPARSE = 96, 64  # cores: dense nodes are planned for performance first
ALONE, ECHO, BARE, CROWDED, OURS = "none", "echo", "bare", "bare, joulie up", "joulie"
SETTINGS = (ALONE, ECHO, BARE, CROWDED, OURS)


def require_programs() -> None:
    """Raises ProgramMissing."""
    program(SCHEDULER)
    program(ASSETS, "kube-apiserver")


# --- the cluster --------------------------------------------------------------------------------


def node_name(number: int) -> str:
    """The names that the bare extender knows."""
    return f"node-{number:05d}.example.internal"


def a_node(number: int) -> Tree:
    """Every other node has more cores, and is therefore planned for performance. kube-scheduler
    sends 500 nodes with consecutive names; if all of these were eco, the benchmark would measure
    the sample.
    """
    return node_with(number, cores=DENSE if number % 2 else SPARSE)


def node_with(number: int, cores: int) -> Tree:
    made = schedulable(node_name(number), cores=cores)
    made["metadata"]["labels"] |= HARDWARE
    return made


@contextlib.asynccontextmanager
async def cluster_of(
    nodes: int, with_joulie: bool, make: Callable[[int], Tree] = a_node, **environ: str
) -> AsyncGenerator[Running, None]:
    """A server with this many nodes; for Joulie, also with their NodeTwins."""
    assets = program(ASSETS, "kube-apiserver").parent
    with tempfile.TemporaryDirectory() as place:
        async with real_server(Path(place) / "server", assets) as server:
            await all_of(server.api.create(NODES, make(number)) for number in range(nodes))
            if with_joulie:
                await _settled(server, nodes, environ)
            yield server


async def pods_gone(server: Running) -> None:
    await all_of([server.api.delete(f"{PODS}/{name}") for name in await server.all(PODS)])


async def _settled(server: Running, nodes: int, environ: dict[str, str]) -> None:
    """Writes the NodeTwins once, faster than a real cluster should allow."""
    async with _ours(server, nodes, environ | {"APPLY_RATE": "2000"}):
        await _read_all(data_of(server), nodes)
        await at_rest(server, nodes)


async def _read_all(data: Path, nodes: int) -> None:
    """Publishes one reading of each node, because no meter is read here."""
    running = DataDirectory(data).running()
    assert running is not None
    says = Producer("bench", CLUSTER, time.time_ns)
    async with JetStreamLog.open(
        address_within(data, running.nats_url, Role.ADMIN), "bench"
    ) as bus:
        readings = [power(node_name(number), 200 + number % 100) for number in range(nodes)]
        await bus.publish([says.stamp(reading) for reading in readings])


# --- extenders ----------------------------------------------------------------------------------


@contextlib.asynccontextmanager
async def configured(
    setting: str, server: Running, nodes: int, **environ: str
) -> AsyncGenerator[Tree, None]:
    """kube-scheduler's configuration, while the extender of this setting runs."""
    async with contextlib.AsyncExitStack() as stack:
        address = ""
        if setting in (CROWDED, OURS):
            address = await stack.enter_async_context(_ours(server, nodes, environ))
        if setting in (ECHO, BARE, CROWDED):
            kind = ECHO if setting == ECHO else BARE
            address = await stack.enter_async_context(peer(kind, nodes, server.directory))
        config = deployed_block("kube-scheduler.yaml", address)
        config["clientConnection"] = UNTHROTTLED
        config["extenders"][0]["urlPrefix"] += "/energy" if setting == OURS else ""
        if setting in (ECHO, BARE, CROWDED):
            del config["extenders"][0]["preemptVerb"]  # the peers have no such verb
        yield config if address else config | {"extenders": []}


@contextlib.asynccontextmanager
async def peer(kind: str, nodes: int, directory: Path) -> AsyncGenerator[str, None]:
    port = free_port()
    peers = str(Path(__file__).parent / "peers.py")
    async with started([sys.executable, peers, kind, str(port), str(nodes)], directory):
        while True:
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port)):
                break
            await asyncio.sleep(0.1)
        yield f"127.0.0.1:{port}"


@contextlib.asynccontextmanager
async def _ours(server: Running, nodes: int, environ: dict[str, str]) -> AsyncGenerator[str, None]:
    """`joulie up` with a NodeTwin for every node, once all processes are up to date."""
    extender = f"127.0.0.1:{free_port()}"
    settings = ENVIRON | {"EXTENDER_ADDR": extender} | environ
    operator, data = server.kubeconfig("operator"), data_of(server)
    async with joulie("up", operator, data, PATIENCE_S, **settings):
        await at_rest(server, nodes)
        yield extender


def data_of(server: Running) -> Path:
    return server.directory / "data"


async def at_rest(server: Running, nodes: int) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while True:
            before = _looks(server)
            await asyncio.sleep(LOOK_S)
            is_still = before.is_still and before == _looks(server)
            if is_still and len(await profiles(server)) == nodes:
                return


class Looks(NamedTuple):
    positions: list[float]  # of each process
    behind: float  # objects that are still to be written

    @property
    def is_still(self) -> bool:
        return len(set(self.positions)) == 1 and not self.behind


def _looks(server: Running) -> Looks:
    running = DataDirectory(data_of(server)).running()
    gauges = gauges_of(running.metrics) if running else {}
    positions = [each["joulie_position"] for each in gauges.values() if "joulie_position" in each]
    behind = gauges.get("operator", {}).get("joulie_kube_objects_behind", 1)
    return Looks(positions, behind)
