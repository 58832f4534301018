"""Measures fold, recompute and verify. It runs in one process, except for `--jobs`.

    make bench NAME=replay [ARGS="--events 300000 --jobs 2"]

Facts come from memory, so that the speed of the broker does not count. Rates are per second of
CPU, that is, per core. Compare ratios between machines, not the figures.
"""

import argparse
import asyncio
import tempfile
import time
from collections.abc import Callable, Sequence
from itertools import chain
from pathlib import Path

from report import Table

import joulie_migrations
from audit_kit import LogBuilder, RecordedLog
from bus_kit import CLUSTER, NOON, SECOND, ask, hardware, node_seen, records
from joulie_audit.chain.entries import WorkerOptions
from joulie_audit.columns.facts import fact_tables
from joulie_audit.columns.ledger_columns import arrays_of
from joulie_audit.columns.messages import Messages
from joulie_audit.columns.part_readings import column_part
from joulie_audit.columns.tables import READINGS
from joulie_audit.recompute.answers import RecordedAnswer, check_answer
from joulie_audit.recompute.column_part import ColumnBatch
from joulie_audit.recompute.fold import Facts, FoldedState, rows_of
from joulie_audit.verify.verify import ALL_ENTRIES, verify
from joulie_bus.events import PodAsk, TelemetrySampled
from joulie_bus.log.producer import Producer
from joulie_bus.streams.records import Record
from joulie_bus.streams.subjects import Stream
from joulie_extender.catalogue.weights import Weights
from joulie_extender.decide.decide import DecisionContext, decide_filter, decide_prioritize
from joulie_projections.decision_log.heads import Signer
from joulie_projections.decision_log.log import DecisionLog
from joulie_projections.fold.manifest import Manifest
from joulie_projections.fold.sequence import FoldCursor, sequence
from joulie_projections.state.rows import digests_of
from joulie_projections.store import database
from joulie_projections.store.store import Store
from joulie_projections.twin.columns import TwinColumns

SMALLEST = {"events": 3_000, "nodes": 100, "decisions": 50, "entries": 2_000}
BATCH = 1_000  # a batch of a busy projector
CANDIDATES = 500
RUNS = 5  # of short measurements; the best counts, as other load only slows a run


def rate(call: Callable[[], int]) -> float:
    started = time.process_time()
    count = call()
    return count / (time.process_time() - started)


def names_of(nodes: int) -> list[str]:
    return [f"node-{number:05d}" for number in range(nodes)]


def introduced(names: list[str]) -> FoldedState:
    past = FoldedState()
    past.skip(records(*(fact for name in names for fact in (node_seen(name), hardware(name)))))
    return past


def telemetry(names: list[str], count: int) -> list[list[Record]]:
    says = Producer("bench", CLUSTER, lambda: NOON, "b1")
    made: list[Record] = []
    for number in range(count):
        name = names[number % len(names)]
        sampled = TelemetrySampled(node=name, power_mw=300_000 + number % 977)
        at = NOON + (number // len(names) + 10) * SECOND
        message = says.stamp(sampled)
        made.append(Record(Stream.TEL, number + 1, at, message.data, message.subject))
    return [made[at : at + BATCH] for at in range(0, count, BATCH)]


def fold(names: list[str], batches: list[list[Record]]) -> float:
    past = introduced(names)

    def run() -> int:
        for batch in batches:
            past.skip(batch)
        return sum(map(len, batches))

    return rate(run)


def manifests_of(names: list[str], batches: list[list[Record]]) -> list[Manifest]:
    recorded = introduced(names)
    digests = digests_of(rows_of(recorded.cluster_state))
    cursor = FoldCursor(recorded.position, {}, digests, b"")
    manifests: list[Manifest] = []
    for batch in batches:
        done = sequence(recorded.cluster_state, cursor, batch, {Stream.TEL: "x"}, NOON)
        done.draft.commit()
        cursor = done.cursor
        manifests.append(done.commit.manifest)
    return manifests


def fold_and_compare(
    names: list[str], facts: Sequence[Facts], manifests: Sequence[Manifest]
) -> float:
    past = introduced(names)
    assert past.advance(facts[0], manifests[0]) == []

    def run() -> int:
        flaws = 0
        for manifest, batch in zip(manifests[1:], facts[1:], strict=True):
            flaws += len(past.advance(batch, manifest))
        assert flaws + len(past.settle()) == 0
        return sum(manifest.p_to - manifest.p_from + 1 for manifest in manifests[1:])

    return rate(run)


def in_columns(batches: list[list[Record]], manifests: Sequence[Manifest]) -> list[Facts]:
    """As a part of an archive holds them; the first batch, of an unknown program, is in records."""
    first = manifests[1].p_from
    messages = Messages.of(list(enumerate(chain.from_iterable(batches[1:]), first)))
    readings = fact_tables(messages, ()).typed[READINGS.name]
    part = column_part(arrays_of(readings, READINGS.kinds), messages, "a part")
    rows = ((each.p_from - first, each.p_to - first + 1) for each in manifests[1:])
    return [batches[0], *(ColumnBatch(part, *row) for row in rows)]


def recompute(names: list[str], batches: list[list[Record]], count: int) -> dict[str, float]:
    past = introduced(names)
    past.skip(batches[0])
    asked = names[:CANDIDATES]
    pod: PodAsk = ask(cores=4)
    weights = Weights()
    twin_columns = TwinColumns.of_state(past.cluster_state)
    moment = DecisionContext(twin_columns, past.position, 0, NOON + 11 * SECOND)
    scored = RecordedAnswer(1, decide_prioritize(pod, asked, moment, weights), weights)
    filtered = RecordedAnswer(1, decide_filter(pod, asked, moment, weights), weights)

    def run(answer: RecordedAnswer) -> int:
        wrong = sum(check_answer(answer, twin_columns) is not None for _ in range(count))
        assert wrong == 0
        return count

    return {
        "prioritize of 500 candidates recomputed, /s": rate(lambda: run(scored)),
        "filter of 500 candidates recomputed, /s": rate(lambda: run(filtered)),
    }


async def verified(directory: Path, entries: int, jobs: int) -> dict[str, float]:
    file = directory / "joulie.db"
    engine = database.migrator(file)
    joulie_migrations.upgrade(engine)
    engine.dispose()
    writer = database.writer(file)
    signer = Signer.of(directory / "head.key")
    builder = LogBuilder(Store(writer), DecisionLog(writer), signer)
    await builder.facts(node_seen("n1"), hardware("n1"))
    moment = DecisionContext(TwinColumns.of_state(builder.cluster_state), builder.position, 0, NOON)
    answer = decide_filter(ask(), ["n1"] * 8, moment, builder.weights)
    for _ in range(0, entries, 1_000):
        await builder.publish(*[answer] * 1_000)
        builder.sign()
    past = RecordedLog(builder, file)
    async with past.reading() as (history, _):

        def run() -> int:
            report = verify(history, signer.public, ())
            assert report.flaw is None
            return report.entries

        figures = {f"entries verified, /s, best of {RUNS}": max(rate(run) for _ in range(RUNS))}
        if jobs > 1:
            started = time.perf_counter()
            shared = verify(history, signer.public, (), ALL_ENTRIES, WorkerOptions(file, jobs))
            name = f"entries verified by {jobs} processes, /s of the clock"
            figures[name] = shared.entries / (time.perf_counter() - started)
            assert (shared.entries, shared.flaw) == (run(), None)
    writer.dispose()
    return figures


def declare(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--events", type=int, default=300_000)
    parser.add_argument("--nodes", type=int, default=1_000)
    parser.add_argument("--decisions", type=int, default=2_000)
    parser.add_argument("--entries", type=int, default=100_000)
    parser.add_argument("--jobs", type=int, default=1, help="processes that verify together")


def measured(args: argparse.Namespace) -> list[Table]:
    names = names_of(args.nodes)
    batches = telemetry(names, args.events)
    manifests = manifests_of(names, batches)
    figures = {
        "events folded, /s": fold(names, batches),
        "events folded, roots and states compared, /s": fold_and_compare(names, batches, manifests),
        "readings folded in columns, roots and states compared, /s": fold_and_compare(
            names, in_columns(batches, manifests), manifests
        ),
        **recompute(names, batches, args.decisions),
    }
    with tempfile.TemporaryDirectory() as directory:
        figures |= asyncio.run(verified(Path(directory), args.entries, args.jobs))
    return [Table.of("one process", figures)]
