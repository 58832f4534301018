"""`joulie simulate gpus --published`: GPU packing by the published method.

See `joulie_simulator.gpu_packing.published`.
"""

import argparse
import random
import sys
from collections.abc import Mapping, Sequence
from functools import partial
from itertools import product
from statistics import mean

from joulie_answers.text.tables import TextTable, TextWithTables
from joulie_audit.workers import on_cores
from joulie_cli.display.output import require_writable, show, write
from joulie_cli.display.progress import progress
from joulie_extender.gpu.pool import Pool, PoolNode
from joulie_extender.gpu.shapes import CARD, Shape
from joulie_simulator.gpu_packing.defragmented import DefragmentedRow, defragmented
from joulie_simulator.gpu_packing.published import LEVELS, Row, bounds, filled, misfit, pool_of
from joulie_simulator.gpu_packing.published_policies import POLICIES
from joulie_simulator.hardware.shapes import shape_of
from joulie_simulator.plots import packing_plot
from joulie_simulator.trace_file import machines_of, shapes_of
from joulie_simulator.workload.workload import CARD_MB, Size, Table

NODES = 500
DEFRAGMENTED = (90, 100)  # percent of the GPUs that arrive before the plan is made
PODS = 4000  # of the built-in list
MOVE_FIGURES = (
    *("free", "unusable", "unusable_after", "unusable_carried_out", "unusable_by_joulie"),
    *("cards", "cards_after", "waiting"),
)


def run(args: argparse.Namespace) -> int:
    names = [name for name in args.policies.split(",") if name] or list(POLICIES)
    pods = shapes_of(args.trace) if args.trace else _our_pods()
    pool = pool_of(_nodes(args))
    if mistake := _mistake(args, names) or misfit(pods, pool):
        print(f"joulie simulate: {mistake}. Nothing was simulated.", file=sys.stderr)
        return 2
    require_writable("--plot", args.plot)
    seeds = range(1, args.seeds + 1)
    if args.defragment:
        return _defragment(args, names, pool, pods)
    with progress("simulate", args.output != "table"):
        runs = on_cores(partial(_filled, pool, pods), [*product(names, seeds)], __name__)
        rows = [row for run in runs for row in run]
        most = bounds(pool, pods, seeds)
    if args.plot:
        write("--plot", args.plot, packing_plot.of(rows, most))
    show(args, [row._asdict() for row in rows] + _bound_rows(most), as_table(rows, most))
    return 0


def _defragment(
    args: argparse.Namespace, names: Sequence[str], pool: Pool, pods: Sequence[Shape]
) -> int:
    rows = list[DefragmentedRow]()
    with progress("simulate", args.output != "table"):
        for name, level, seed in product(names, DEFRAGMENTED, range(1, args.seeds + 1)):
            empty = Pool(pool.nodes)
            policy = POLICIES[name](empty, pods, seed)
            rows.append(defragmented(name, policy, empty, pods, (seed, level)))
    show(args, [row._asdict() for row in rows], as_moves(rows))
    return 0


def _filled(pool: Pool, pods: Sequence[Shape], run: tuple[str, int]) -> list[Row]:
    (name, seed), empty = run, Pool(pool.nodes)
    return filled(name, POLICIES[name](empty, pods, seed), empty, pods, seed)


def _mistake(args: argparse.Namespace, names: Sequence[str]) -> str:
    if unknown := [name for name in names if name not in POLICIES]:
        return f"{unknown[0]!r} is not a policy. --policies takes {', '.join(POLICIES)}"
    return "" if args.seeds > 0 else f"--seeds {args.seeds} gives no run; it takes 1 or more"


def _nodes(args: argparse.Namespace) -> list[PoolNode]:
    if args.cluster:
        return [
            PoolNode(machine.milli, machine.memory_mib, machine.gpus, machine.model)
            for machine in machines_of(args.cluster)
        ]
    shapes = [shape_of(number) for number in range(args.nodes or NODES)]
    return [
        PoolNode(shape.cores * 1000, shape.memory_gib * 1024, shape.cards.number, shape.cards.model)
        for shape in shapes
        if shape.cards
    ]


def _our_pods() -> list[Shape]:
    """Pods of the demo; those without GPUs as many as in the trace, one in seven."""
    draw, table = random.Random(1), Table()
    sizes = [table.draw(draw) for _ in range(5 * PODS)]
    with_gpus = [size for size in sizes if size.gpus]
    without = [size for size in sizes if not size.gpus][: len(with_gpus) // 6]
    return [_shape(size) for size in with_gpus + without]


def _shape(size: Size) -> Shape:
    share = max(1, round(size.gpu_mb * CARD / CARD_MB)) if size.gpu_mb else CARD
    return Shape(round(size.cores * 1000), size.memory_mib, size.gpus, share if size.gpus else 0)


def _bound_rows(most: Mapping[int, float]) -> list[dict[str, object]]:
    return [
        {"policy": "bound", "seed": None, "arrived": level, "allocated": share, "watts": None}
        for level, share in most.items()
    ]


def as_moves(rows: Sequence[DefragmentedRow]) -> TextWithTables:
    """Means of the seeds, in GPUs."""
    head = (
        *("arrived", "moved", "free", "of no use", "after", "carried out", "by Joulie"),
        *("whole cards", "after", "then fit"),
    )
    cells = []
    for name, level in dict.fromkeys((row.policy, row.arrived) for row in rows):
        found = [row for row in rows if (row.policy, row.arrived) == (name, level)]
        share = 100 * mean(row.moved / row.pods for row in found)
        means = [f"{mean(getattr(row, field) for row in found):.1f}" for field in MOVE_FIGURES]
        cells.append((name, f"{level} %", f"{share:.2f} %", *means))
    return TextWithTables.of([TextTable(("", *head), cells, {*head})])


def as_table(rows: Sequence[Row], most: Mapping[int, float]) -> TextWithTables:
    """Means of the seeds: GPUs allocated in percent, and kilowatts."""
    levels = [f"{level} %" for level in LEVELS]
    cells = []
    for name in dict.fromkeys(row.policy for row in rows):
        found = [
            [row for row in rows if (row.policy, row.arrived) == (name, level)] for level in LEVELS
        ]
        cells.append((name, *(cell for each in found for cell in _allocated(each))))
    cells.append(("bound", *(cell for share in most.values() for cell in (f"{share:.2f} %", ""))))
    head = ("arrived", *(cell for level in levels for cell in (level, "kW")))
    return TextWithTables.of([TextTable(head, cells, {*levels, "kW"})])


def _allocated(found: Sequence[Row]) -> tuple[str, str]:
    watts = mean(row.watts for row in found)
    return f"{mean(row.allocated for row in found):.2f} %", f"{watts / 1000:.0f}"
