"""`joulie simulate energy`: compares the energy and the completed work of placement policies."""

import argparse
import sys
from collections.abc import Callable, Iterator, Sequence
from functools import partial

from joulie_answers.text.tables import TextTable, TextWithTables
from joulie_audit.workers import on_cores
from joulie_cli.display.output import require_writable, show, write
from joulie_cli.display.progress import progress
from joulie_simulator.energy.policies import BASELINE, POLICIES
from joulie_simulator.energy.suites import (
    COMPAT,
    COMPAT_POLICIES,
    FAIR,
    FIGURES,
    IDLE_MODELS,
    KUBE_DEFAULT,
    LOADS,
    MIXED,
    QUEUE_NODES,
    QUEUE_POLICIES,
    SEEDS,
    TRACE,
    TRACE_LOAD,
    Case,
    Row,
    Size,
    compat,
    fair,
    trace,
)
from joulie_simulator.energy.switching.autoscaler import AUTOSCALERS
from joulie_simulator.energy.switching.conditions import CONDITIONS, USUAL, baseline_of
from joulie_simulator.plots import energy_plot, energy_table
from joulie_simulator.trace_file import Trace

QUICK_COMPAT = Size(nodes=500, hours=12.0)
QUICK = Size(nodes=100, hours=24.0)
PARTS = 4  # of the cases of a load, which run on different cores
SLEEPS = {"off": [False], "on": [True], "both": [False, True]}


def run(args: argparse.Namespace) -> int:
    if mistake := _mistake(args):
        print(f"joulie simulate: {mistake} Nothing was simulated.", file=sys.stderr)
        return 2
    require_writable("--plot", args.plot)
    seeds = _seeds(args)
    with progress("simulate", args.output != "table"):
        rows = _compat_rows(args, seeds) if args.suite == COMPAT else _queue_rows(args, seeds)
    baseline = BASELINE if args.suite == COMPAT else KUBE_DEFAULT
    if args.plot:
        write("--plot", args.plot, energy_plot.of(rows, baseline))
    text = as_table(rows, baseline) if args.output == "table" else ""
    show(args, [{name: getattr(row, name) for name in FIGURES} for row in rows], text)
    return 0


def as_table(rows: Sequence[Row], baseline: str) -> TextWithTables:
    head, lines = energy_table.of(rows, baseline)
    keys = [name for name in head if name in energy_table.KEYS]
    return TextWithTables.of([TextTable(head, lines, {*head} - {*keys}, keys=len(keys))])


def _seeds(args: argparse.Namespace) -> Sequence[int]:
    count = 1 if args.quick else args.seeds
    return SEEDS[:count] if args.seed is None else range(args.seed, args.seed + count)


def _mistake(args: argparse.Namespace) -> str:
    for given, known, kind in (
        (_names(args.policies), (*POLICIES, *AUTOSCALERS), "policy"),
        (_names(args.loads), LOADS, "load"),
    ):
        if unknown := [name for name in given if name not in known]:
            flag = "--policies" if kind == "policy" else "--loads"
            return f"{unknown[0]!r} is not a {kind}. {flag} takes {', '.join(known)}."
    if args.suite != TRACE and args.trace:
        return f"The suite {args.suite} has its own jobs: --trace needs --suite trace."
    if args.suite == COMPAT and args.idle:
        return "The suite compat has the idle power of the published experiment: no --idle."
    if mistake := _mistaken_sleep(args):
        return mistake
    if not 1 <= args.seeds <= len(SEEDS):
        return f"--seeds takes 1 to {len(SEEDS)}."
    return ""


def _mistaken_sleep(args: argparse.Namespace) -> str:
    if args.suite == COMPAT and (args.sleep in ("on", "both") or args.sensitivity):
        return "No node sleeps in the suite compat: --sleep takes off, and no --sensitivity."
    scaled = [name for name in _names(args.policies) if name in AUTOSCALERS]
    if scaled and (args.suite == COMPAT or args.sleep == "off"):
        return f"{scaled[0]} switches nodes off: it needs --sleep on, and not the suite compat."
    if args.sensitivity and (args.idle or args.sleep == "off"):
        return "--sensitivity varies idle power and sleep by itself: no --idle, and no --sleep off."
    return ""


def _names(text: str) -> list[str]:
    return [name for name in text.split(",") if name]


def _size(args: argparse.Namespace, usual: Size, quick: Size) -> Size:
    chosen = quick if args.quick else usual
    return Size(args.nodes or chosen.nodes, args.hours or chosen.hours)


def _compat_rows(args: argparse.Namespace, seeds: Sequence[int]) -> list[Row]:
    chosen = _names(args.policies) or COMPAT_POLICIES
    # The baseline comes first: the others are compared with it.
    policies = [BASELINE, *(name for name in chosen if name != BASELINE)]
    of_seed = partial(compat, _size(args, Size(), QUICK_COMPAT), policies=policies)
    return [row for rows in on_cores(of_seed, seeds, __name__) for row in rows]


def _queue_rows(args: argparse.Namespace, seeds: Sequence[int]) -> list[Row]:
    cases = _cases(args)
    size = _size(args, Size(nodes=QUEUE_NODES), QUICK)
    idle = IDLE_MODELS[args.idle or "measured"]
    run = partial(fair, size, idle=idle, mixed=args.suite == MIXED)
    if args.suite == TRACE:
        sizes = Trace.of(args.trace) if args.trace else None
        run = partial(trace, size, idle=idle, sizes=sizes)
    tasks = [
        (seed, part)
        for seed in seeds
        for load in dict.fromkeys(case.load for case in cases)
        for part in _parts([case for case in cases if case.load == load])
    ]
    of_task = partial(_task_rows, run)
    found = {(row.load, row.policy, row.sleep, row.conditions, row.seed): row
             for rows in on_cores(of_task, tasks, __name__) for row in rows}  # fmt: skip
    return [found[*case, seed] for case in cases for seed in seeds]


def _task_rows(run: Callable[..., list[Row]], task: tuple[int, Sequence[Case]]) -> list[Row]:
    """The rows of one seed and of some cases of one load."""
    seed, cases = task
    return run(seed=seed, cases=cases)


def _parts(cases: Sequence[Case]) -> list[Sequence[Case]]:
    """So that no core waits long for the others. Each part draws the jobs of its load again."""
    return [cases[first::PARTS] for first in range(min(PARTS, len(cases)))]


def _cases(args: argparse.Namespace) -> list[Case]:
    """The table needs the case that the others are compared with; JSON has what was asked for."""
    loads: list[str | float] = [TRACE_LOAD]
    if args.suite in (FAIR, MIXED):
        loads = [*(_names(args.loads) or LOADS)]
    is_compared = args.output == "table" or args.plot
    return [
        case
        for load in loads
        for case in dict.fromkeys(_asked(args, load, is_compared=bool(is_compared)))
    ]


def _asked(args: argparse.Namespace, load: str | float, *, is_compared: bool) -> Iterator[Case]:
    varied = [*CONDITIONS] if args.sensitivity else [USUAL]
    usual = ("joulie-energy",) if args.sensitivity else QUEUE_POLICIES
    sleeps = SLEEPS[args.sleep or ("on" if args.sensitivity else "both")]
    for conditions in varied:
        if is_compared:
            yield Case(load, KUBE_DEFAULT, False, baseline_of(conditions))
        for policy in _names(args.policies) or usual:
            for sleep in sleeps:
                if sleep or policy not in AUTOSCALERS:
                    yield Case(
                        load, policy, sleep, conditions if sleep else baseline_of(conditions)
                    )
