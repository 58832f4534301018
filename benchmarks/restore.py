"""Measures how fast an archive is restored: folded from a snapshot on, folded whole, its entries.

    make bench NAME=restore [ARGS="--nodes 1000 --manifests 20000"]

Rates are per second of CPU of the restoring process, which does all of the work. A manifest has
READINGS readings, as of a cluster at rest; an entry is an answer about 500 candidates.
"""

import argparse
import asyncio
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

from report import Table

import joulie_migrations
from audit_kit import LogBuilder, RecordedLog
from bus_kit import ask, hardware, node_seen, power
from joulie_audit.archive.archiver import Archiver
from joulie_audit.archive.columnar import Parquet, Segment, has_parquet
from joulie_audit.archive.parts import Archive
from joulie_audit.archive.restore import RestoreOptions, restore_at
from joulie_projections.decision_log.heads import Signer
from joulie_projections.decision_log.log import DecisionLog
from joulie_projections.store import database
from joulie_projections.store.store import Store

SMALLEST = {"nodes": 20, "manifests": 500, "entries": 100}
TRIES = 3
READINGS = 10
CANDIDATES = 500


class Cost(NamedTuple):
    cpu_s: float
    facts: int
    entries: int


async def recorded(directory: Path, nodes: int, manifests: int, entries: int) -> Path:
    """The archive of a log with these; a snapshot covers all facts but those of the last batch."""
    directory.mkdir()
    file, archive = directory / "joulie.db", directory / "archive"
    engine = database.migrator(file)
    joulie_migrations.upgrade(engine)
    engine.dispose()
    writer = database.writer(file)
    signer = Signer.of(directory / "head.key")
    builder = LogBuilder(Store(writer), DecisionLog(writer), signer)
    names = [f"node-{number:05d}" for number in range(nodes)]
    await builder.facts(*(fact for name in names for fact in (node_seen(name), hardware(name))))
    for number in range(manifests):
        at = number * READINGS
        some = (names[(at + more) % nodes] for more in range(READINGS))
        await builder.facts(*(power(name, 300 + number % 77) for name in some), after_s=0.1)
    builder.snapshot()
    await builder.facts(power(names[0], 300), after_s=120)
    for number in range(0, entries, 2):
        await builder.answer(ask(f"pod-{number}"), names[:CANDIDATES])
    if entries:
        builder.sign()
    log = RecordedLog(builder, file)
    async with log.reading() as (history, facts):
        form = Parquet() if has_parquet() else Segment()
        await Archiver(archive, form, 2**62, signer.public).run(history, facts)
    writer.dispose()
    return archive


def restored(archive: Path, options: RestoreOptions) -> Cost:
    """The least of some tries: the first one imports, and others share the machine."""
    return min(one_try(archive, options) for _ in range(TRIES))


def one_try(archive: Path, options: RestoreOptions) -> Cost:
    with tempfile.TemporaryDirectory(prefix="restored-", dir=archive.parent) as place:
        started = time.process_time()
        done = restore_at(Path(place) / "joulie.db", Archive.of(archive), options)
        return Cost(time.process_time() - started, done.facts, done.entries)


def declare(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--nodes", type=int, default=1_000)
    parser.add_argument("--manifests", type=int, default=20_000)
    parser.add_argument("--entries", type=int, default=2_000)


def measured(args: argparse.Namespace) -> list[Table]:
    with tempfile.TemporaryDirectory(prefix="joulie-bench-") as made:
        root = Path(made)
        few = asyncio.run(recorded(root / "few", args.nodes, 1, 0))
        facts = asyncio.run(recorded(root / "facts", args.nodes, args.manifests, 0))
        answers = asyncio.run(recorded(root / "answers", args.nodes, 1, args.entries))
        least = restored(few, RestoreOptions())
        fast = restored(facts, RestoreOptions())
        whole = restored(facts, RestoreOptions(is_whole=True))
        logged = restored(answers, RestoreOptions())
    beyond = args.manifests - 1
    figures = {
        "a snapshot and a new database, s": least.cpu_s,
        "manifests before a snapshot, /s": beyond / (fast.cpu_s - least.cpu_s),
        "readings folded with --whole, /s": beyond * READINGS / (whole.cpu_s - least.cpu_s),
        "entries, /s": logged.entries / (logged.cpu_s - least.cpu_s),
    }
    return [Table.of("restore", figures)]
