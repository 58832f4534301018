"""A real cluster of many nodes without kubelets, and the extenders that kube-scheduler can call."""

import asyncio
import contextlib
import socket
import sys
import tempfile
from collections.abc import AsyncGenerator, Callable, Mapping
from pathlib import Path
from typing import NamedTuple

from readings import node_name

from joulie_answers.readers.gauges import gauges_of
from joulie_bus.runtime.ports import free_port
from joulie_bus.runtime.presets import HEADROOM, PRESET, SAVINGS
from joulie_bus.streams.subjects import Subjects
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
HERE = Path(__file__).parent
PATIENCE_S = 600.0
LOOK_S = 2.0
CALM_LOOKS, CALM_SHARE = 5, 0.006  # of the nodes, whose statuses are written at rest in a look
UNTHROTTLED = {"qps": 5000, "burst": 10000}
# One plan a minute, the default. Readings stay fresh for the whole run.
ENVIRON = {
    "LEASE_DURATION": "60s",  # a busy machine is no reason to lose it
    "RECONCILE_INTERVAL": "1m",
    "TWIN_STALENESS_THRESHOLD": "10h",
    "LOG_LEVEL": "warning",
}
# Writes of NodeTwins when a preset is changed, faster than a real cluster should allow.
AT_ONCE = {"APPLY_RATE": "2000"}
HARDWARE = {"joulie.io/hw.cpu-model": "AMD-EPYC-9654", "joulie.io/hw.cpu-sockets": "2"}
CARDS = {"joulie.io/hw.gpu-model": "NVIDIA-H100-80GB-HBM3", "joulie.io/hw.gpu-count": "8"}
WITH_CARDS, PER_NODE = 10, 8  # one node in so many has cards
DENSE, SPARSE = 96, 64  # cores: dense nodes are planned for performance first
ALONE, ECHO, BARE = "none", "echo", "bare"
CROWDED, PAGED = "bare, joulie up", "savings, page open"
PRESETS = {SAVINGS: SAVINGS, HEADROOM: HEADROOM, CROWDED: SAVINGS, PAGED: SAVINGS}
SETTINGS = (ALONE, ECHO, BARE, CROWDED, SAVINGS, HEADROOM, PAGED)


def require_programs() -> None:
    """Raises ProgramMissing."""
    program(SCHEDULER)
    program(ASSETS, "kube-apiserver")


# --- the cluster --------------------------------------------------------------------------------


def a_node(number: int) -> Tree:
    """Every other node has more cores, and is therefore planned for performance. kube-scheduler
    sends 500 nodes with consecutive names; if all of these were eco, the benchmark would measure
    the sample. A tenth of the nodes has cards.
    """
    has_cards = number % WITH_CARDS == 0
    made = node_with(number, DENSE if number % 2 else SPARSE, gpus=PER_NODE if has_cards else 0)
    made["metadata"]["labels"] |= CARDS if has_cards else {}
    return made


def node_with(number: int, cores: int, gpus: int = 0) -> Tree:
    made = schedulable(node_name(number), cores=cores, gpus=gpus)
    made["metadata"]["labels"] |= HARDWARE
    return made


@contextlib.asynccontextmanager
async def cluster_of(
    nodes: int, make: Callable[[int], Tree] = a_node
) -> AsyncGenerator[Running, None]:
    """A server with this many nodes."""
    assets = program(ASSETS, "kube-apiserver").parent
    with tempfile.TemporaryDirectory() as place:
        async with real_server(Path(place) / "server", assets) as server:
            await all_of(server.api.create(NODES, make(number)) for number in range(nodes))
            yield server


async def settled(server: Running, nodes: int, **environ: str) -> None:
    """Writes all NodeTwins once."""
    async with up(server, nodes, environ):
        pass


async def pods_gone(server: Running) -> None:
    await all_of([server.api.delete(f"{PODS}/{name}") for name in await server.all(PODS)])


# --- what runs beside it ------------------------------------------------------------------------


def kubelets(server: Running) -> contextlib.AbstractAsyncContextManager[object]:
    """Each bound pod is updated as by its kubelet."""
    words = [sys.executable, str(HERE / "kubelets.py"), str(server.kubeconfig("admin"))]
    return started(words, server.directory)


def readings(
    server: Running, nodes: int, per_second: int
) -> contextlib.AbstractAsyncContextManager[object]:
    words = [sys.executable, str(HERE / "readings.py"), str(data_of(server)), str(nodes)]
    return started([*words, str(per_second)], server.directory)


# --- extenders ----------------------------------------------------------------------------------


@contextlib.asynccontextmanager
async def configured(
    setting: str, server: Running, nodes: int, **environ: str
) -> AsyncGenerator[Tree, None]:
    """kube-scheduler's configuration, while the extender of this setting runs."""
    async with contextlib.AsyncExitStack() as stack:
        address = ""
        if setting in PRESETS:
            settings = AT_ONCE | {PRESET: PRESETS[setting]} | environ
            address = await stack.enter_async_context(up(server, nodes, settings))
        if setting in (ECHO, BARE, CROWDED):
            kind = ECHO if setting == ECHO else BARE
            address = await stack.enter_async_context(peer(kind, nodes, server.directory))
        yield _configuration(setting, address)


def _configuration(setting: str, address: str) -> Tree:
    config = deployed_block("kube-scheduler.yaml", address)
    config["clientConnection"] = UNTHROTTLED
    if not address:
        return config | {"extenders": []}
    if setting in (ECHO, BARE, CROWDED):
        del config["extenders"][0]["preemptVerb"]  # the peers have no such verb
    else:
        config["extenders"][0]["urlPrefix"] += "/energy"
    return config


@contextlib.asynccontextmanager
async def peer(kind: str, nodes: int, directory: Path) -> AsyncGenerator[str, None]:
    port = free_port()
    words = [sys.executable, str(HERE / "peers.py"), kind, str(port), str(nodes)]
    async with started(words, directory):
        while True:
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port)):
                break
            await asyncio.sleep(0.1)
        yield f"127.0.0.1:{port}"


@contextlib.asynccontextmanager
async def up(server: Running, nodes: int, environ: Mapping[str, str]) -> AsyncGenerator[str, None]:
    """`joulie up` with a NodeTwin for every node, once all processes are up to date."""
    extender = f"127.0.0.1:{free_port()}"
    settings = ENVIRON | {"EXTENDER_ADDR": extender} | dict(environ)
    operator, data = server.kubeconfig("operator"), data_of(server)
    async with joulie("up", operator, data, PATIENCE_S, **settings):
        await at_rest(server, nodes)
        yield extender


def data_of(server: Running) -> Path:
    return server.directory / "data"


def components_of(server: Running) -> dict[str, int]:
    """The processes of `joulie up` by their names, as its supervisor lists them."""
    running = DataDirectory(data_of(server)).running()
    assert running is not None
    return running.parts


def console_of(server: Running) -> str:
    running = DataDirectory(data_of(server)).running()
    assert running is not None
    return running.endpoints["console"]


async def at_rest(server: Running, nodes: int) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while True:
            before = _looks(server)
            await asyncio.sleep(LOOK_S)
            is_still = before.is_still and before == _looks(server)
            if is_still and len(await profiles(server)) == nodes:
                return


async def absorbed(server: Running, nodes: int, per_second: int) -> None:
    """Until the first readings of all nodes are in the statuses of their NodeTwins: what is
    measured before belongs to the start."""
    await asyncio.sleep(nodes / per_second)
    calm, written = 0, _looks(server).written
    async with asyncio.timeout(PATIENCE_S):
        while calm < CALM_LOOKS:
            await asyncio.sleep(LOOK_S)
            before, written = written, _looks(server).written
            calm = calm + 1 if written - before <= max(5, CALM_SHARE * nodes) else 0


class Looks(NamedTuple):
    positions: list[float]  # of each process
    behind: float  # objects that are still to be written
    written: float  # requests of the operator so far

    @property
    def is_still(self) -> bool:
        return len(set(self.positions)) == 1 and not self.behind


def _looks(server: Running) -> Looks:
    running = DataDirectory(data_of(server)).running()
    gauges = gauges_of(running.metrics) if running else {}
    positions = [each["joulie_position"] for each in gauges.values() if "joulie_position" in each]
    operator = gauges.get("operator", {})
    behind = operator.get("joulie_kube_objects_behind", 1)
    return Looks(positions, behind, operator.get("joulie_kube_writes_total", 0))
