"""Measures the pure functions: fold, snapshot, filter, score. One process, no I/O.

    make bench NAME=thinking [ARGS="--nodes 5000"]

Medians of several runs. Ratios are comparable between machines, absolute times are not.
"""

import argparse
import statistics
import time
from collections.abc import Callable
from functools import partial

import numpy as np
from report import Table

from bus_kit import NOON, SECOND, ask, caps, hardware, node_seen, producer, records
from joulie_bus.events import PodAsk, TelemetrySampled
from joulie_bus.streams.records import Record
from joulie_bus.streams.subjects import Stream
from joulie_extender.catalogue.weights import Weights
from joulie_extender.decide.decide import DecisionContext, decide_filter, decide_prioritize
from joulie_projections.fold.sequence import fold
from joulie_projections.state.rows import changed_rows, empty_digests
from joulie_projections.state.state import ClusterState
from joulie_projections.state.state_changes import Draft
from joulie_projections.twin.columns import TwinColumns

RUNS = 7
SMALLEST = {"nodes": 500}


def median_s(call: Callable[[], object]) -> float:
    times = []
    for _ in range(RUNS):
        started = time.perf_counter()
        call()
        times.append(time.perf_counter() - started)
    return statistics.median(times)


def cluster(nodes: int) -> ClusterState:
    """A state of `nodes` nodes that were seen, measured and capped."""
    cluster_state = ClusterState()
    draft = Draft(cluster_state)
    names = [f"node-{number:05d}.example.internal" for number in range(nodes)]
    events = [
        event
        for name in names
        for event in (node_seen(name), hardware(name), caps(name, 60), sample(name, 300))
    ]
    fold(draft, records(*events, step_s=0.001), 0)
    draft.commit()
    return cluster_state


def sample(node: str, watts: float) -> TelemetrySampled:
    return TelemetrySampled(node=node, power_mw=round(watts * 1000), provider="bench")


def telemetry(names: list[str], count: int) -> list[Record]:
    says = producer("bench-tel")
    made: list[Record] = []
    for number in range(count):
        message = says.stamp(sample(names[number % len(names)], 300 + number % 50))
        at = NOON + 60 * SECOND + number * 100_000
        made.append(Record(Stream.TEL, number + 1, at, message.data, message.subject))
    return made


def figures(nodes: int) -> dict[str, float]:
    cluster_state = cluster(nodes)
    names = list(cluster_state.nodes)
    facts = telemetry(names, 20_000)
    draft = Draft(cluster_state)
    found: dict[str, float] = {}

    def fold_all() -> None:
        fold(Draft(cluster_state), facts, 0)

    found["fold, events/s"] = len(facts) / median_s(fold_all)
    fold(draft, facts[:1000], 0)
    found["rows and digest of 1,000 changed nodes, ms"] = (
        median_s(lambda: changed_rows(draft.changed(), empty_digests())) * 1000
    )
    twin_columns = TwinColumns.of(cluster_state.nodes, NOON)
    dirty = [(name, cluster_state.nodes[name]) for name in names[:100]]
    found["board, 100 changed rows, ms"] = (
        median_s(lambda: twin_columns.updated(dirty, NOON)) * 1000
    )
    found |= answers(twin_columns, names)
    return found


def look_up(twin_columns: TwinColumns, names: list[str]) -> list[int | None]:
    return [twin_columns.rows.get(name) for name in names]


def answers(twin_columns: TwinColumns, names: list[str]) -> dict[str, float]:
    found: dict[str, float] = {}
    moment = DecisionContext(twin_columns, 1, 0, NOON + 10 * SECOND)
    pod, weights = ask(performance=True, cores=8), Weights()
    shuffled = [names[at] for at in np.random.default_rng(1).permutation(len(names))]
    for count in (100, 500, 5000):
        asked = shuffled[:count]
        if len(asked) < count:
            continue
        floor = median_s(partial(look_up, twin_columns, asked))
        filtered = median_s(partial(decide_filter, pod, asked, moment, weights))
        scored = median_s(partial(decide_prioritize, pod, asked, moment, weights))
        found[f"look up {count} names (floor), ms"] = floor * 1000
        found[f"filter {count}, ms"] = filtered * 1000
        found[f"prioritize {count}, ms"] = scored * 1000
        found[f"prioritize {count} / floor"] = scored / floor
        first = median_s(partial(_on_a_new_twin_columns, pod, asked, moment, weights))
        found[f"prioritize {count}, first on a board, ms"] = first * 1000
    return found


def _on_a_new_twin_columns(
    pod: PodAsk, asked: list[str], moment: DecisionContext, weights: Weights
) -> None:
    moment.twin_columns.memo.clear()
    decide_prioritize(pod, asked, moment, weights)


def declare(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--nodes", type=int, default=5000)


def measured(args: argparse.Namespace) -> list[Table]:
    return [Table.of("thinking", figures(args.nodes))]
