"""What one look at the cluster costs the operator, in processor time, when nothing has changed.

    make bench, or: .venv/bin/python benchmarks/planning.py

The budget is one second at 5,000 nodes. Prints the median of several looks; the last column holds
on other machines, times do not.
"""

import argparse
import json
import statistics
import time
from pathlib import Path

from joulie_bus.events import AnyEvent
from joulie_bus.testing import bound, hardware, node_seen, noon, records
from joulie_operator.policies import BUILT_IN
from joulie_operator.reconcile import Chosen, Moment, Plan, plan
from joulie_operator.rules import Rules
from joulie_projections.draft import Draft
from joulie_projections.sequence import fold
from joulie_projections.world import World

RUNS = 5
SIZES = (100, 1_000, 5_000, 20_000)
PODS_PER_NODE = 30  # what 150,000 pods on 5,000 nodes make
RULES = Rules(policy="queue_aware_v1")


def happens(world: World, events: list[AnyEvent], name: str, at_s: float) -> None:
    draft = Draft(world)
    fold(draft, records(*events, name=name, start_s=at_s, step_s=0), 0)
    draft.commit()


def look(world: World, now_s: float) -> Plan:
    return plan(world, Chosen(BUILT_IN[RULES.policy]), RULES, Moment(1, noon(now_s)))


def settled(nodes: int) -> World:
    """A cluster in which everything is as it is wanted; every tenth node runs performance pods."""
    world = World()
    names = [f"node-{number:05d}" for number in range(nodes)]
    seen: list[AnyEvent] = []
    for at, name in enumerate(names):
        seen += [node_seen(name, gpus=at % 4), hardware(name, cores=32 + at % 160, gpus=at % 4)]
        seen += [
            bound(f"{name}-{pod}", name, performance=at % 10 == 0) for pod in range(PODS_PER_NODE)
        ]
    happens(world, seen, "watcher", 0)
    for turn in (1, 2, 3):
        happens(world, list(look(world, 60 * turn).events), f"plan-{turn}", 60 * turn)
    return world


def cpu_s(world: World) -> float:
    times = []
    for _ in range(RUNS):
        began = time.process_time()
        found = look(world, 600)
        times.append(time.process_time() - began)
        assert not found.changes
    return statistics.median(times)


def main() -> None:
    options = argparse.ArgumentParser()
    options.add_argument("--json", type=Path, help="also write the figures to this file")
    args = options.parse_args()
    print(f"{'nodes':>8}{'pods':>10}{'CPU ms per look':>18}{'µs per node':>14}")
    found = {}
    for nodes in SIZES:
        world = settled(nodes)
        seconds = cpu_s(world)
        found[nodes] = seconds
        print(
            f"{nodes:>8}{len(world.pods):>10}{seconds * 1e3:>18.1f}{seconds / nodes * 1e6:>14.2f}"
        )
    if args.json:
        args.json.write_text(json.dumps(found))


if __name__ == "__main__":
    main()
