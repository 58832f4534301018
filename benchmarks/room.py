"""Measures the bytes of a reading and of a pod in the streams, the database and the archive.

    make bench NAME=room [ARGS="--nodes 1000 --seconds 20 --pods 400"]

It uses a real broker, a real projector and a real SQLite file. Readings are spread over each
second, as in a cluster, so the number of batches is the same as there. Pods are filtered and scored
with 500 candidates, bound and finished. Readings and pods are measured separately; then everything
but the newest is trimmed.
"""

import argparse
import asyncio
import contextlib
import os
import sqlite3
import tempfile
import time
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import NamedTuple

from report import Table

import joulie_migrations
from bus_kit import (
    CLUSTER,
    ask,
    bound,
    connected,
    hardware,
    node_seen,
    pending,
    power,
    running_broker,
)
from joulie_audit.archive.archiver import Archiver
from joulie_audit.archive.columnar import Parquet, Segment, has_parquet
from joulie_audit.archive.combined_history import Sources
from joulie_audit.archive.fact_source import StreamFacts
from joulie_audit.archive.parts import Archive
from joulie_audit.retention.cut_points import CutEvidence, CutOptions, asked_cut
from joulie_bus.broker.embedded import Embedded
from joulie_bus.events import AnyEvent, PodFinished, PodGone
from joulie_bus.jetstream.connection import Connection
from joulie_bus.jetstream.log import JetStreamLog
from joulie_bus.log.producer import Producer
from joulie_bus.streams.subjects import Stream
from joulie_extender.catalogue.declaration import declaration
from joulie_extender.catalogue.weights import Weights
from joulie_extender.decide.decide import DecisionContext, decide_filter, decide_prioritize
from joulie_projections.decision_log.heads import Signer
from joulie_projections.history.history import History
from joulie_projections.history.trimming import TrimStore
from joulie_projections.projector.projector import Projector, ProjectorSettings
from joulie_projections.projector.trim_streams import anchored_heads
from joulie_projections.projector.trimmer import Trimmer
from joulie_projections.store import database
from joulie_projections.view.view import View

SMALLEST = {"nodes": 100, "seconds": 10, "pods": 40}
ASKED = 500  # names of one request, as kube-scheduler samples a large cluster
TURNS = 50  # publishes a second, over which readings are spread


class Size(NamedTuple):
    streams: int
    database: int
    archive: int
    batches: int

    def since(self, before: "Size") -> "Size":
        return Size(*(now - then for now, then in zip(self, before, strict=True)))


class Lab:
    """The log of one cluster and the space that it uses."""

    def __init__(self, path: Path, connection: Connection, bus: JetStreamLog, view: View) -> None:
        self.file, self.archive = path / "joulie.db", path / "archive"
        self.signer = Signer.of(path / "head.key")
        self.view = view
        self.bus = bus
        self._connection = connection
        self._says = Producer("bench", CLUSTER, time.time_ns, "b1")
        self._answers = Producer("extender-0", CLUSTER, time.time_ns, "b1")

    async def say(self, *events: AnyEvent) -> None:
        await self.bus.publish([self._says.stamp(event) for event in events])

    async def answer(self, *entries: AnyEvent) -> None:
        await self.bus.publish([self._answers.stamp(entry) for entry in entries])

    async def measure(self) -> Size:
        """The sizes once everything is folded, logged, signed and archived."""
        await self._settle()
        form = Parquet() if has_parquet() else Segment()
        with History.of(self.file) as history:
            async with StreamFacts.on(self.bus, history) as facts:
                await Archiver(self.archive, form, 2**62, self.signer.public).run(history, facts)
            batches = sum(1 for _ in history.manifests())
        self._checkpoint()
        files = (file for file in self.archive.rglob("*") if file.is_file())
        kept = sum(file.stat().st_size for file in files)
        return Size(await self._streams(), os.path.getsize(self.file), kept, batches)

    async def trim(self) -> None:
        engine = database.trimmer(self.file)
        reading = Sources(self.file).reading
        trimmer = Trimmer(TrimStore(engine), reading, lambda: self.signer.public)
        anchors, now = await anchored_heads(self.bus, 10_000), time.time_ns()
        evidence = CutEvidence(Archive.of(self.archive), anchors, self.signer.public)
        with reading() as history:
            asked = asked_cut(history, evidence, CutOptions(now, "bench"))
        if asked is not None:
            trimmer.cut(asked, anchors, now)
        await trimmer.delete(self.bus, CLUSTER)
        engine.dispose()
        self._checkpoint()

    async def _settle(self) -> None:
        while True:
            stored = {stream: (await self.bus.state(stream)).last for stream in Stream}
            with History.of(self.file) as history:
                held, logged = history.checkpoint(), history.decisions_read().sequence
                signed = history.heads()
                is_signed = not history.tip() or (signed and signed[-1].pos == history.tip())
            read = {stream: at.sequence for stream, at in held.inputs.items()} if held else {}
            facts = (Stream.TEL, Stream.OBS)
            is_folded = all(read.get(stream, 0) == stored[stream] for stream in facts)
            if is_folded and is_signed and logged == stored[Stream.DEC]:
                return
            await asyncio.sleep(0.5)

    async def _streams(self) -> int:
        infos = [await self._connection.api(f"STREAM.INFO.{stream}") for stream in Stream]
        return sum(int(info["state"]["bytes"]) for info in infos)

    def _checkpoint(self) -> None:
        with contextlib.closing(sqlite3.connect(self.file, timeout=60)) as db:
            db.execute("PRAGMA wal_checkpoint(TRUNCATE)")


@contextlib.asynccontextmanager
async def lab(path: Path) -> AsyncGenerator[Lab, None]:
    engine = database.migrator(path / "joulie.db")
    joulie_migrations.upgrade(engine)
    engine.dispose()
    writer, reader = database.writer(path / "joulie.db"), database.reader(path / "joulie.db")
    signer, settings = Signer.of(path / "head.key"), ProjectorSettings(snapshot_every=5000)
    async with (
        running_broker(path / "broker") as broker,
        _connected(broker) as (connection, bus),
        _connected(broker) as (_, mine),
    ):
        projecting = Projector(bus, CLUSTER, writer, signer, settings)
        task = asyncio.create_task(projecting.run())
        async with View.open(mine, reader, CLUSTER) as view:
            yield Lab(path, connection, mine, view)
        task.cancel()
        await asyncio.wait([task])
    writer.dispose()
    reader.dispose()


@contextlib.asynccontextmanager
async def _connected(
    broker: Embedded,
) -> AsyncGenerator[tuple[Connection, JetStreamLog], None]:
    async with connected(broker) as connection, JetStreamLog.over(connection) as bus:
        yield connection, bus


async def readings(at: Lab, names: list[str], seconds: int) -> int:
    """Publishes a reading of each node once a second."""
    loop = asyncio.get_running_loop()
    begun, share = loop.time(), -(-len(names) // TURNS)
    for turn in range(seconds * TURNS):
        first = turn % TURNS * share
        drawn = (power(name, 300 + (turn * 37) % 211) for name in names[first : first + share])
        await at.say(*drawn)
        await asyncio.sleep(max(0.0, begun + (turn + 1) / TURNS - loop.time()))
    return seconds * len(names)


async def pods(at: Lab, names: list[str], count: int) -> None:
    """Pods are answered, bound, finished and deleted; the projector publishes their outcomes."""
    weights = Weights()
    await at.answer(declaration(weights))
    for number in range(count):
        uid = f"00000000-0000-4000-8000-{number:012d}"
        await at.say(pending(uid))
        seen = at.view.snapshot()
        moment = DecisionContext(seen.twin_columns, seen.position, seen.age_ms, time.time_ns())
        asked = [names[(number + step) % len(names)] for step in range(min(ASKED, len(names)))]
        filtered = decide_filter(ask(uid), asked, moment, weights)
        scored = decide_prioritize(ask(uid), asked, moment, weights)
        await at.answer(filtered, scored)
        await at.say(bound(uid, asked[0]))
    await asyncio.sleep(2)  # for the outcomes
    for number in range(count):
        uid = f"00000000-0000-4000-8000-{number:012d}"
        await at.say(PodFinished(uid=uid), PodGone(uid=uid))


async def sizes(args: argparse.Namespace) -> list[Table]:
    names = [f"node-{number:05d}" for number in range(args.nodes)]
    with tempfile.TemporaryDirectory() as folder:
        async with lab(Path(folder)) as at:
            for name in names:
                await at.say(node_seen(name), hardware(name))
            before = await at.measure()
            count = await readings(at, names, args.seconds)
            read = await at.measure()
            await pods(at, names, args.pods)
            asked = await at.measure()
            await at.trim()
            after = await at.measure()
    rows = {
        "a reading": row(read.since(before), count),
        f"a pod with {min(ASKED, args.nodes)} candidates": row(asked.since(read), args.pods),
    }
    whole = {"before": asked.streams + asked.database, "after": after.streams + after.database}
    trimmed = Table.of("bytes of streams and database, trimmed to the newest", whole)
    return [Table(title="bytes each", rows=rows), trimmed]


def row(size: Size, count: int) -> dict[str, float]:
    return {name: value / count for name, value in size._asdict().items()}


def declare(parser: argparse.ArgumentParser) -> None:
    for name, default in (("nodes", 1000), ("seconds", 20), ("pods", 400)):
        parser.add_argument(f"--{name}", type=int, default=default)


def measured(args: argparse.Namespace) -> list[Table]:
    return asyncio.run(sizes(args))
