"""Measures the memory of an extender with a large cluster.

    make bench NAME=memory [ARGS="--nodes 5000 --pods 10 --cards 8"]

A real database holds nodes with 31 readings each, their pods, their cards, and a claim on every
other card. `joulie extender` starts from it, follows readings, and answers. Each row has the
resident memory of the process at that step, and its maximum so far. The first row, without a
cluster, is the interpreter and the modules.
"""

import argparse
import asyncio
import contextlib
import random
import socket
import tempfile
import time
from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import asynccontextmanager, closing
from pathlib import Path
from typing import NamedTuple

import msgspec
from report import Table

import joulie_migrations
from bus_kit import NOON, caps, eco, hardware, node_seen, power, records
from joulie_bus.events import CardClaimed, Fact, GpuAsk, GpuSeen, PodAsk, PodBound
from joulie_bus.jetstream.log import JetStreamLog
from joulie_bus.log.protocol import Log
from joulie_bus.runtime.ports import free_port
from joulie_bus.runtime.settings import HostPort
from joulie_bus.streams.records import Record
from joulie_bus.streams.roles import Role
from joulie_bus.streams.subjects import Stream, Subjects
from joulie_cli.supervisor.supervisor import Supervisor
from joulie_projections.component.data_directory import DataDirectory
from joulie_projections.fold.sequence import FoldCursor, sequence
from joulie_projections.state import deltas
from joulie_projections.state.state import ClusterState
from joulie_projections.store import database
from joulie_projections.store.store import Store

CLUSTER = Subjects("local")
SMALLEST = {"nodes": 20, "pods": 2, "cards": 2, "answers": 20}
CARD = "NVIDIA-H100-80GB-HBM3"
READINGS = 31
PATIENCE_S = 120
PORTION = 100  # nodes in one commit
SAMPLE = 500  # names that kube-scheduler sends in a cluster of 5,000


def name_of(number: int) -> str:
    return f"node-{number:05d}.example.internal"


def cluster(nodes: int, pods: int, cards: int) -> Iterator[list[Record]]:
    for first in range(0, nodes, PORTION):
        facts: list[Fact] = []
        for number in range(first, min(nodes, first + PORTION)):
            name = name_of(number)
            facts += [node_seen(name, gpus=cards), hardware(name, gpus=cards)]
            facts += [eco(name), caps(name, 60, 60)]
            facts += [a_pod(name, at, cards) for at in range(pods)]
            facts += [fact for at in range(cards) for fact in a_card(name, at)]
        yield records(*facts, name=f"watcher-{first}", step_s=0)
    for number in range(READINGS):
        for first in range(0, nodes, PORTION):
            yield readings(range(first, min(nodes, first + PORTION)), number)


def readings(nodes: range, number: int) -> list[Record]:
    drawn = [power(name_of(node), 200 + number % 7 * node % 90) for node in nodes]
    about = f"meter-{nodes.start}-{number}"
    return records(*drawn, name=about, start_s=60 + number * 10, step_s=0)


def a_pod(node: str, at: int, cards: int) -> PodBound:
    uid = f"8f1c0f5e-{node[5:10]}-4000-8000-{at:012d}"
    wants = GpuAsk(model=CARD, vram_mb=40_000) if at < cards else GpuAsk()
    pod = PodAsk(
        uid=uid,
        namespace=f"team-{at}",
        name=f"web-7d9c5b8f6d-{node[5:10]}{at}",
        rule="annotation",
        cpu_milli=2000,
        memory_bytes=2**32,
        gpu_milli=1000 * (at < cards),
        gpu_cards=int(at < cards),
        gpu=wants,
    )
    return PodBound(pod=pod, node=node)


def a_card(node: str, at: int) -> list[Fact]:
    uuid = f"GPU-{node[5:10]}aaa-0000-4000-8000-{at:012d}"
    uid = f"8f1c0f5e-{node[5:10]}-4000-8000-{at:012d}"
    seen = GpuSeen(uuid=uuid, node=node, model=CARD, total_mb=81_559, nvlink_group="nvswitch")
    claim = CardClaimed(
        card=uuid, pod_uid=uid, namespace="team", name=uid, node=node, mb=40_000, expires_s=60
    )
    return [seen, claim] if at % 2 == 0 else [seen]


class Projecting:
    """Commits and publishes like the projector, when the caller says so."""

    def __init__(self, file: Path) -> None:
        engine = database.migrator(file)
        joulie_migrations.upgrade(engine)
        engine.dispose()
        self.engine = database.writer(file)
        self._store, self.cluster_state = Store(self.engine), ClusterState()
        lease = self._store.acquire("bench", 1e9, "inc", lambda _: True)
        assert lease is not None
        self._epoch = lease.epoch
        self._cursor = FoldCursor(0, {}, lease.digests, b"")

    def commit(self, batch: list[Record]) -> bytes:
        """Commits a batch and returns the delta for the view."""
        before = self._cursor.position
        done = sequence(
            self.cluster_state, self._cursor, batch, dict.fromkeys(Stream, "bench"), NOON
        )
        self._store.commit(self._epoch, done.commit)
        done.draft.commit()
        self._cursor = done.cursor
        position, digests = done.cursor.position, done.cursor.digests
        delta = deltas.delta_of(before + 1, position, digests, done.rows, None)
        return deltas.encode_delta(delta, 2**20)


class Process(NamedTuple):
    """The measured extender."""

    pid: int
    port: int

    def mib(self) -> tuple[float, float]:
        """Resident memory now, and its maximum."""
        lines = Path(f"/proc/{self.pid}/status").read_text().splitlines()
        kib = dict(line.split(":") for line in lines)
        return int(kib["VmRSS"].split()[0]) / 1024, int(kib["VmHWM"].split()[0]) / 1024

    def threads(self) -> int:
        return len(list(Path(f"/proc/{self.pid}/task").iterdir()))

    def asked(self, method: str, path: str, body: bytes = b"") -> bytes:
        head = (
            f"{method} {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
            "Content-Type: application/json\r\n"
        )
        with closing(socket.create_connection(("127.0.0.1", self.port))) as client:
            client.sendall(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
            whole = b"".join(iter(lambda: client.recv(1 << 20), b""))
        return whole.partition(b"\r\n\r\n")[2]

    def answers(self, numbers: range, nodes: int, workload: str = "standard") -> None:
        """Makes both calls for each of these pods, each with a sample of its own."""
        draw = random.Random(numbers.start)
        for number in numbers:
            names = [name_of(at) for at in draw.sample(range(nodes), min(SAMPLE, nodes))]
            annotations = {"joulie.io/workload-class": workload}
            metadata = {"name": "p", "namespace": "team", "uid": f"{workload}-{number}"}
            pod = {"metadata": {**metadata, "annotations": annotations}, "spec": {}}
            args = {"Pod": pod, "Nodes": None, "NodeNames": names}
            for verb in ("filter", "prioritize"):
                self.asked("POST", f"/{verb}", msgspec.json.encode(args))


@asynccontextmanager
async def extending(data: DataDirectory) -> AsyncGenerator[tuple[Process, JetStreamLog], None]:
    port = free_port()
    addresses = {
        "extender": HostPort("127.0.0.1", port),
        "metrics": HostPort("127.0.0.1", free_port()),
    }
    extra = {"TWIN_STALENESS_THRESHOLD": "10h", "EXTENDER_DEADLINE": "10s"}
    async with Supervisor.over(data, {"extender": ()}, addresses, extra, CLUSTER) as supervisor:
        address = supervisor.broker.address_of(Role.ADMIN)
        async with JetStreamLog.open(address, "bench") as bus:
            await until(lambda: pid_of(data) != 0)
            process = Process(pid_of(data), port)
            await until(lambda: process.asked("GET", "/healthz") != b"")
            yield process, bus


def pid_of(data: DataDirectory) -> int:
    """0 until the supervisor has started it."""
    running = data.running()
    return running.parts.get("extender", 0) if running else 0


async def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while True:
        with contextlib.suppress(OSError):
            if await asyncio.to_thread(condition):
                return
        if time.monotonic() > deadline:
            raise TimeoutError("the extender did not become ready")
        await asyncio.sleep(0.1)


Sizes = dict[str, tuple[float, float]]


async def sizes_of(folder: Path, args: argparse.Namespace) -> Sizes:
    sizes: Sizes = {}
    async with extending(DataDirectory(folder / "empty")) as (process, _):
        await asyncio.sleep(1)
        sizes["no cluster"] = process.mib()
    full = DataDirectory(folder / "full")
    full.create()
    projecting = Projecting(folder / "full" / "joulie.db")
    for batch in cluster(args.nodes, args.pods, args.cards):
        projecting.commit(batch)
    rows = projecting.cluster_state
    print(f"{len(rows.nodes)} nodes, {len(rows.pods)} pods, {len(rows.gpus)} cards", flush=True)
    async with extending(full) as (process, bus):
        seen = b'"measuredPowerW"'
        await until(lambda: process.asked("GET", "/debug/scoring").count(seen) == args.nodes)
        sizes["booted"] = process.mib()
        await lived(sizes, process, args.answers, projecting, bus)
        print(f"{process.threads()} threads")
    projecting.engine.dispose()
    return sizes


async def lived(
    sizes: Sizes, process: Process, pods: int, projecting: Projecting, bus: Log
) -> None:
    """The load of a day: answers, readings, and pods that are refused while readings arrive."""
    nodes = len(projecting.cluster_state.nodes)
    await asyncio.to_thread(process.answers, range(pods), nodes)
    sizes[f"{pods} pods answered"] = process.mib()
    for number in range(READINGS, 2 * READINGS):
        await follow(projecting, bus, nodes, number)
    sizes["all readings replaced"] = process.mib()
    for number in range(pods):
        await bus.send_live(CLUSTER.delta, projecting.commit(readings(range(1), READINGS + number)))
        await asyncio.to_thread(process.answers, range(number, number + 1), nodes, "performance")
    sizes[f"{pods} pods refused"] = process.mib()
    await asyncio.to_thread(process.answers, range(pods, 11 * pods), nodes)
    sizes[f"{10 * pods} pods more"] = process.mib()


async def follow(projecting: Projecting, bus: Log, nodes: int, number: int) -> None:
    """A round of readings, in batches as a projector commits them."""
    for first in range(0, nodes, PORTION):
        delta = projecting.commit(readings(range(first, min(nodes, first + PORTION)), number))
        await bus.send_live(CLUSTER.delta, delta)


def declare(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--nodes", type=int, default=5000)
    parser.add_argument("--pods", type=int, default=10, help="on each node")
    parser.add_argument("--cards", type=int, default=8, help="in each node")
    parser.add_argument("--answers", type=int, default=300, help="pods of the first step")


def measured(args: argparse.Namespace) -> list[Table]:
    with tempfile.TemporaryDirectory() as folder:
        sizes = asyncio.run(sizes_of(Path(folder), args))
    rows = {step: {"resident MiB": now, "at most MiB": most} for step, (now, most) in sizes.items()}
    return [Table(title="memory of an extender", rows=rows)]
