"""Measures prioritize for pods that claim devices of DRA, beside the same pods without claims.

    make bench NAME=claims [ARGS="--preset savings --calls 600"]

The extender is the real one, over HTTP, as in `benchmarks/extender.py`: each call is recorded. The
cluster has 1,000 nodes with eight devices each. Both kinds of pods are asked about in turns, with
500 names each, in blocks of a few calls, so that other work on the machine meets both alike. There
are 20 pods of each kind, so that 19 claiming pods are in flight. Devices are allocated all the
time: the view changes between the calls.
"""

import argparse
import asyncio
import itertools
import random
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from statistics import median

from called_extender import CLUSTER, Caller, args, cpu_s, name_of, ours, pod
from report import Table

from bus_kit import Voices
from joulie_bus.broker.embedded import address_within
from joulie_bus.events import DeviceClaim, DevicesAsked, DeviceSeen
from joulie_bus.jetstream.log import JetStreamLog
from joulie_bus.streams.roles import Role
from joulie_projections.component.data_directory import DataDirectory

HOSTS, PER_HOST, PODS = 1_000, 8, 20
SAMPLE = 500  # nodes that kube-scheduler sends
BLOCK = 20  # calls of one kind, before those of the other
CHANGES_PER_S = 20
WARM = 2  # blocks that are not counted
TEMPLATE = "two"
SMALLEST = {"preset": ["savings"], "calls": 200}
KINDS: tuple[str, ...] = ("plain", "claiming")


def device(node: int, number: int, holder: str = "") -> DeviceSeen:
    claim = DeviceClaim(uid=f"c-{holder}", namespace="team", name=holder, pods=(holder,))
    name = name_of(node)
    return DeviceSeen(
        card=f"GPU-{node}-{number}",
        node=name,
        pool=f"gpu.nvidia.com/{name}",
        model="NVIDIA H100 80GB HBM3",
        total_mb=81_559,
        claims=(claim,) if holder else (),
    )


async def with_devices(data: Path) -> None:
    """Publishes all devices, then allocates and frees some until it is cancelled."""
    running = DataDirectory(data).running()
    assert running is not None
    says = Voices("bench", CLUSTER, time.time_ns)
    address = address_within(data, running.nats_url, Role.ADMIN)
    asked = DevicesAsked(by="template", namespace="team", name=TEMPLATE, gpus=2)
    async with JetStreamLog.open(address, "devices") as bus:
        await bus.publish([says.stamp(asked)])
        for first in range(0, HOSTS, 100):
            hosts = range(first, first + 100)
            facts = [device(node, number) for node in hosts for number in range(PER_HOST)]
            await bus.publish([says.stamp(fact) for fact in facts])
        draw = random.Random(1)
        for number in itertools.count():
            holder = f"run-{number}" if number % 2 else ""
            fact = device(draw.randrange(HOSTS), number % PER_HOST, holder)
            await bus.publish([says.stamp(fact)])
            await asyncio.sleep(1 / CHANGES_PER_S)


def bodies(kind: str) -> Iterator[bytes]:
    """Prioritize with the next 500 nodes of a round, as kube-scheduler has them."""
    claims = [{"name": "gpus", "resourceClaimTemplateName": TEMPLATE}]
    for number in itertools.count():
        asking = pod(number % PODS)
        asking["metadata"]["uid"] += kind
        asking["spec"] |= {"resourceClaims": claims} if kind == "claiming" else {}
        first = number * SAMPLE
        names = [name_of(at % HOSTS) for at in range(first, first + SAMPLE)]
        yield args(asking, None, names)


def measure(port: int, pid: int, blocks: int) -> dict[str, dict[str, float]]:
    caller, asked = Caller(port), {kind: bodies(kind) for kind in KINDS}
    took: dict[str, list[float]] = {kind: [] for kind in KINDS}
    cpu = dict.fromkeys(KINDS, 0.0)
    for block, kind in itertools.product(range(blocks + WARM), KINDS):
        prepared, before = list(itertools.islice(asked[kind], BLOCK)), cpu_s(pid)
        times = [_timed(caller, body) for body in prepared]
        if block >= WARM:
            took[kind] += times
            cpu[kind] += cpu_s(pid) - before
    caller.close()
    return {
        kind: {"p50 ms": 1000 * median(times), "CPU ms": 1000 * cpu[kind] / len(times)}
        for kind, times in took.items()
    }


def _timed(caller: Caller, body: bytes) -> float:
    began = time.perf_counter()
    caller.call("prioritize", body)
    return time.perf_counter() - began


async def compared(preset: str, blocks: int) -> dict[str, dict[str, float]]:
    with tempfile.TemporaryDirectory() as place:
        async with ours(HOSTS, Path(place), PRESET=preset) as (port, pid, data):
            changes = asyncio.create_task(with_devices(data))
            await asyncio.sleep(10)  # until the view has the devices
            found = await asyncio.to_thread(measure, port, pid, blocks)
            changes.cancel()
            return found


def declare(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--preset", nargs="*", default=["savings", "headroom"])
    parser.add_argument("--calls", type=int, default=600, help="of each kind")


def measured(args: argparse.Namespace) -> list[Table]:
    tables = []
    for preset in args.preset:
        rows = asyncio.run(compared(preset, args.calls // BLOCK))
        plain, claiming = (rows[kind] for kind in KINDS)
        rows["ratio"] = {what: claiming[what] / plain[what] for what in plain}
        tables.append(Table(title=preset, rows=rows))
    return tables
