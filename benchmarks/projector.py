"""Measures durable commits, the delay from publish to view, and the start of a new view.

    make bench NAME=projector [ARGS="--events 60000 --only brokers"]

Each database runs once with the projector's batches and once with one transaction per event, in
the same run, with the time of an fsync on the same disk for comparison. The load is readings of
1,000 nodes, with an agent on each. Agents, broker, projector and PostgreSQL are separate processes
and share the cores: ratios and the CPU time of an event are more reliable than its rate. Agents do
not wait for one another, so readings arrive as evenly as a timer allows. This broker syncs rarely,
so that its disk does not dominate the result.

A second table compares brokers: one server and a cluster of three with three copies of each stream,
which sync each write or as nats-server does by default. Each has a projector on SQLite. Readings
are published as fast as the broker accepts them, then evenly at the rate of 5,000 nodes at rest.
"""

import argparse
import asyncio
import contextlib
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Generator, Sequence
from pathlib import Path
from typing import NamedTuple

from durable_brokers import KINDS, Kind, lazy_broker, running
from even_readings import APART, freshness, messages
from process_usage import cpu_by_pid
from report import Table

import joulie_migrations
from bus_kit import CLUSTER, hardware, node_seen
from joulie_bus.events import AnyEvent
from joulie_bus.jetstream.connection import Address
from joulie_bus.jetstream.log import JetStreamLog
from joulie_bus.log.producer import Producer
from joulie_bus.runtime import logging
from joulie_bus.runtime.tasks import background
from joulie_projections.decision_log.heads import Signer
from joulie_projections.projector.projector import Projector, ProjectorSettings
from joulie_projections.store import database
from joulie_projections.store.database import Place
from joulie_projections.view.view import View
from projections_kit import Postgres, PostgresMissing

RATE = 5000  # events a second while freshness is measured
AT_REST = 500  # of 5,000 agents whose power is steady
SYNCS = 200
SMALLEST = {
    "events": 2000,
    "broker_events": 500,
    "rounds": 1,
    "seconds": 1.0,
    "rate": 500,
    "large": 200,
    "only": "databases",
}


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


def _migrate(place: Place) -> None:
    engine = database.migrator(place)
    joulie_migrations.upgrade(engine)
    engine.dispose()


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
def projecting(address: Address, place: Place, key: Path) -> Generator[int, None, None]:
    """Yields the number of the process."""
    process = APART.Process(target=project, args=(address, place, key), daemon=True)
    process.start()
    try:
        yield process.pid or 0
    finally:
        process.kill()
        process.join()


class Followed(NamedTuple):
    """What a view follows."""

    seconds: float
    rate: int  # events a second meanwhile
    large: int  # nodes afterwards


async def cold_view_ms(bus: JetStreamLog, place: Place, nodes: int) -> float:
    """The time from an empty view to its first complete snapshot."""
    engine = database.reader(place)
    started = time.perf_counter()
    async with View.open(bus, engine, CLUSTER) as view:
        await view.wait_ready(30)
        assert len(view.snapshot().twin_columns.rows) >= nodes
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
            "events per second": per_s,
            "CPU µs each": cpu / events * 1e6,
            "one transaction per event": await durable_per_s(bus, naive, key, few, 1),
        }


async def following(place: Place, folder: Path, followed: Followed) -> dict[str, float]:
    async with (
        lazy_broker(folder / "broker-to-follow") as address,
        JetStreamLog.open(address, "bench") as bus,
    ):
        with projecting(address, place, folder / "key"):
            fresh = await fresh_and_large(address, bus, place, followed)
        cold = await cold_view_ms(bus, place, followed.large)
        return {**fresh, f"cold view of {followed.large:,} nodes, ms": cold}


async def fresh_and_large(
    address: Address, bus: JetStreamLog, place: Place, followed: Followed
) -> dict[str, float]:
    engine = database.reader(place)
    says = Producer("watcher", CLUSTER, time.time_ns)
    async with View.open(bus, engine, CLUSTER) as view:
        await view.wait_ready(30)
        await freshness(address, view, 1, followed.rate)  # warm
        fresh = await freshness(address, view, followed.seconds, followed.rate)
        large: list[AnyEvent] = [node_seen(f"node-{n}") for n in range(followed.large)]
        large.extend(hardware(f"node-{n}") for n in range(followed.large))
        before = view.position
        await bus.publish([says.stamp(event) for event in large])
        await view.wait_for(before + 2 * followed.large, 60)
    engine.dispose()
    return {"publish to view, p50 ms": fresh.p50_ms, "publish to view, p99 ms": fresh.p99_ms}


async def measure(places: list[Place], events: int, followed: Followed) -> dict[str, float]:
    with tempfile.TemporaryDirectory() as folder:
        disk = {"fdatasync, ms": fsync_ms(Path(folder))}
        for place in places:
            _migrate(place)
        rates = await throughput(places[:2], Path(folder), events)
        return {**disk, **rates, **await following(places[2], Path(folder), followed)}


async def projected(kind: Kind, folder: Path, events: int, seconds: float) -> dict[str, float]:
    """One row of the table of brokers."""
    place = folder / "joulie.db"
    async with running(kind, folder) as brokers:
        _migrate(place)
        with projecting(brokers.address, place, folder / "key") as pid:
            engine = database.reader(place)
            async with (
                JetStreamLog.open(brokers.address, "bench") as bus,
                View.open(bus, engine, CLUSTER) as view,
            ):
                await view.wait_ready(30)
                await freshness(brokers.address, view, 1, AT_REST)  # warm
                found = await flooded(bus, view, events, (brokers.pids, pid))
                fresh = await freshness(brokers.address, view, seconds, AT_REST)
            engine.dispose()
    return found | {"publish to view, p50 ms": fresh.p50_ms, "p99 ms": fresh.p99_ms}


async def flooded(
    bus: JetStreamLog, view: View, events: int, pids: tuple[Sequence[int], int]
) -> dict[str, float]:
    """Events per second from the first publish to the view of the last, and the CPU time of each in
    all servers of the broker together, and in the projector."""
    readings, goal = messages(events, "flood"), view.position + events
    brokers, projector = pids
    before, started = cpu_by_pid(), time.perf_counter()
    await bus.publish(readings)
    await view.wait_for(goal, 600)
    seconds, after = time.perf_counter() - started, cpu_by_pid()
    used = {pid: (after[pid] - before[pid]) / events * 1e6 for pid in (*brokers, projector)}
    return {
        "events per second": events / seconds,
        "CPU µs each, servers": sum(used[pid] for pid in brokers),
        "CPU µs each, projector": used[projector],
    }


async def compared(events: int, seconds: float, rounds: int) -> dict[str, dict[str, float]]:
    """The median of each figure; the brokers take turns, as other programs use the machine, too."""
    rows: dict[str, list[dict[str, float]]] = {str(kind): [] for kind in KINDS}
    for kind in KINDS * rounds:
        with tempfile.TemporaryDirectory() as folder:
            rows[str(kind)].append(await projected(kind, Path(folder), events, seconds))
    return {
        name: {what: statistics.median(row[what] for row in found) for what in found[0]}
        for name, found in rows.items()
    }


def databases(events: int, followed: Followed) -> Table:
    rows: dict[str, dict[str, float]] = {}
    with tempfile.TemporaryDirectory() as folder:
        files: list[Place] = [Path(folder) / f"{name}.db" for name in "abc"]
        rows["SQLite"] = asyncio.run(measure(files, events, followed))
    try:
        with Postgres.running(durable=True) as server:
            urls: list[Place] = [server.empty() for _ in "abc"]
            rows["PostgreSQL"] = asyncio.run(measure(urls, events, followed))
    except PostgresMissing as missing:
        print(f"PostgreSQL was left out; it requires {missing}", file=sys.stderr)
    return Table(title="databases", rows=rows)


def brokers(events: int, seconds: float, rounds: int) -> list[Table]:
    found = asyncio.run(compared(events, seconds, rounds))
    with tempfile.TemporaryDirectory() as folder:
        disk = Table.of("disk", {"fdatasync, ms": fsync_ms(Path(folder))})
    return [Table(title="brokers", rows=found), disk]


def declare(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--events", type=int, default=60_000)
    parser.add_argument("--broker-events", type=int, default=20_000, help="for each broker")
    parser.add_argument("--rounds", type=int, default=3, help="of each broker")
    parser.add_argument("--seconds", type=float, default=5.0, help="of following")
    parser.add_argument("--rate", type=int, default=RATE, help="events a second meanwhile")
    parser.add_argument("--large", type=int, default=5000, help="nodes of a cold view")
    parser.add_argument("--only", choices=("databases", "brokers"), help="one of both tables")


def measured(args: argparse.Namespace) -> list[Table]:
    tables = []
    if args.only != "brokers":
        followed = Followed(args.seconds, args.rate, args.large)
        tables.append(databases(args.events, followed))
    if args.only != "databases":
        tables += brokers(args.broker_events, args.seconds, args.rounds)
    return tables
