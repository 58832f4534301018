"""The ledger's fold and reports at scale: 5,000 nodes with ten pods each, a reading every 10 s.

Folds some hours of decoded readings and extrapolates to 30 days; a part of the readings is decoded
from messages, too, because a log holds messages. Prints the sizes of intervals for a year.
"""

import argparse
import json
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from joulie_bus.testing import bound, hardware, node_seen, power, records
from joulie_bus.testing.clock import NOON
from joulie_projections.energy.accepted import accepted
from joulie_projections.energy.intervals import Interval, day_of, packed, unpacked
from joulie_projections.energy.intervals import PodEnergy as Pod
from joulie_projections.energy.ledger import Ledger
from joulie_projections.energy.meters import Readings
from joulie_projections.energy.report import report_of
from joulie_projections.state.state import ClusterState
from joulie_projections.state.state_changes import Draft

EVERY_S = 10
DAYS = 30


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--nodes", type=int, default=5000)
    options.add_argument("--pods", type=int, default=10, help="per node")
    options.add_argument("--hours", type=int, default=3)
    print(json.dumps(measured(options.parse_args()), indent=1))


def measured(args: argparse.Namespace) -> dict[str, Any]:
    ledger = filled(args.nodes, args.pods)
    fold_s = timed(lambda: fold_hours(ledger, args.nodes, args.hours))
    packing_s = timed(lambda: [packed_size(each) for each in ledger.closed])
    per_hour_s = (fold_s + packing_s) / args.hours
    hour = next(each for each in ledger.closed if each.grain == "hour")
    day = day_of(hour.start_ms, [hour] * 24)
    days = [day] * DAYS
    decode_us = decoding_us(args.nodes)
    readings = args.nodes * 86_400 // EVERY_S * DAYS
    return {
        "readings_per_s": round(args.nodes * 360 * args.hours / fold_s),
        "fold_30_days_min": per_hour_s * 24 * DAYS / 60,
        "decode_30_days_min": decode_us * readings / 60e6,
        "report_30_days_by_node_s": timed(lambda: report_of(days, "node")),
        "report_30_days_by_namespace_s": timed(lambda: report_of(days, "namespace")),
        "report_30_days_by_pod_s": timed(lambda: report_by_pod(day)),
        "minutes_bytes": packed_size(ledger.closed[0]),
        "hour_bytes": packed_size(hour),
        "day_bytes": packed_size(day),
    }


def filled(nodes: int, pods: int) -> Ledger:
    ledger = Ledger()
    for number in range(nodes):
        name = f"node-{number:04}"
        ledger.fold([(node_seen(name), NOON), (hardware(name), NOON)])
        ledger.fold((bound(f"{name}-pod-{n}-5f7c", name), NOON) for n in range(pods))
    return ledger


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


def decoding_us(nodes: int) -> float:
    """From a message to a fact, per reading."""
    log = records(*[power(f"node-{n:04}", 300) for n in range(nodes)], name="operator")
    draft = Draft(ClusterState())
    return timed(lambda: list(accepted(draft, log, 0, ()))) * 1e6 / nodes


def timed(act: Callable[[], object]) -> float:
    """Seconds of this process: the fold has one thread, and other processes do not count."""
    started = time.process_time()
    act()
    return time.process_time() - started


if __name__ == "__main__":
    main()
