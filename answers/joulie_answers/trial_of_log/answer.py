"""Reads a period of the log, fits what its pods use, and runs it under each setting."""

from collections import Counter
from collections.abc import Mapping, Sequence, Set
from math import inf
from pathlib import Path
from statistics import median
from typing import NamedTuple

import numpy as np

import joulie_migrations
from joulie_answers.report.form import Period
from joulie_answers.report.gather import Gathered, gathered
from joulie_answers.report.question import FIXED, Asked, asked_of
from joulie_answers.report.question import Measured as OfReport
from joulie_answers.trial_of_log.metered import Metered, RunningHour, Span, metered_in
from joulie_answers.trial_of_log.settings import Change, TriedSetting, recorded, settings_of
from joulie_answers.trial_of_log.use import Measured, fitted
from joulie_audit.access.past import facts_of
from joulie_audit.workers import on_cores
from joulie_bus.core.times import rfc3339
from joulie_bus.errors import NotTried
from joulie_operator.planning.eligible import RESERVED_LABEL, selector
from joulie_operator.planning.sleep import ZONE_LABEL
from joulie_projections.component.opening import require_readable
from joulie_projections.component.wiring import Wiring
from joulie_projections.energy.intervals import Interval
from joulie_projections.energy.report import UJ_PER_KWH
from joulie_projections.store import database
from joulie_projections.store.energy_table import EnergyTable
from joulie_simulator.energy.closed_loop import WAKE_S, Logged, Timing, Use, step_s
from joulie_simulator.energy.logged_fleet import LoggedNode
from joulie_simulator.energy.node_meter import NodeMeter
from joulie_simulator.energy.product import Product
from joulie_simulator.trial.calibration import calibrated, halves, sum_of
from joulie_simulator.trial.past import Happened, Past, PastRun, Task, Tried, Unknown, run_of

MS_PER_S = 1000
MOST_PODS = 2_000_000
WORTHWHILE = (
    200_000  # nodes times steps of all runs: with less, processes take longer than they save
)
NO_READINGS = (
    "No node has readings in this period, so that nothing could be calibrated",
    "Nothing was computed. Run agents, or set NODE_POWER_ADDRESS, or name another period with "
    "--last and --to.",
)


class Wanted(NamedTuple):
    last_ms: int  # the length of the period
    to_ms: int | None = None  # None: the newest reading
    seeds: int = 1
    changes: Sequence[Change] = ()


class Read(NamedTuple):
    """What the log holds of the period."""

    got: Gathered
    asked: Asked
    metered: Metered
    span: Span


async def trial_of_log(wires: Wiring, archive: Path | None, wanted: Wanted) -> Past:
    """Writes nothing. Raises NotTried and NotInTheLog."""
    require_readable(wires.data)
    engine = database.ledger_reader(wires.data.database)
    try:
        joulie_migrations.require(engine)
        async with facts_of(wires, archive) as (history, facts):
            table = EnergyTable(engine)
            running, newest_ms = _end_of(table)
            period = _period(wanted, newest_ms)
            got = await gathered(table, history, facts, period, history.tip())
            intervals = table.by_minutes(*period)
    finally:
        engine.dispose()
    return past_of(read_of(got, intervals, running, newest_ms), wanted)


def _end_of(table: EnergyTable) -> tuple[RunningHour | None, int]:
    state = table.load()
    return (RunningHour.of(state), state.ledger.newest_ms) if state else (None, 0)


def _period(wanted: Wanted, newest_ms: int) -> Period:
    to_ms = newest_ms if wanted.to_ms is None else min(newest_ms, wanted.to_ms)
    return Period(max(0, to_ms - wanted.last_ms), to_ms)


def read_of(
    got: Gathered, intervals: Sequence[Interval], running: RunningHour | None, newest_ms: int
) -> Read:
    asked = asked_of(got, *got.period, OfReport(0))
    if asked.why_not:
        raise NotTried(asked.why_not)
    span = asked.from_ms, asked.to_ms
    names = {node.name for node in asked.question.nodes}
    whole = running if running and _holds(span, running, got.lives.first_ms, newest_ms) else None
    metered = metered_in(intervals, span, names, got.lives.power.off, whole)
    _require(asked, metered)
    return Read(got, asked, metered, span)


def _holds(span: Span, running: RunningHour, first_ms: int, newest_ms: int) -> bool:
    """Whether the period has all of the running hour that the log has."""
    return span[0] <= max(running.start_ms, first_ms) and span[1] >= newest_ms


def _require(asked: Asked, metered: Metered) -> None:
    nodes, pods = asked.question.nodes, asked.question.pods
    if nodes and not metered.nodes:
        raise NotTried(*NO_READINGS)
    if not nodes or not pods:
        what = "pods that ran on nodes of known size" if nodes else "nodes of known size"
        times = (rfc3339(each, "seconds") for each in (asked.from_ms, asked.to_ms))
        raise NotTried(f"The log has no {what} from {' to '.join(times)}")
    if len(pods) > MOST_PODS:
        raise NotTried(
            f"The period has {len(pods)} pods, more than {MOST_PODS}",
            "Nothing was computed. Give a shorter time to --last.",
        )


def past_of(read: Read, wanted: Wanted) -> Past:
    got, question = read.got, read.asked.question
    if got.weights is None:
        raise NotTried("The newest settings of the log have values that this version does not know")
    then = recorded(got.lives, got.weights, read.span[1])
    timing = _timing(read)
    settings = settings_of(then, got.weights, wanted.changes)
    nodes = _nodes(read, settings)
    logged = Logged(nodes, question.pods, question.seconds, _use(read))
    rows, meter = _rows(settings, logged, wanted.seeds, timing)
    return Past(
        *read.span,
        got.state.position,
        then is not None,
        _has_slept(read),
        timing.wake_s,
        logged.use,
        calibrated(read.metered.spans, meter),
        _happened(read),
        _unknown(read),
        rows,
    )


def _timing(read: Read) -> Timing:
    """Where the log begins in the period, plans begin with its first one."""
    booted, plans = read.got.lives.power.booted_ms, read.got.lives.settings
    first_ms = max(0, plans[0].since_ms - read.span[0]) if plans else 0
    return Timing(median(booted) / MS_PER_S if booted else WAKE_S, first_ms / MS_PER_S)


def _nodes(read: Read, settings: Sequence[TriedSetting]) -> list[LoggedNode]:
    """With their memory, and the labels that plans read. Without plans, these cover all nodes."""
    products = [each.product for each in settings if each.product is not None]
    keys = {RESERVED_LABEL, ZONE_LABEL}.union(*(selector(each.rules.selector) for each in products))
    seen, has_plans = read.got.lives.seen, settings[0].product is not None
    return [
        node._replace(
            metered=node.name in read.metered.nodes,
            labels=_only(keys, seen[node.name].labels) if has_plans else None,
            memory=seen[node.name].memory_bytes or inf,
        )
        for node in read.asked.question.nodes
    ]


def _only(keys: Set[str], labels: Mapping[str, str]) -> Mapping[str, str]:
    return {key: value for key, value in labels.items() if key in keys}


def _use(read: Read) -> Use:
    """Of the earlier half, where the period is long enough to judge it on the later one."""
    spans, (from_ms, to_ms) = read.metered.spans, read.span
    parts = halves(spans)
    end_s = parts[0][-1].end_s if parts else spans[-1].end_s
    end_ms = from_ms + round(end_s * MS_PER_S) if parts else to_ms
    count = sum(span.end_s <= end_s for span in spans)
    hours = sum_of(span.hours for span in spans[:count])
    pods_uj = Counter[str]()
    for each in read.metered.pods_uj[:count]:
        pods_uj.update(each)
    share = hours.read_awake / hours.awake if hours.read_awake else 1.0
    lives, nodes = [*read.got.lives.pods.values()], read.got.state.ledger.nodes
    return fitted(Measured((from_ms, end_ms), pods_uj, share), lives, nodes, read.metered.nodes)


def _rows(
    settings: Sequence[TriedSetting], logged: Logged, seeds: int, timing: Timing
) -> tuple[list[Tried], NodeMeter]:
    """Equal settings run once."""
    orders = range(1, seeds + 1)
    keys = [_key(each.product) for each in settings]
    tasks = {
        (key, seed): Task(logged, each.product, seed, timing)
        for key, each in zip(keys, settings, strict=True)
        for seed in orders
    }
    found = dict(zip(tasks, _all_runs(list(tasks.values())), strict=True))
    rows = [
        Tried(each.name, each.changed, [found[key, seed][0] for seed in orders])
        for key, each in zip(keys, settings, strict=True)
    ]
    return rows, found[keys[0], 1][1]


def _key(product: Product | None) -> object:
    """The name of the preset changes nothing."""
    if product is None:
        return None
    return product.rules._replace(preset=""), product.weights


def _all_runs(tasks: Sequence[Task]) -> list[tuple[PastRun, NodeMeter]]:
    logged = tasks[0].logged
    steps = logged.seconds / step_s(logged.seconds)
    if len(tasks) * len(logged.nodes) * steps < WORTHWHILE:
        return [run_of(task) for task in tasks]
    return [run for runs in on_cores(_runs, tasks, __name__) for run in runs]


def _runs(task: Task) -> list[tuple[PastRun, NodeMeter]]:
    return [run_of(task)]


def _has_slept(read: Read) -> bool:
    happened = read.asked.question.happened
    return happened is not None and sum(happened.off_s) > 0


def _happened(read: Read) -> Happened:
    question = read.asked.question
    happened = question.happened
    if happened is None:
        return Happened(None, None, None)
    step = step_s(question.seconds)
    waits = [wait // step * step for wait in happened.waits_s]
    p50, p99 = np.percentile(waits, (50, 99)).tolist() if waits else (None, None)
    awake_s = len(question.nodes) * question.seconds - sum(happened.off_s)
    return Happened(awake_s / 3600, p50, p99)


def _unknown(read: Read) -> Unknown:
    got, asked, metered, (from_ms, to_ms) = read
    question, ledger = asked.question, got.state.ledger
    names = {node.name for node in question.nodes}
    kwh = sum(span.kwh for span in metered.spans)
    return Unknown(
        nodes=len(names),
        nodes_without_readings=len(names - metered.nodes),
        nodes_of_unknown_size=asked.unknown_nodes,
        nodes_of_unrated_cpu=sum(not ledger.nodes[each].capacity.cpu_max_mw for each in names),
        nodes_of_guessed_idle_power=asked.guessed_idle,
        pods=len(question.pods),
        pods_running_on=sum(
            life.node in names
            and life.pod.exempt not in FIXED
            and 0 < life.start_ms < to_ms
            and not 0 < life.end_ms <= to_ms
            for life in got.lives.pods.values()
        ),
        pods_never_bound=asked.never_bound,
        pods_of_daemonsets=asked.fixed,
        pods_on_unknown_nodes=asked.elsewhere,
        changes_of_settings=sum(from_ms < each.since_ms < to_ms for each in got.lives.settings),
        boots=len(got.lives.power.booted_ms),
        modelled_share=metered.modelled_uj / UJ_PER_KWH / kwh if kwh else None,
    )
