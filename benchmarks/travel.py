"""Measures the time to compute a past state of a long log, and replay with several processes.

    make bench NAME=travel [ARGS="--events 1000000 --nodes 1000 --jobs 2"]

`--events 10000000 --jobs 0` covers what the snapshots of the default settings cover, without the
replay. It takes some minutes, and 5 GiB of memory for the facts.

The log is a real database with the projector's own snapshots, one for each 25,000 events. Facts
come from a real archive for the replay, and from memory for past states, so that the speed of the
broker does not count. The cost of a past state depends on the distance to the nearest snapshot and
on the number of nodes, not on the length of the log: rows are looked up by their key.
"""

import argparse
import asyncio
import statistics
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from report import Table

import joulie_migrations
from audit_kit import NoFacts
from bus_kit import CLUSTER, NOON, SECOND, hardware, node_seen, records
from joulie_audit.archive.archived_facts import ArchivedFacts
from joulie_audit.archive.archiver import Archiver
from joulie_audit.archive.columnar import Segment
from joulie_audit.archive.combined_history import Sources
from joulie_audit.archive.fact_source import FactSource
from joulie_audit.archive.parts import Archive
from joulie_audit.replay.replay import Scope, WorkerSource, replay
from joulie_bus.events import TelemetrySampled
from joulie_bus.log.producer import Producer
from joulie_bus.streams.records import Record
from joulie_bus.streams.subjects import MERGE_ORDER, Stream
from joulie_projections.decision_log.heads import Signer
from joulie_projections.fold.manifest import Manifest
from joulie_projections.fold.sequence import FoldCursor, sequence
from joulie_projections.fold.snapshots import frozen_state_of, pack
from joulie_projections.history.history import History
from joulie_projections.state.state import ClusterState
from joulie_projections.store import database
from joulie_projections.store.store import Store
from state_at import cluster_state_at

SMALLEST = {"events": 9_000, "nodes": 50, "moments": 5, "snapshot_every": 3_000}
BATCH = 1_000


def telemetry(names: list[str], count: int) -> Iterator[list[Record]]:
    """A reading of each node once a second, in the batches of a busy projector."""
    says, made = Producer("bench", CLUSTER, lambda: NOON, "b1"), list[Record]()
    for number in range(count):
        name, second = names[number % len(names)], number // len(names)
        sampled = TelemetrySampled(node=name, power_mw=300_000 + number % 977)
        at = NOON + (second + 10) * SECOND
        message = says.stamp(sampled)
        made.append(Record(Stream.TEL, number + 1, at, message.data, message.subject))
        if len(made) == BATCH:
            yield made
            made = []
    if made:
        yield made


class Held:
    """Facts in memory, by the first position of their batch."""

    def __init__(self) -> None:
        self.batches: dict[int, list[Record]] = {}

    async def of(
        self, manifest: Manifest, streams: frozenset[Stream] = frozenset(MERGE_ORDER)
    ) -> list[Record]:
        return [each for each in self.batches[manifest.p_from] if each.stream in streams]


@dataclass(frozen=True)
class Kept:
    path: Path

    def __call__(self, history: History) -> AbstractAsyncContextManager[FactSource]:
        return nullcontext(ArchivedFacts(Archive.of(self.path), NoFacts()))


def written(file: Path, names: list[str], events: int, snapshot_every: int) -> Held:
    engine = database.migrator(file)
    joulie_migrations.upgrade(engine)
    engine.dispose()
    writer = database.writer(file)
    store, cluster_state, held = Store(writer), ClusterState(), Held()
    lease = store.acquire("bench", 1e9, "inc", lambda _: True)
    assert lease is not None
    cursor = FoldCursor(0, {}, lease.digests, b"")
    created = dict.fromkeys(Stream, "bench")
    first = records(*(fact for name in names for fact in (node_seen(name), hardware(name))))
    for batch in (first, *telemetry(names, events)):
        held.batches[cursor.position + 1] = batch
        done = sequence(cluster_state, cursor, batch, created, NOON)
        store.commit(lease.epoch, done.commit)
        done.draft.commit()
        if done.cursor.position // snapshot_every > cursor.position // snapshot_every:
            store.save_snapshot(
                lease.epoch, pack(frozen_state_of(cluster_state, done.cursor), NOON), 1000
            )
        cursor = done.cursor
    writer.dispose()
    return held


class Journey(NamedTuple):
    seconds: float
    folded: int  # events between the snapshot and the position


async def travelled(file: Path, facts: FactSource, count: int) -> list[Journey]:
    """To positions that are evenly spread, and to the worst ones: just before a snapshot."""
    with History.of(file) as history:
        starts, newest = history.starts(), history.checkpoint()
    assert newest is not None
    step = max(1, len(starts) // count)
    spread = [newest.position * (number + 1) // count - 7 for number in range(count)]
    return [await _to(file, facts, at) for at in (*spread, *(s - 1 for s in starts[::step]))]


async def _to(file: Path, facts: FactSource, position: int) -> Journey:
    started = time.perf_counter()
    with History.of(file) as history:
        await cluster_state_at(history, facts, position)
        seconds = time.perf_counter() - started
        found = history.snapshot_before(position)
    return Journey(seconds, position - (found.position if found else 0))


async def replayed(
    file: Path, facts: FactSource, archive: Path, jobs: Sequence[int]
) -> list[float]:
    took: list[float] = []
    if not jobs:
        return took
    with History.of(file) as history:
        ring = Signer.of(file.with_name("head.key")).public
        await Archiver(archive, Segment(), 2**62, ring).run(history, facts)
        for count in jobs:
            kept = Kept(archive)
            async with kept(history) as opened:
                elsewhere = WorkerSource(Sources(file), kept)
                done = await replay(history, opened, Scope(jobs=count), worker_source=elsewhere)
            assert done.mismatches == 0
            took.append(done.seconds)
    return took


def declare(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--events", type=int, default=1_000_000)
    parser.add_argument("--nodes", type=int, default=1_000)
    parser.add_argument("--jobs", type=int, default=2, help="processes of the replay; 0: none")
    parser.add_argument("--snapshot-every", type=int, default=25_000, help="events")
    parser.add_argument("--moments", type=int, default=40)


def measured(args: argparse.Namespace) -> list[Table]:
    with tempfile.TemporaryDirectory() as directory:
        file = Path(directory) / "joulie.db"
        names = [f"node-{number:05d}" for number in range(args.nodes)]
        held = written(file, names, args.events, args.snapshot_every)
        took = asyncio.run(travelled(file, held, args.moments))
        wanted = (1, args.jobs) if args.jobs else ()
        again = asyncio.run(replayed(file, held, Path(directory) / "a", wanted))
        size = file.stat().st_size / 2**20
    seconds = [journey.seconds for journey in took]
    figures = {
        "database, MiB": size,
        "past states": float(len(took)),
        "a past state, median s": statistics.median(seconds),
        "a past state, slowest s": max(seconds),
        "events folded for it, at most": float(max(each.folded for each in took)),
    }
    if again:
        figures |= {"replay by one process, s": again[0], f"by {args.jobs}, s": again[1]}
    return [Table.of("past states", figures)]
