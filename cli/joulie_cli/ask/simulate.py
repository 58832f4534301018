"""`joulie simulate gpus`: compares GPU packing policies on the pods of a trace.

`joulie simulate energy` is in `simulate_energy`, and `--published` in `simulate_published`.
"""

import argparse
from collections.abc import Callable, Iterator
from statistics import mean
from typing import Any

from joulie_cli.ask import simulate_energy, simulate_published
from joulie_cli.display.output import show
from joulie_cli.display.progress import progress
from joulie_cli.wiring import Wiring
from joulie_simulator.gpu_packing.fragments import Farm, Filling, Outcome, Policy, fill
from joulie_simulator.gpu_packing.policies import POLICIES
from joulie_simulator.hardware.shapes import Machine, shape_of
from joulie_simulator.trace_file import Trace, machines_of
from joulie_simulator.workload.workload import Sizes, Table

SETTINGS = ()
NODES = 500
LOADS = (
    0.9,
    1.0,
)  # requested GPUs divided by existing GPUs: below and above capacity
HEAD = ("requested", "scored by", "in use", "unusable", "pending", "pending for 8")


def run(args: argparse.Namespace, _: Wiring) -> int:
    if args.what == "energy":
        return simulate_energy.run(args)
    if args.published:
        return simulate_published.run(args)
    sizes: Sizes = Trace.of(args.trace) if args.trace else Table()
    machines = machines_of(args.cluster) if args.cluster else _ours(args.nodes or NODES)
    with progress("simulate", args.output != "table") as tell:
        rows = list[dict[str, Any]]()
        for row in _measured(machines, sizes, args):
            rows.append(row)
            if tell is not None:
                tell(len(rows), len(LOADS) * len(POLICIES))
    show(args, rows, as_table(rows))
    return 0


def _ours(nodes: int) -> list[Machine]:
    """The machines of the demo's cluster."""
    shapes = [shape_of(number) for number in range(nodes)]
    return [
        Machine(
            shape.cores * 1000,
            shape.memory_gib * 1024,
            shape.gpus,
            is_linked=shape.cards is not None and shape.cards.is_linked,
        )
        for shape in shapes
    ]


def _measured(
    machines: list[Machine], sizes: Sizes, args: argparse.Namespace
) -> Iterator[dict[str, Any]]:
    for load in LOADS:
        fillings = [Filling(seed, load, args.weight) for seed in range(1, args.seeds + 1)]
        for name, beginning in POLICIES.items():
            found = [_filled(machines, sizes, beginning, filling) for filling in fillings]
            yield {"load": load, "policy": name, **_means(found)}


def _filled(
    machines: list[Machine], sizes: Sizes, beginning: Callable[[Farm], Policy], filling: Filling
) -> Outcome:
    farm = Farm(machines)
    return fill(farm, sizes, beginning(farm), filling)


def _means(outcomes: list[Outcome]) -> dict[str, float]:
    return {
        field: round(mean(getattr(outcome, field) for outcome in outcomes), 1)
        for field in ("gpus", "used", "stranded", "waiting", "waiting_whole")
    }


def as_table(rows: list[dict[str, Any]]) -> str:
    lines = ["{:<11}{:<34}{:>8}{:>16}{:>11}{:>16}".format(*HEAD)]
    for row in rows:
        used = f"{100 * row['used'] / row['gpus']:.1f} %"
        lines.append(
            f"{100 * row['load']:>4.0f} %     {row['policy']:<34}{used:>8}"
            f"{row['stranded']:>11.0f} GPUs{row['waiting']:>11.0f}{row['waiting_whole']:>16.0f}"
        )
    return "\n".join(lines)
