"""Measures durable commits, the delay from publish to view, and the start of a new view.

    .venv/bin/python benchmarks/projector.py [--events 60000]

Each database runs once with the projector's batches and once with one transaction per event, in
the same run, with the time of an fsync on the same disk for comparison. The load is readings of
1,000 nodes, with an agent on each. Agents, broker, projector and PostgreSQL are separate processes
and share the cores: ratios and the CPU time of an event are more reliable than its rate. Agents do
not wait for one another, so readings arrive as evenly as a timer allows. The broker syncs rarely:
one that syncs each message accepts fewer than 5,000 messages a second here, and its queue would
dominate the result (benchmarks/bus.py measures it).
"""

import argparse
import asyncio
import contextlib
import json
import multiprocessing
import os
import statistics
import tempfile
import time
from collections.abc import Generator
from itertools import pairwise
from multiprocessing.connection import Connection as PipeEnd
from pathlib import Path
from typing import NamedTuple

import joulie_migrations
from joulie_bus.events import AnyEvent
from joulie_bus.jetstream.connection import Address
from joulie_bus.jetstream.log import JetStreamLog
from joulie_bus.log.producer import Producer
from joulie_bus.runtime import logging
from joulie_bus.runtime.tasks import background
from joulie_bus.streams.records import Message
from joulie_bus.streams.subjects import agent_name
from joulie_bus.testing import CLUSTER, hardware, lazy_broker, node_seen, power
from joulie_projections.decision_log.heads import Signer
from joulie_projections.projector.projector import Projector, ProjectorSettings
from joulie_projections.store import database
from joulie_projections.store.database import Place
from joulie_projections.testing import Postgres, PostgresMissing
from joulie_projections.view.view import View

NODES = 1000
LARGE = 5000
APART = multiprocessing.get_context("spawn")
RATE = 5000  # events a second while freshness is measured
TICK_S = 0.001
SYNCS = 200
# On two idle cores. A rate is a minimum, milliseconds are a maximum.
DURABLE_PER_S = {"SQLite": 40_000, "PostgreSQL": 20_000}
BUDGETS = {
    "publish to view, p50 ms": 5,
    "publish to view, p99 ms": 15,
    "cold view of 5,000 nodes, ms": 1000,
}


class Fresh(NamedTuple):
    p50_ms: float
    p99_ms: float


def messages(count: int, boot: str) -> list[Message]:
    """One producer per node, like agents."""
    says = [Producer(agent_name(f"node-{n}"), CLUSTER, time.time_ns, boot) for n in range(NODES)]
    return [says[k % NODES].stamp(power(f"node-{k % NODES}", 300 + k % 50)) for k in range(count)]


def fsync_ms(folder: Path) -> float:
    """The median time of a small write with fdatasync."""
    taken = []
    with open(folder / "sync", "wb", buffering=0) as file:
        for _ in range(SYNCS):
            file.write(b"x" * 4096)
            started = time.perf_counter()
            os.fdatasync(file.fileno())
            taken.append(time.perf_counter() - started)
    return statistics.median(taken) * 1000


async def durable_per_s(bus: JetStreamLog, place: Place, key: Path, goal: int, batch: int) -> float:
    """The rate from the first event in the stream to `goal`, with each batch on the disk."""
    engine = database.writer(place)
    settings = ProjectorSettings(batch=batch)
    projector = Projector(bus, CLUSTER, engine, Signer.of(key), settings)
    started = time.perf_counter()
    async with background(projector.run(), "projector"):
        while projector.position < goal:
            await asyncio.sleep(0.002)
        seconds = time.perf_counter() - started
    position = projector.position
    engine.dispose()
    return position / seconds


def project(address: Address, place: Place, key: Path) -> None:
    """Runs the projector in a process of its own."""
    logging.configure("warning", "console", "bench")

    async def run() -> None:
        engine = database.writer(place)
        async with JetStreamLog.open(address, "bench-projector") as bus:
            signer = Signer.of(key)
            await Projector(bus, CLUSTER, engine, signer, ProjectorSettings()).run()

    asyncio.run(run())


@contextlib.contextmanager
def projecting(address: Address, place: Place, key: Path) -> Generator[None, None, None]:
    process = APART.Process(target=project, args=(address, place, key), daemon=True)
    process.start()
    try:
        yield
    finally:
        process.kill()
        process.join()


def agents(address: Address, seconds: float, moments: PipeEnd) -> None:
    """Publishes evenly in a process of its own, and sends the time of each publish."""
    logging.configure("warning", "console", "bench")
    readings = messages(int(RATE * seconds), f"fresh-{time.time_ns()}")

    async def send() -> list[float]:
        sent: list[float] = []
        per_tick, started = int(RATE * TICK_S), time.perf_counter()
        async with JetStreamLog.open(address, "agents") as bus, asyncio.TaskGroup() as sending:
            for tick, at in enumerate(range(0, len(readings), per_tick), 1):
                part = readings[at : at + per_tick]
                sent.extend([time.perf_counter()] * len(part))
                sending.create_task(bus.publish(part))
                await asyncio.sleep(max(0.0, started + tick * TICK_S - time.perf_counter()))
        return sent

    moments.send(asyncio.run(send()))


async def freshness(address: Address, view: View, seconds: float) -> Fresh:
    """The delay from the publish of an event until the view holds it."""
    here, there = APART.Pipe(duplex=False)
    process = APART.Process(target=agents, args=(address, seconds, there), daemon=True)
    process.start()
    first, seen = view.position, [view.position]
    moments: list[float] = []
    while seen[-1] < first + int(RATE * seconds):
        await view.wait_for(seen[-1] + 1, 20)
        moments.append(time.perf_counter())
        seen.append(view.position)
    sent = await asyncio.to_thread(here.recv)
    process.join()
    held = zip(pairwise(seen), moments, strict=True)
    ages = sorted(at - it for (a, b), at in held for it in sent[a - first : b - first])
    return Fresh(ages[len(ages) // 2] * 1000, ages[len(ages) * 99 // 100] * 1000)


async def cold_view_ms(bus: JetStreamLog, place: Place) -> float:
    """The time from an empty view to its first complete snapshot."""
    engine = database.reader(place)
    started = time.perf_counter()
    async with View.open(bus, engine, CLUSTER) as view:
        await view.wait_ready(30)
        assert len(view.snapshot().twin_columns.rows) >= LARGE
        taken = time.perf_counter() - started
    engine.dispose()
    return taken * 1000


async def throughput(places: list[Place], folder: Path, events: int) -> dict[str, float]:
    batch, (ours, naive), key = ProjectorSettings().batch, places, folder / "key"
    async with (
        lazy_broker(folder / "broker") as address,
        JetStreamLog.open(address, "bench") as bus,
    ):
        await bus.publish(messages(events, "b"))
        few = max(200, events // 60)
        cpu = time.process_time()
        per_s = await durable_per_s(bus, ours, key, events, batch)
        cpu = time.process_time() - cpu
        return {
            "ours": per_s,
            "ours, CPU of this process, us each": cpu / events * 1e6,
            "one transaction per event": await durable_per_s(bus, naive, key, few, 1),
        }


async def following(place: Place, folder: Path, seconds: float) -> dict[str, float]:
    async with (
        lazy_broker(folder / "broker-to-follow") as address,
        JetStreamLog.open(address, "bench") as bus,
    ):
        with projecting(address, place, folder / "key"):
            fresh = await fresh_and_large(address, bus, place, seconds)
        return {**fresh, "cold view of 5,000 nodes, ms": await cold_view_ms(bus, place)}


async def fresh_and_large(
    address: Address, bus: JetStreamLog, place: Place, seconds: float
) -> dict[str, float]:
    engine = database.reader(place)
    says = Producer("watcher", CLUSTER, time.time_ns)
    async with View.open(bus, engine, CLUSTER) as view:
        await view.wait_ready(30)
        await freshness(address, view, 1)  # warm
        fresh = await freshness(address, view, seconds)
        large: list[AnyEvent] = [node_seen(f"node-{n}") for n in range(LARGE)]
        large.extend(hardware(f"node-{n}") for n in range(LARGE))
        before = view.position
        await bus.publish([says.stamp(event) for event in large])
        await view.wait_for(before + 2 * LARGE, 60)
    engine.dispose()
    return {"publish to view, p50 ms": fresh.p50_ms, "publish to view, p99 ms": fresh.p99_ms}


async def measure(places: list[Place], events: int, seconds: float) -> dict[str, float]:
    with tempfile.TemporaryDirectory() as folder:
        disk = {"fdatasync, ms": fsync_ms(Path(folder))}
        for place in places:
            engine = database.migrator(place)
            joulie_migrations.upgrade(engine)
            engine.dispose()
        rates = await throughput(places[:2], Path(folder), events)
        return {**disk, **rates, **await following(places[2], Path(folder), seconds)}


def main() -> None:
    options = argparse.ArgumentParser()
    options.add_argument("--events", type=int, default=60_000)
    options.add_argument("--seconds", type=float, default=5.0, help="of following")
    options.add_argument("--json", type=Path, help="also write the figures to this file")
    args = options.parse_args()
    logging.configure("error", "console", "bench")
    found: dict[str, dict[str, float]] = {}
    with tempfile.TemporaryDirectory() as folder:
        files: list[Place] = [Path(folder) / f"{name}.db" for name in "abc"]
        found["SQLite"] = asyncio.run(measure(files, args.events, args.seconds))
    try:
        with Postgres.running(durable=True) as server:
            urls: list[Place] = [server.empty() for _ in "abc"]
            found["PostgreSQL"] = asyncio.run(measure(urls, args.events, args.seconds))
    except PostgresMissing as missing:
        print(f"PostgreSQL was left out; it requires {missing}")
    for name, figures in found.items():
        show(name, figures)
    if args.json:
        args.json.write_text(json.dumps(found))


def show(name: str, figures: dict[str, float]) -> None:
    budgets = {**BUDGETS, "ours": DURABLE_PER_S[name]}
    print(f"{name:<46}{'budget':>12}")
    for what, value in figures.items():
        budget = f"{budgets[what]:>12,.0f}" if what in budgets else ""
        print(f"  {what:<32}{value:>12,.2f}{budget}".rstrip())
    ratio = figures["ours"] / figures["one transaction per event"]
    print(f"  ours beside one transaction per event: x {ratio:.0f}")


if __name__ == "__main__":
    main()
