"""Measures what one agent costs: processor time, memory and messages, and an outage of the broker.

    make bench NAME=agent [ARGS="--seconds 120 --cards 8 --pods 30"]

`joulie agent` reads a node in files: two packages with their memory, whose counters advance, the
groups of pods, and cards of NVIDIA by a library that answers from a recording. There NVML's energy
counter costs nothing; a real card takes 4 ms of a core for it, each ten seconds. First the power is
steady, then the packages change by 100 W each second. At the end the broker is away for a while;
nothing may be lost.
"""

import argparse
import asyncio
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

from durable_brokers import lazy_broker
from report import Table

import host_trees
import nvml_recordings
from bus_kit import CLUSTER
from joulie_bus.events import TelemetrySampled, codec
from joulie_bus.jetstream.connection import Address
from joulie_bus.jetstream.log import JetStreamLog
from joulie_bus.runtime.tasks import background
from joulie_bus.streams.subjects import Stream

WARM_S, AFTER_S = 15, 12
SMALLEST = {"seconds": 20, "cards": 2, "pods": 5, "outage": 15}
LATE, LATEST = "of these late", "the latest by s"


class Usage(NamedTuple):
    cpu_s: float
    rss_mib: float


class Node:
    """A node in files."""

    def __init__(self, root: Path, pods: int) -> None:
        self.root = host_trees.xeon(root)
        self._pods = pods
        self.watts = 200
        self.step = 0
        self._seconds = 0.0

    async def run(self) -> None:
        before = time.monotonic()
        while True:
            now = time.monotonic()
            self.advance(now - before)
            before = now
            await asyncio.sleep(0.1)

    def advance(self, passed_s: float) -> None:
        self._seconds += passed_s
        watts = self.watts + self.step * (int(self._seconds) % 2)
        files: dict[str, str | int] = {}
        for socket in (0, 1):
            zone = f"sys/class/powercap/intel-rapl:{socket}"
            for file, share in (
                (f"{zone}/energy_uj", 1.0),
                (f"{zone}/intel-rapl:{socket}:0/energy_uj", 0.1),
            ):
                known = int((self.root / file).read_text())
                files[file] = known + round(watts * share * passed_s * 1e6)
        ticks = round(self._seconds * 100)
        files["proc/stat"] = f"cpu {ticks} 0 0 {ticks} 0 0 0 0 0 0"
        for pod in range(self._pods):
            uid = f"{pod:08x}_1111_4222_8333_0123456789ab"
            files[f"sys/fs/cgroup/kubepods.slice/kubepods-pod{uid}.slice/cpu.stat"] = (
                f"usage_usec {round(self._seconds * 1e4 * (pod + 1))}"
            )
        for name, content in files.items():
            path = self.root / name
            path.parent.mkdir(parents=True, exist_ok=True)
            fresh = path.with_name(path.name + ".new")
            fresh.write_text(f"{content}\n")
            fresh.replace(path)


def usage_of(pid: int) -> Usage:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    ticks = int(fields[11]) + int(fields[12])
    resident = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    page = os.sysconf("SC_PAGE_SIZE")
    return Usage(ticks / os.sysconf("SC_CLK_TCK"), resident * page / 2**20)


async def readings(log: JetStreamLog) -> list[TelemetrySampled]:
    newest = (await log.state(Stream.TEL)).last
    found = [await log.message(Stream.TEL, number) for number in range(1, newest + 1)]
    events = [codec.decoded(record.data, "the benchmark") for record in found if record]
    return [event for event in events if isinstance(event, TelemetrySampled)]


async def usage(log: JetStreamLog, pid: int, seconds: float) -> dict[str, float]:
    first, before, began = usage_of(pid), (await log.state(Stream.TEL)).last, time.monotonic()
    await asyncio.sleep(seconds)
    passed_s = time.monotonic() - began
    last, after = usage_of(pid), (await log.state(Stream.TEL)).last
    return {
        "% of a core": (last.cpu_s - first.cpu_s) / passed_s * 100,
        "MiB": last.rss_mib,
        "messages per second": (after - before) / passed_s,
    }


async def outage(seconds: float) -> None:
    """Stops the broker without ending it: requests wait, and its streams stay as they are."""
    broker = broker_of(os.getpid())
    os.kill(broker, signal.SIGSTOP)
    try:
        await asyncio.sleep(seconds)
    finally:
        os.kill(broker, signal.SIGCONT)
    await asyncio.sleep(AFTER_S)


def broker_of(parent: int) -> int:
    children = Path(f"/proc/{parent}/task/{parent}/children").read_text().split()
    return next(int(pid) for pid in children if "nats" in Path(f"/proc/{pid}/comm").read_text())


async def of_node(options: argparse.Namespace, directory: Path) -> list[Table]:
    node = Node(directory / "host", options.pods)
    (directory / "nvml").mkdir()
    library = nvml_recordings.library(directory / "nvml")
    recording = nvml_recordings.recording(directory / "nvml")
    node.advance(0.1)
    async with lazy_broker(directory / "broker") as address, background(node.run(), "node"):
        agent = subprocess.Popen(
            [
                *(sys.executable, "-m", "joulie_cli.main", "agent"),
                *("--host-root", str(node.root), "--kept", str(directory / "kept")),
            ],
            env={
                **os.environ,
                **{"NODE_NAME": "n1", "NATS_URL": address.url, "JOULIE_CLUSTER": CLUSTER.cluster},
                **{"LD_LIBRARY_PATH": str(library.parent), "NVML_RECORDING": str(recording)},
                **{"NVML_CARDS": str(options.cards), "JOULIE_DATA": str(directory / "data")},
            },
        )
        try:
            return await follow(options, node, agent.pid, address)
        finally:
            agent.terminate()
            agent.wait()


async def follow(
    options: argparse.Namespace, node: Node, pid: int, address: Address
) -> list[Table]:
    async with JetStreamLog.open(address, "benchmark") as log:
        await asyncio.sleep(WARM_S)
        rows = {"steady power": await usage(log, pid, options.seconds)}
        node.step = 100
        rows["changing power"] = await usage(log, pid, options.seconds)
        before = len(await readings(log))
        await outage(options.outage)
        found = await readings(log)
    later = found[before:]
    away = {
        "readings": float(len(later)),
        LATE: float(sum(bool(each.late_ms) for each in later)),
        LATEST: max((each.late_ms for each in later), default=0) / 1000,
        "counters of energy": float(len({each.counted_from for each in found})),
        "cards in a reading": float(max(len(each.card_mw) for each in found)),
    }
    title = f"{options.outage:g} s without the broker"
    return [Table(title="cost", rows=rows), Table.of(title, away)]


def declare(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--seconds", type=float, default=120)
    parser.add_argument("--cards", type=int, default=8)
    parser.add_argument("--pods", type=int, default=30)
    parser.add_argument("--outage", type=float, default=40)


def measured(args: argparse.Namespace) -> list[Table]:
    with tempfile.TemporaryDirectory() as folder:
        return asyncio.run(of_node(args, Path(folder)))
