"""compare placement policies with kube-scheduler's default, by GPUs or energy.

joulie simulate gpus --nodes 500
joulie simulate energy --loads mid --quick
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from joulie_cli.command_line import options as shared
from joulie_cli.command_line.commands import Program

if TYPE_CHECKING:
    from joulie_answers.text.tables import TextWithTables
    from joulie_projections.component.wiring import Wiring
    from joulie_simulator.gpu_packing.fragments import Farm, Filling, Outcome, Policy
    from joulie_simulator.hardware.shapes import Machine
    from joulie_simulator.workload.workload import Sizes


def options(parser: argparse.ArgumentParser) -> None:
    _both(parser)
    _of_energy(parser)


def _both(parser: argparse.ArgumentParser) -> None:
    shared.output(parser)
    parser.add_argument("what", choices=("gpus", "energy"), help="the comparison")
    parser.add_argument("--trace", type=Path, metavar="FILE", help="openb's pod list (suite trace)")
    parser.add_argument("--cluster", type=Path, metavar="FILE", help="gpus: openb's node list")
    parser.add_argument(
        "--published", action="store_true", help="gpus: by the published method, beside a bound"
    )
    parser.add_argument(
        "--defragment",
        action="store_true",
        help="published: move 1 pod in 100 so that free GPUs are of use",
    )
    parser.add_argument(
        "--nodes", type=shared.count, metavar="N", help="nodes (500; suite compat 2500)"
    )
    parser.add_argument(
        "--seeds", type=shared.count, default=3, metavar="N", help="runs of each policy (3)"
    )
    parser.add_argument(
        "--seed",
        type=shared.count,
        metavar="N",
        help="energy: the first seed, of --seeds consecutive ones",
    )
    parser.add_argument(
        "--weight",
        type=shared.count,
        default=1,
        metavar="W",
        help="gpus: the extender's weight (1)",
    )


def _of_energy(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--suite",
        choices=("fair", "mixed", "compat", "trace"),
        default="fair",
        help="energy: the jobs; mixed: those of fair on nodes of two generations",
    )
    parser.add_argument(
        "--hours", type=shared.above_0, metavar="H", help="energy: simulated time (48)"
    )
    parser.add_argument(
        "--policies", default="", metavar="A,B", help="energy, published: all by default"
    )
    parser.add_argument(
        "--quick", action="store_true", help="energy: fewer nodes and hours, one seed"
    )
    parser.add_argument("--loads", default="", metavar="A,B", help="energy: low, mid, high (all)")
    parser.add_argument(
        "--sleep", choices=("on", "off", "both"), help="energy: whether empty nodes sleep (both)"
    )
    parser.add_argument(
        "--idle", choices=("measured", "peer"), help="energy: idle power (measured)"
    )
    parser.add_argument(
        "--sensitivity",
        action="store_true",
        help="energy: under conditions that differ in one thing",
    )
    parser.add_argument("--plot", type=Path, metavar="FILE", help="energy, published: an SVG plot")


NODES = 500
LOADS = (
    0.9,
    1.0,
)  # requested GPUs divided by existing GPUs: below and above capacity


HEAD = ("requested", "scored by", "in use", "unusable GPUs", "pending", "pending for 8")


def program() -> Program:
    return Program((), run)


def run(args: argparse.Namespace, _: Wiring) -> int:
    from joulie_cli.ask import simulate_energy, simulate_published
    from joulie_cli.display.output import show
    from joulie_cli.display.progress import progress
    from joulie_simulator.gpu_packing.policies import POLICIES
    from joulie_simulator.trace_file import Trace, machines_of
    from joulie_simulator.workload.workload import Table

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
    from joulie_simulator.hardware.shapes import Machine, shape_of

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
    from joulie_simulator.gpu_packing.fragments import Filling
    from joulie_simulator.gpu_packing.policies import POLICIES

    for load in LOADS:
        fillings = [Filling(seed, load, args.weight) for seed in range(1, args.seeds + 1)]
        for name, beginning in POLICIES.items():
            found = [_filled(machines, sizes, beginning, filling) for filling in fillings]
            yield {"load": load, "policy": name, **_means(found)}


def _filled(
    machines: list[Machine], sizes: Sizes, beginning: Callable[[Farm], Policy], filling: Filling
) -> Outcome:
    from joulie_simulator.gpu_packing.fragments import Farm, fill

    farm = Farm(machines)
    return fill(farm, sizes, beginning(farm), filling)


def _means(outcomes: list[Outcome]) -> dict[str, float]:
    from statistics import mean

    return {
        field: round(mean(getattr(outcome, field) for outcome in outcomes), 1)
        for field in ("gpus", "used", "stranded", "waiting", "waiting_whole")
    }


def as_table(rows: list[dict[str, Any]]) -> TextWithTables:
    from joulie_answers.text.tables import TextTable, TextWithTables

    cells = [
        (
            f"{100 * row['load']:.0f} %",
            row["policy"],
            f"{100 * row['used'] / row['gpus']:.1f} %",
            *(f"{row[name]:.0f}" for name in ("stranded", "waiting", "waiting_whole")),
        )
        for row in rows
    ]
    return TextWithTables.of([TextTable(HEAD, cells, {*HEAD} - {"scored by"}, keys=2)])
