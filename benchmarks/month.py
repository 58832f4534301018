"""Measures how long it takes to verify and to query a month of an archive.

    make bench NAME=month [ARGS="--nodes 1000 --hours 24 --answers 4000"]

It writes an archive in Parquet with real messages, manifests and hashes: a reading of each node
every 10 s, in batches of a fifth of a second, and signed answers about 500 candidates. Then it
verifies the archive on all cores, and groups all readings by node and minute with DuckDB. Nothing
folds the readings. A month of 30 days is the time of these hours, scaled: a command that verifies
the first quarter of them is subtracted, and with it what any command takes to start.
"""

import argparse
import asyncio
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import duckdb
import msgspec
from report import Table

import joulie_migrations
from audit_kit import LogBuilder, RecordedLog, written_archive
from bus_kit import ask, hardware, node_seen
from joulie_audit.archive.archiver import Archiver
from joulie_audit.archive.columnar import Parquet
from joulie_audit.archive.part_tables import FactPart, root_of
from joulie_audit.archive.parts import FACTS, LOG, Archive, Part
from joulie_audit.archive.unarchived import HOUR_NS, PART_ROWS
from joulie_audit.columns.tables import READINGS
from joulie_bus.events import TelemetrySampled
from joulie_bus.events.codec import Envelope, encode, seal
from joulie_bus.streams.records import Record
from joulie_bus.streams.subjects import Stream, Subjects, agent_name
from joulie_projections.chain.keyring import encoded
from joulie_projections.decision_log.heads import Signer
from joulie_projections.decision_log.log import DecisionLog
from joulie_projections.fold.manifest import Manifest, Range, hash_of_all, rechained
from joulie_projections.store import database
from joulie_projections.store.store import Store

SMALLEST = {"nodes": 200, "hours": 4, "answers": 600}
EVERY_S = 10
BATCHES_PER_S = 5
CANDIDATES = 500
TRIES = 2
MONTH_H = 30 * 24
MONTH_ANSWERS = 1_000_000
NS = 1_000_000_000
_BEGIN = 1_760_000_400 // 3600 * HOUR_NS  # a whole hour
_STATE = bytes(32)  # no state is folded


class Readings:
    """Of all nodes, one after the other, as their agents count and stamp them."""

    def __init__(self, nodes: int) -> None:
        self._names = [f"node-{number:05d}" for number in range(nodes)]
        self._agents = [agent_name(name) for name in self._names]
        self._subjects = Subjects("bench")
        self._step_ns = EVERY_S * NS // nodes
        self.position = 0

    def until(self, at: int) -> Iterator[Record]:
        while (stored_at := _BEGIN + self.position * self._step_ns) < at:
            yield self._next(stored_at)

    def _next(self, at: int) -> Record:
        turn, which = divmod(self.position, len(self._names))
        name, agent = self._names[which], self._agents[which]
        watts = 300 + (self.position * 7919) % 61
        fact = TelemetrySampled(
            node=name,
            power_mw=watts * 1000,
            provider="agent",
            min_mw=watts * 1000 - 900,
            mean_mw=watts * 1000 - 100,
            max_mw=watts * 1000 + 700,
            counted_from=_BEGIN,
            energy_uj=turn * EVERY_S * watts * 1_000_000,
        )
        data = msgspec.Raw(encode(fact))
        life = f"{agent}:b{which}"
        envelope = Envelope(
            id=f"{life}:{turn + 1}", type=fact.TYPE, v=fact.VERSION, key=name, ts=at, data=data
        )
        self.position += 1
        subject = self._subjects.of(fact, agent)
        return Record(Stream.TEL, self.position, at, seal(envelope), subject)


def write_facts(nodes: int, hours: int, archiver: Archiver, to: Path) -> None:
    readings, head, before = Readings(nodes), b"", Part.before_the_first(FACTS)
    batch_ns, part_ns = NS // BATCHES_PER_S, HOUR_NS
    while PART_ROWS * EVERY_S * NS // nodes < part_ns:
        part_ns //= 2
    for number in range(hours * HOUR_NS // part_ns):
        begin, first = _BEGIN + number * part_ns, readings.position + 1
        manifests: list[Manifest] = []
        records: list[Record] = []
        for at in range(begin + batch_ns, begin + part_ns + 1, batch_ns):
            if batch := list(readings.until(at)):
                manifests.append(manifest_of(batch, head, at))
                head = manifests[-1].head
                records += batch
        before = write_part(archiver, to, before, FactPart(manifests, records, []), first)


def manifest_of(batch: list[Record], head: bytes, at: int) -> Manifest:
    first, last = batch[0].sequence, batch[-1].sequence
    ranges, root = (Range(Stream.TEL, first, last),), hash_of_all([each.data for each in batch])
    return rechained(Manifest(first, last, ranges, root, _STATE, head, b"", at))


def write_part(archiver: Archiver, to: Path, before: Part, found: FactPart, first: int) -> Part:
    last, root = first + len(found.records) - 1, root_of(found)
    part = Part(kind=FACTS, first=first, last=last, files=[], root=root, prev=before.seal)
    return archiver.written(to / FACTS / "2025-10-09" / "09" / part.name, part, found)


async def write_log(place: Path, signer: Signer, answers: int, to: Path) -> None:
    """The part of the log comes from a real database, and its facts are left out."""
    file = place / "joulie.db"
    engine = database.migrator(file)
    joulie_migrations.upgrade(engine)
    engine.dispose()
    writer = database.writer(file)
    builder = LogBuilder(Store(writer), DecisionLog(writer), signer)
    names = [f"node-{number:05d}" for number in range(CANDIDATES)]
    await builder.facts(*(fact for name in names for fact in (node_seen(name), hardware(name))))
    for number in range(0, answers, 2):  # a filter and a score each
        await builder.answer(ask(f"pod-{number}"), names)
    builder.sign()
    await written_archive(RecordedLog(builder, file), place / "whole", Parquet())
    writer.dispose()
    (place / "whole" / LOG).rename(to / LOG)


class Cost(NamedTuple):
    seconds: float
    cpu_s: float
    peak_mib: float


def verified(archive: Path, key: Path, jobs: int) -> Cost:
    """By the command. CPU and memory are those of a command with one process."""
    words = ("verify", "--archive", str(archive), "--key", str(key), "--jobs", str(jobs))
    began = time.perf_counter()
    command = subprocess.Popen(
        [sys.executable, "-m", "joulie_cli.main", *words, "--data", str(archive.parent / "none")],
        stdout=subprocess.DEVNULL,
    )
    _, status, used = os.wait4(command.pid, 0)
    command.returncode = os.waitstatus_to_exitcode(status)
    if command.returncode:
        raise RuntimeError(f"joulie {' '.join(words)} ended with {command.returncode}")
    seconds = time.perf_counter() - began
    return Cost(seconds, used.ru_utime + used.ru_stime, used.ru_maxrss / 1024)


def least(archive: Path, key: Path, jobs: int) -> Cost:
    """Of some tries, of which other work on the machine slows down some."""
    tries = [verified(archive, key, jobs) for _ in range(TRIES)]
    return Cost(*(min(column) for column in zip(*tries, strict=True)))


def group_readings(archive: Path) -> float:
    """Seconds of wall time."""
    files = f"{archive}/{FACTS}/*/*/[0-9]*/{READINGS.name}.parquet"
    began = time.perf_counter()
    duckdb.connect().execute(
        "SELECT node, time_bucket(INTERVAL 1 minute, stored_at) AS minute, avg(power_mw) "
        f"FROM '{files}' GROUP BY ALL"
    ).fetchnumpy()
    return time.perf_counter() - began


def declare(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--nodes", type=int, default=1_000)
    parser.add_argument("--hours", type=int, default=24)
    parser.add_argument("--answers", type=int, default=4_000)


class Kept(NamedTuple):
    """The two archives, what they hold, and the key that verifies them."""

    facts: Path
    quarter: Path  # its first parts
    log: Path
    empty: Path
    key: Path

    @property
    def behind_quarter(self) -> int:
        """Readings that the quarter lacks."""
        return Archive(self.facts).facts[-1][1].last - Archive(self.quarter).facts[-1][1].last


def written(args: argparse.Namespace, place: Path) -> Kept:
    names = ("facts", "quarter", "log", "empty", "head.pub")
    kept = Kept(*(place / name for name in names))
    signer = Signer.of(place / "head.key")
    kept.key.write_bytes(encoded(signer.public))
    archiver, *_ = (Archiver(to, Parquet(), 0, signer.public) for to in kept[:4])
    write_facts(args.nodes, args.hours, archiver, kept.facts)
    keep_quarter(Archive(kept.facts), kept.quarter)
    (kept.log / LOG).rmdir()
    asyncio.run(write_log(place, signer, args.answers, kept.log))
    return kept


def keep_quarter(whole: Archive, to: Path) -> None:
    parts = whole.facts
    for place, _ in parts[: len(parts) // 4]:
        shutil.copytree(place, to / place.relative_to(whole.path), copy_function=os.link)


def measured(args: argparse.Namespace) -> list[Table]:
    readings = args.nodes * args.hours * 3600 // EVERY_S
    with tempfile.TemporaryDirectory(prefix="joulie-bench-") as made:
        kept = written(args, Path(made))
        start = least(kept.empty, kept.key, 1)
        alone = [least(each, kept.key, 1) for each in (kept.facts, kept.quarter)]
        cores = os.cpu_count() or 1
        shared = [least(each, kept.key, cores) for each in (kept.facts, kept.quarter)]
        of_log = least(kept.log, kept.key, 1)
        grouped_s = group_readings(kept.facts)
        behind = kept.behind_quarter
        typed, whole = size_of(kept.facts, f"{READINGS.name}.*"), size_of(kept.facts, "*")
        answers = size_of(kept.log, "*")
    alone_s, shared_s = alone[0].cpu_s - alone[1].cpu_s, shared[0].seconds - shared[1].seconds
    hours, months = MONTH_H / args.hours, MONTH_ANSWERS / args.answers
    each = {
        "a reading, bytes": whole / readings,
        "of them in its typed row": typed / readings,
        "a reading verified, µs of CPU": alone_s / behind * 1e6,
        "an entry, bytes": answers / args.answers,
        "an entry verified, µs of CPU": (of_log.cpu_s - start.cpu_s) / args.answers * 1e6,
        "readings grouped a second": readings / grouped_s,
    }
    month = {
        "its readings verified, minutes": shared_s / behind * readings * hours / 60,
        "1,000,000 entries verified on one core, minutes": (of_log.cpu_s - start.cpu_s)
        * months
        / 60,
        "its readings grouped by node and minute, s": grouped_s * hours,
        "GiB": (whole * hours + answers * months) / 2**30,
        "a process that verifies, MiB": max(alone[0].peak_mib, of_log.peak_mib),
    }
    return [Table.of("each", each), Table.of("a month", month)]


def size_of(archive: Path, names: str) -> int:
    return sum(file.stat().st_size for file in archive.rglob(names) if file.is_file())
