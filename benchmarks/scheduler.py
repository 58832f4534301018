"""Measures how many pods a second a real kube-scheduler places, with different extenders.

    make kube && .venv/bin/python benchmarks/scheduler.py [--nodes 5000] [--pods 1200] [--rounds 3]

etcd, kube-apiserver and kube-scheduler are real; the nodes have no kubelets. kube-scheduler runs
with each of these in turn, several times:

    none               no extender
    echo               an extender that only echoes (`kit/peers.py`)
    bare               a bare extender in Python (`kit/peers.py`)
    bare, joulie up    the bare one while `joulie up` runs beside it, which shows the cost of
                       sharing the cores
    joulie             `joulie up`, with the block of deploy/kube-scheduler.yaml

The pods exist before kube-scheduler starts, so that only kube-scheduler limits the rate. A cycle is
the time in which kube-scheduler chooses the node of one pod, including the extender's answers.
`--apart` gives kube-scheduler and the extender a core of their own, as in a cluster. On two cores
all other processes then share the other core, and Joulie's views are late. Pods a second depend on
the machine; the ratios are comparable between machines with as many cores.
"""

import argparse
import asyncio
import contextlib
import os
import socket
import ssl
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import AsyncGenerator, Awaitable, Iterable, Iterator
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple
from urllib.request import urlopen

sys.path.insert(0, str(Path(__file__).parents[1] / "tests/kit"))  # starts the real ones

from joulie_bus.broker.embedded import address_within, free_port
from joulie_bus.jetstream.log import JetStreamLog
from joulie_bus.streams.producer import Producer
from joulie_bus.streams.roles import Role
from joulie_bus.streams.subjects import Subjects
from joulie_bus.testing import power
from joulie_cli.supervisor.data_directory import DataDirectory
from joulie_cli.supervisor.gauges import gauges_of
from joulie_operator.kube.api_client import Event
from joulie_process import joulie
from kube_builders import pod, schedulable
from kube_real import ASSETS, SCHEDULER, ProgramMissing, Running, program, real_server, started
from kube_scheduled import deployed_block, scheduling
from kube_seen import NODES, PODS, profiles

CLUSTER = Subjects("local")
WARM = 200  # pods that are not counted
AT_ONCE = 32  # requests of this program
PATIENCE_S = 600.0
LOOK_S = 2.0
UNTHROTTLED = {"qps": 5000, "burst": 10000}
CYCLE = "scheduler_scheduling_algorithm_duration_seconds"
# One plan a minute, the default. Readings stay fresh for the whole run.
ENVIRON = {
    "LEASE_DURATION": "15s",
    "RECONCILE_INTERVAL": "1m",
    "TWIN_STALENESS_THRESHOLD": "10h",
    "LOG_LEVEL": "warning",
}
HARDWARE = {"joulie.io/hw.cpu-model": "AMD-EPYC-9654", "joulie.io/hw.cpu-sockets": "2"}
TICKS = os.sysconf("SC_CLK_TCK")
ALONE, ECHO, BARE, CROWDED, OURS = "none", "echo", "bare", "bare, joulie up", "joulie"
SETTINGS = (ALONE, ECHO, BARE, CROWDED, OURS)


class Placed(NamedTuple):
    per_s: float
    cycle_ms: float
    cores: dict[str, float]  # used by each program during the measurement


# --- nodes and pods -----------------------------------------------------------------------------


def node_name(number: int) -> str:
    """The names that the bare extender knows."""
    return f"node-{number:05d}.example.internal"


def a_node(number: int) -> dict[str, Any]:
    """Every other node has more cores, and is therefore planned for performance. kube-scheduler
    sends 500 nodes with consecutive names; if all of these were eco, the benchmark would measure
    the sample.
    """
    made = schedulable(node_name(number), cores=96 if number % 2 else 64)
    made["metadata"]["labels"] |= HARDWARE
    return made


def a_pod(number: int) -> dict[str, Any]:
    """One in four is class performance. Without a grace period, a pod is deleted at once."""
    made = pod(f"web-{number}", workload="" if number % 4 else "performance", namespace="default")
    resources = {"requests": {"cpu": "500m", "memory": "1Mi"}}
    made["spec"]["containers"] = [{"name": "c", "image": "none", "resources": resources}]
    made["spec"]["terminationGracePeriodSeconds"] = 0
    return made


async def all_of(calls: Iterable[Awaitable[object]]) -> None:
    """Runs the calls, AT_ONCE at a time."""
    waiting = iter(calls)

    async def some() -> None:
        for call in waiting:
            await call

    async with asyncio.TaskGroup() as tasks:
        for _ in range(AT_ONCE):
            tasks.create_task(some())


async def pods_made(server: Running, count: int) -> None:
    await all_of(server.api.create(PODS, a_pod(number)) for number in range(count))


async def pods_gone(server: Running) -> None:
    await all_of([server.api.delete(f"{PODS}/{name}") for name in await server.all(PODS)])


# --- extenders ----------------------------------------------------------------------------------


@contextlib.asynccontextmanager
async def peer(kind: str, nodes: int, directory: Path) -> AsyncGenerator[str, None]:
    port = free_port()
    peers = str(Path(__file__).parent / "kit/peers.py")
    async with started([sys.executable, peers, kind, str(port), str(nodes)], directory):
        while True:
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port)):
                break
            await asyncio.sleep(0.1)
        yield f"127.0.0.1:{port}"


@contextlib.asynccontextmanager
async def ours(server: Running, nodes: int, **environ: str) -> AsyncGenerator[str, None]:
    """`joulie up` with a NodeTwin for every node, once all processes are up to date."""
    extender = f"127.0.0.1:{free_port()}"
    settings = ENVIRON | {"EXTENDER_ADDR": extender} | environ
    operator, data = server.kubeconfig("operator"), data_of(server)
    async with joulie("up", operator, data, PATIENCE_S, **settings):
        await at_rest(server, nodes)
        yield extender


def data_of(server: Running) -> Path:
    return server.directory / "data"


async def settled(server: Running, nodes: int) -> None:
    """Writes the NodeTwins once, faster than a real cluster should allow."""
    async with ours(server, nodes, APPLY_RATE="2000"):
        await read_all(data_of(server), nodes)
        await at_rest(server, nodes)


async def at_rest(server: Running, nodes: int) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while True:
            before = looks(server)
            await asyncio.sleep(LOOK_S)
            is_still = before.is_still and before == looks(server)
            if is_still and len(await profiles(server)) == nodes:
                return


class Looks(NamedTuple):
    positions: list[float]  # of each process
    behind: float  # objects that are still to be written

    @property
    def is_still(self) -> bool:
        return len(set(self.positions)) == 1 and not self.behind


def looks(server: Running) -> Looks:
    running = DataDirectory(data_of(server)).running()
    gauges = gauges_of(running.metrics) if running else {}
    positions = [each["joulie_position"] for each in gauges.values() if "joulie_position" in each]
    behind = gauges.get("operator", {}).get("joulie_kube_objects_behind", 1)
    return Looks(positions, behind)


async def read_all(data: Path, nodes: int) -> None:
    """Publishes one reading of each node, because no meter is read here."""
    running = DataDirectory(data).running()
    assert running is not None
    says = Producer("bench", CLUSTER, time.time_ns)
    async with JetStreamLog.open(
        address_within(data, running.nats_url, Role.ADMIN), "bench"
    ) as bus:
        readings = [power(node_name(number), 200 + number % 100) for number in range(nodes)]
        await bus.publish([says.stamp(reading) for reading in readings])


@contextlib.asynccontextmanager
async def asked(setting: str, server: Running, nodes: int) -> AsyncGenerator[dict[str, Any], None]:
    """kube-scheduler's configuration, while the extender of this setting runs."""
    async with contextlib.AsyncExitStack() as stack:
        address = ""
        if setting in (CROWDED, OURS):
            address = await stack.enter_async_context(ours(server, nodes))
        if setting in (ECHO, BARE, CROWDED):
            kind = ECHO if setting == ECHO else BARE
            address = await stack.enter_async_context(peer(kind, nodes, server.directory))
        config = deployed_block("kube-scheduler.yaml", address)
        config["clientConnection"] = UNTHROTTLED
        config["extenders"][0]["urlPrefix"] += "/energy" if setting == OURS else ""
        yield config if address else config | {"extenders": []}


# --- rates --------------------------------------------------------------------------------------


async def placing(server: Running, config: dict[str, Any], pods: int, apart: bool) -> Placed:
    """The rate from the last pod of the warm-up to the last of all, by when pods are seen bound."""
    port = free_port()
    bound = server.api.watch(PODS, "", {"fieldSelector": "spec.nodeName!="})
    async with asyncio.timeout(PATIENCE_S), contextlib.aclosing(bound):
        await anext(bound)
        async with scheduling(server, config, port):
            warm = await seen(bound, 1)
            if apart:
                keep_apart()
            warm += await seen(bound, WARM - warm)
            began, used = time.perf_counter(), cpu_s()
            rest = await seen(bound, pods - warm)
            took, then = time.perf_counter() - began, cpu_s()
            cycle = await cycle_ms(port)
    cores = {name: (then[name] - used[name]) / took for name in then}
    return Placed(rest / took, cycle, cores)


async def seen(bound: AsyncGenerator[list[Event], None], wanted: int) -> int:
    """Waits for `wanted` pods and returns the count, which can be a few more."""
    count = 0
    while count < wanted:
        count += sum(event.type == "ADDED" for event in await anext(bound))
    return count


async def cycle_ms(port: int) -> float:
    """From kube-scheduler's metrics, since its start. Its certificate is self-signed."""
    unverified = ssl.create_default_context()
    unverified.check_hostname, unverified.verify_mode = False, ssl.CERT_NONE
    page = await asyncio.to_thread(urlopen, f"https://127.0.0.1:{port}/metrics", context=unverified)
    with page:
        text = page.read().decode()
    sums = dict(line.rsplit(" ", 1) for line in text.splitlines() if line.startswith(CYCLE))
    return float(sums[f"{CYCLE}_sum"]) / float(sums[f"{CYCLE}_count"]) * 1000


# --- use of the cores ---------------------------------------------------------------------------


class Process(NamedTuple):
    pid: int
    parent: int
    name: str
    cpu_s: float


def keep_apart() -> None:
    """Pins kube-scheduler and the extender to one core, and all others to the other cores."""
    its, *others = sorted(os.sched_getaffinity(0))
    for process in ours_among(processes()):
        if process.pid == os.getpid():
            continue  # a process that is started later may run anywhere
        cores = [its] if process.name in ("kube-scheduler", ECHO, BARE, "extender") else others
        for thread in Path(f"/proc/{process.pid}/task").iterdir():
            with contextlib.suppress(ProcessLookupError):
                os.sched_setaffinity(int(thread.name), cores)


def cpu_s() -> dict[str, float]:
    """The CPU time of each program of this benchmark so far, and of all others together."""
    used = defaultdict[str, float](float)
    for process in ours_among(processes()):
        used[process.name] += process.cpu_s
    busy = Path("/proc/stat").read_text().split(maxsplit=8)[1:8]  # of all cores together
    del busy[3:5]  # idle, waiting for a disk
    used["others"] = sum(map(int, busy)) / TICKS - sum(used.values())
    return used


def ours_among(found: Iterable[Process]) -> Iterator[Process]:
    """This process and its descendants."""
    family = {os.getpid()}
    for process in found:
        if {process.pid, process.parent} & family:
            family.add(process.pid)
            yield process


def processes() -> Iterator[Process]:
    """Parents before their children, as long as no process id is reused."""
    for pid in sorted(int(each.name) for each in Path("/proc").glob("[0-9]*")):
        with contextlib.suppress(OSError):
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
            words = Path(f"/proc/{pid}/cmdline").read_text().split("\0")
            used = (int(fields[11]) + int(fields[12])) / TICKS
            yield Process(pid, int(fields[1]), name_of(words), used)


def name_of(words: list[str]) -> str:
    """The name of a process of Joulie, or of a program."""
    for at, word in enumerate(words):
        if word == "joulie_cli.main" or word.endswith("peers.py"):
            return words[at + 1]
    return Path(words[0]).name


# --- the run ------------------------------------------------------------------------------------


class Wanted(NamedTuple):
    nodes: int
    pods: int
    rounds: int
    settings: list[str]
    apart: bool


async def compare(wanted: Wanted) -> None:
    found: dict[str, list[Placed]] = {setting: [] for setting in wanted.settings}
    assets, nodes = program(ASSETS, "kube-apiserver").parent, wanted.nodes
    with tempfile.TemporaryDirectory() as place:
        async with real_server(Path(place) / "server", assets) as server:
            await all_of(server.api.create(NODES, a_node(number)) for number in range(nodes))
            if {CROWDED, OURS} & {*wanted.settings}:
                await settled(server, nodes)
            for _ in range(wanted.rounds):
                for setting in wanted.settings:
                    found[setting].append(await one_round(server, setting, wanted))
                    show(setting, found[setting][-1])
    summary(found)


async def one_round(server: Running, setting: str, wanted: Wanted) -> Placed:
    pods = wanted.pods + WARM
    async with asked(setting, server, wanted.nodes) as config:
        await pods_made(server, pods)
        placed = await placing(server, config, pods, wanted.apart)
        await pods_gone(server)
    return placed


def show(setting: str, placed: Placed) -> None:
    """Prints cores by program, the busiest first, without idle ones."""
    busy = sorted(placed.cores.items(), key=lambda each: -each[1])
    cores = ", ".join(f"{name} {share:.2f}" for name, share in busy if share >= 0.01)
    print(f"{setting:<16}{figures(placed.per_s, placed.cycle_ms)}   cores: {cores}", flush=True)


def summary(found: dict[str, list[Placed]]) -> None:
    """Prints medians, and their ratios to the bare extender: more than 1 is faster."""
    print()
    rate = {name: median(each.per_s for each in placed) for name, placed in found.items()}
    cycle = {name: median(each.cycle_ms for each in placed) for name, placed in found.items()}
    for name in found:
        line = f"{name:<16}{figures(rate[name], cycle[name])}"
        if BARE in found:
            line += (
                f"   of bare: {rate[name] / rate[BARE]:.2f}, cycle {cycle[BARE] / cycle[name]:.2f}"
            )
        print(line)


def figures(per_s: float, cycle_ms: float) -> str:
    return f"{per_s:>7.0f} pods/s{cycle_ms:>8.2f} ms a cycle"


def main() -> None:
    options = argparse.ArgumentParser()
    options.add_argument("--nodes", type=int, default=5000)
    options.add_argument("--pods", type=int, default=1200)
    options.add_argument("--rounds", type=int, default=3)
    options.add_argument("--ask", nargs="*", choices=SETTINGS, default=list(SETTINGS))
    options.add_argument(
        "--apart", action="store_true", help="a core for kube-scheduler and extender"
    )
    args = options.parse_args()
    try:
        program(SCHEDULER)
        program(ASSETS, "kube-apiserver")
    except ProgramMissing as missing:
        print(f"not measured: {missing}")
        return
    asyncio.run(compare(Wanted(args.nodes, args.pods, args.rounds, args.ask, args.apart)))


if __name__ == "__main__":
    main()
