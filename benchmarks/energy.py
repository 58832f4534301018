"""The ledger at scale: 5,000 nodes with ten pods each, a reading every 10 s.

    make bench NAME=energy [ARGS="--nodes 5000 --hours 3"]

Folds some minutes of them in the three forms in which the product has them (columns of the archive,
messages, columns in memory) and extrapolates to 30 days, in minutes of one core. A pod that starts
and ends is folded beside the readings; its cost is printed on its own. Also prints the time of
reports, and the sizes of intervals for a year.
"""

import argparse
import gc
import hashlib
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from report import Table

from bus_kit import bound, hardware, node_seen, pending, power
from bus_kit.clock import NOON
from bus_kit.stamping import CLUSTER, Voices
from joulie_audit.archive.columnar import Parquet
from joulie_audit.archive.unarchived import PART_ROWS
from joulie_audit.columns.facts import fact_tables
from joulie_audit.columns.ledger_columns import ledger_columns
from joulie_audit.columns.messages import Messages
from joulie_audit.columns.tables import CARD_READINGS, KINDS, READINGS
from joulie_audit.ledger.follow import PASS_S
from joulie_bus.events import AnyEvent, PodFinished, PodGone
from joulie_bus.streams.records import Record
from joulie_bus.streams.subjects import stream_of
from joulie_projections.energy.intervals import (
    DAY_MS,
    KEPT_MS,
    LENGTHS,
    Grain,
    Interval,
    day_of,
    packed,
    unpacked,
)
from joulie_projections.energy.intervals import PodEnergy as Pod
from joulie_projections.energy.ledger import Ledger
from joulie_projections.energy.meters import Readings
from joulie_projections.energy.report import report_of
from joulie_projections.energy.saved import LedgerState

SMALLEST = {"nodes": 10, "pods": 2, "hours": 1, "parts": 1, "rows": 10_000, "starts": 20}
EVERY_S = 10
DAYS = 30
FIRST = 1  # the position of the first record of a part
FORMAT = Parquet()


def declare(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--nodes", type=int, default=5000)
    parser.add_argument("--pods", type=int, default=10, help="per node")
    parser.add_argument("--hours", type=int, default=3, help="folded from memory")
    parser.add_argument("--parts", type=int, default=3, help="of the archive, within one hour")
    parser.add_argument("--rows", type=int, default=PART_ROWS, help="readings of a part")
    parser.add_argument("--starts", type=int, default=1000, help="pods that start, in one part")


def measured(args: argparse.Namespace) -> list[Table]:
    with tempfile.TemporaryDirectory() as place:
        stored = of_stored_log(args, Path(place))
    return [Table.of("stored log", stored), Table.of("in memory", of_memory(args))]


# --- a log ------------------------------------------------------------------------------------


class Log:
    """The records of a cluster, part by part."""

    def __init__(self, nodes: int, pods: int, rows: int = PART_ROWS) -> None:
        self._rows = rows
        self._names = [f"node-{n:04}" for n in range(nodes)]
        self._voices = Voices("operator", CLUSTER, lambda: NOON)
        self._random = np.random.default_rng(1)
        self._count = self._pods = 0
        self._at = NOON
        self._first = self._records(
            [
                *(fact for name in self._names for fact in (node_seen(name), hardware(name))),
                *(bound(f"{name}-pod-{n}-5f7c", name) for name in self._names for n in range(pods)),
                *self._readings(nodes),
            ],
            0,
        )

    def started(self) -> LedgerState:
        state = LedgerState()
        state.fold(self._first, ())
        return state

    def part(self, starts: int = 0) -> list[Record]:
        """As many readings as a part of the archive has facts, and pods that start and end."""
        facts = self._readings(self._rows)
        every = self._rows // max(1, starts)
        for number in range(starts):
            self._pods += 1
            uid, node = f"started-{self._pods}", self._names[number % len(self._names)]
            ended = [PodFinished(uid=uid), PodGone(uid=uid)]
            facts[number * every] = [pending(uid), bound(uid, node), facts[number * every]]
            facts[(number + 1) * every - 1] = [*ended, facts[(number + 1) * every - 1]]
        flat = [fact for each in facts for fact in (each if isinstance(each, list) else [each])]
        return self._records(flat, EVERY_S * 10**9 // len(self._names))

    def _readings(self, count: int) -> list[Any]:
        places = range(self._count, self._count + count)
        self._count += count
        watts = self._random.integers(200, 900, count).tolist()
        return [
            power(self._names[at % len(self._names)], w)
            for at, w in zip(places, watts, strict=True)
        ]

    def _records(self, facts: Sequence[AnyEvent], step_ns: int) -> list[Record]:
        made: list[Record] = []
        for fact in facts:
            message = self._voices.stamp(fact)
            self._at += step_ns
            made.append(Record(stream_of(fact), 1, self._at, message.data, message.subject))
        return made


def of_stored_log(args: argparse.Namespace, place: Path) -> dict[str, Any]:
    log = Log(args.nodes, args.pods, args.rows)
    by_columns, by_messages = log.started(), log.started()
    # The end of the first hour is in these; `hour_s` measures one by itself.
    first = [log.part() for _ in range(4)]
    fold_files(by_columns, [written(place / f"first-{at}", part) for at, part in enumerate(first)])
    fold_records(by_messages, first)
    parts = [log.part() for _ in range(args.parts)]
    files = [written(place / f"{number}", part) for number, part in enumerate(parts)]
    gc.collect()
    gc.freeze()  # the messages of this log, which the ledger's own process does not have
    columns_s = timed(lambda: fold_files(by_columns, files))
    messages_s = timed(lambda: fold_records(by_messages, parts))
    assert by_columns.packed() == by_messages.packed()
    busy = log.part(args.starts)
    busy_file = written(place / "busy", busy)
    busy_s = timed(lambda: fold_file(by_columns, busy_file)) - columns_s / args.parts
    commit_s = timed(by_columns.packed)
    readings = args.parts * args.rows
    whole = args.nodes * 86_400 // EVERY_S * DAYS
    more = (1 + commit_s / PASS_S) / 60  # the state is committed after each PASS_S
    hours_min = 24 * DAYS * hour_s(by_columns) / 60
    return {
        "30 days from the archive, minutes": columns_s / readings * whole * more + hours_min,
        "30 days from messages, minutes": messages_s / readings * whole * more + hours_min,
        "archive, bytes of a reading": sum(size_of(file) for file in files) / readings,
        "a pod that starts and ends, µs": busy_s / args.starts * 1e6,
    }


class Kept(NamedTuple):
    place: Path
    others: Sequence[tuple[int, Record]]


def written(place: Path, part: Sequence[Record]) -> Kept:
    place.mkdir()
    placed = list(enumerate(part, FIRST))
    made = fact_tables(Messages.of(placed), ())
    for table in (READINGS, CARD_READINGS):
        FORMAT.write(place / table.name, made.typed[table.name], table.kinds)
    return Kept(place, made.split(placed)[1])


def size_of(kept: Kept) -> int:
    return (kept.place / READINGS.name).stat().st_size


def fold_files(state: LedgerState, files: Sequence[Kept]) -> None:
    for file in files:
        fold_file(state, file)


def fold_records(state: LedgerState, parts: Sequence[Sequence[Record]]) -> None:
    for part in parts:
        state.fold(part, ())


def fold_file(state: LedgerState, kept: Kept) -> None:
    """As the ledger does with a part of the archive."""
    files = {table.name: kept.place / table.name for table in (READINGS, CARD_READINGS)}
    contents = {name: file.read_bytes() for name, file in files.items()}
    for content in contents.values():
        hashlib.sha256(content).hexdigest()
    readings, cards = (FORMAT.arrays(contents[name], KINDS[name]) for name in contents)
    count = len(readings.integers["position"]) + len(kept.others)
    assert state.fold_columns(ledger_columns(readings, cards, kept.others, FIRST, count), ())


def hour_s(state: LedgerState) -> float:
    """The end of an hour, with its rows."""
    return timed(state.ledger.end) + timed(lambda: [packed_size(i) for i in state.take_closed()])


# --- in memory --------------------------------------------------------------------------------


def of_memory(args: argparse.Namespace) -> dict[str, Any]:
    ledger = Log(args.nodes, args.pods).started().ledger
    fold_s = timed(lambda: fold_hours(ledger, args.nodes, args.hours))
    packing_s = timed(lambda: [packed_size(each) for each in ledger.closed])
    hour = next(each for each in ledger.closed if each.grain == "hour")
    day = day_of(hour.start_ms, [hour] * 24)
    days, readings = [day] * DAYS, args.hours * 360 * args.nodes
    return {
        "30 days from memory, minutes": (fold_s + packing_s) / args.hours * 24 * DAYS / 60,
        "report of 30 days by node, s": timed(lambda: report_of(days, "node")),
        "report of 30 days by namespace, s": timed(lambda: report_of(days, "namespace")),
        "report of 30 days by pod, s": timed(lambda: report_by_pod(day)),
        "minutes, bytes": packed_size(ledger.closed[0]),
        "an hour, bytes": packed_size(hour),
        "a day, bytes": packed_size(day),
        "a year, MB": year_mb({"minutes": ledger.closed[0], "hour": hour, "day": day}),
        "500 readings a second, % of a core": 500 * fold_s / readings * 100,
    }


def year_mb(intervals: Mapping[Grain, Interval]) -> float:
    """What is kept of a year: fine intervals for a shorter time."""
    kept_ms: dict[Grain, int] = {**KEPT_MS, "day": 365 * DAY_MS}
    return sum(
        packed_size(interval) * kept_ms[grain] / LENGTHS[grain] / 1e6
        for grain, interval in intervals.items()
    )


def fold_hours(ledger: Ledger, nodes: int, hours: int) -> None:
    rows = np.array([ledger.row_of(f"node-{n:04}") for n in range(nodes)], np.intp)
    random = np.random.default_rng(1)
    for tick in range(hours * 360 + 1):
        at = np.full(nodes, NOON // 1_000_000 + tick * EVERY_S * 1000, np.int64)
        mw = random.integers(200_000, 900_000, nodes)
        ledger.fold_columns(Readings(rows, at, mw, np.zeros(nodes, np.int64)))
    ledger.end()


def packed_size(interval: Interval) -> int:
    return len(packed(interval.nodes)) + len(packed(interval.groups)) + len(packed(interval.pods))


def report_by_pod(day: Interval) -> None:
    """Unpacks and adds up the pods of each day, as a report does."""
    body = packed(day.pods)
    report_of([day._replace(pods=unpacked(body, Pod)) for _ in range(DAYS)], "pod")


def timed(act: Callable[[], object]) -> float:
    """Seconds of this process: the fold has one thread, and other processes do not count."""
    started = time.process_time()
    act()
    return time.process_time() - started
