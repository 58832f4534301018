"""The pods of a log as they ran, and under other placement policies, with an interval.

The other side of a log that was made without plans is the product: the operator's plans and the
extender's decisions (`product`).

What happened, and the other policy, are in the same physics, so that errors of the physics are in
both; the runs differ by the order of equal nodes and by the power of the pods, and give the
interval.
"""

from collections.abc import Mapping, Sequence
from statistics import median
from typing import NamedTuple

import numpy as np

from joulie_simulator.energy.closed_loop import (
    BASELINE,
    Logged,
    LoggedPod,
    Setting,
    Use,
    jobs_of,
    placed_by_default,
    placed_by_product,
    step_s,
)
from joulie_simulator.energy.fleet import work_w
from joulie_simulator.energy.logged_fleet import ASLEEP, LoggedFleet, LoggedNode
from joulie_simulator.energy.product import Product
from joulie_simulator.energy.queueing import Outcome
from joulie_simulator.energy.simulation import W_SECONDS_PER_KWH


class LoggedSleep(NamedTuple):
    """The numbers of the plans that put nodes to sleep, for the report; None: none do."""

    reserve: float | None = None  # share of a pool that stays empty and awake
    max_share: float = 1.0  # of a pool that may sleep
    after_s: float | None = None  # without pods, before a node may sleep


class Happened(NamedTuple):
    """What the log holds of the period."""

    stays: Sequence[tuple[LoggedPod, int, float]]  # the node by its number, and the seconds there
    off_s: Sequence[float]  # of each node, switched off by an order to sleep
    waits_s: Sequence[float]  # of pods that were asked for in the period; for the scheduler: 0
    waiting: int  # pods at its end
    wakes: int
    of_scheduler: int = 0  # pods that waited for a step or more for the scheduler alone


class Question(NamedTuple):
    nodes: Sequence[LoggedNode]
    pods: Sequence[LoggedPod]
    seconds: float
    use: float  # of what pods request, as measured
    sleeps: bool  # whether the policy of the log puts nodes to sleep
    sleep: LoggedSleep = LoggedSleep()
    happened: Happened | None = None  # None: the policy of the log is simulated, too
    product: Product | None = None  # by which it is


class Variant(NamedTuple):
    seed: int  # of the order of equal nodes
    factor: float  # of the use


VARIANTS = (Variant(1, 1.0), Variant(2, 1.0), Variant(3, 1.0), Variant(1, 0.7), Variant(1, 1.3))


class Run(NamedTuple):
    kwh: float
    work_kwh: float
    wait_p50_s: float
    wait_p99_s: float
    placed: int
    waiting: int
    wakes: int


class Interval(NamedTuple):
    low: float
    mid: float
    high: float

    @classmethod
    def of(cls, values: Sequence[float]) -> "Interval":
        return cls(min(values), median(values), max(values))


class Comparison(NamedTuple):
    """`runs` by policy, in the order of the variants."""

    runs: Mapping[str, Sequence[Run]]
    saved_kwh: Interval  # by the policy of the log against the baseline
    saved_share: Interval
    saved_per_work: Interval  # the share of the energy per completed work


def compared(asked: Question, policy: str) -> Comparison:
    """What the log holds, or the policy of the log, beside kube-scheduler's default."""
    baseline = [run_baseline(asked, variant) for variant in VARIANTS]
    ours = [_ours(asked, variant) for variant in VARIANTS]
    pairs = list(zip(baseline, ours, strict=True))
    saved = [before.kwh - after.kwh for before, after in pairs]
    shares = [
        kwh / before.kwh if before.kwh else 0.0 for kwh, before in zip(saved, baseline, strict=True)
    ]
    per_work = [
        1 - _per_work(after) / _per_work(before) if _per_work(before) else 0.0
        for before, after in pairs
    ]
    return Comparison(
        {BASELINE: baseline, policy: ours},
        Interval.of(saved),
        Interval.of(shares),
        Interval.of(per_work),
    )


def _per_work(run: Run) -> float:
    return run.kwh / run.work_kwh if run.work_kwh else 0.0


def _ours(asked: Question, variant: Variant) -> Run:
    if asked.happened is not None:
        return as_it_ran(asked, asked.happened, min(1.0, asked.use * variant.factor))
    assert asked.product is not None, "a log without plans is compared with the product"
    return _run_product(asked, variant, asked.product)


def as_it_ran(asked: Question, happened: Happened, use: float) -> Run:
    fleet = LoggedFleet(asked.nodes)
    on_s = asked.seconds - (1 - ASLEEP) * np.array(happened.off_s)
    watt_seconds, work = float((fleet.idle_w * on_s).sum()), 0.0
    for pod, node, seconds in happened.stays:
        (job,) = jobs_of([pod], Use(use, use), 1.0)
        watt_seconds += fleet.dynamic_of(node, job) * seconds
        work += work_w(job) * seconds
    # In whole steps, as in a simulated run: a pod that is placed within a step has not waited.
    step = step_s(asked.seconds)
    waits = [wait // step * step for wait in happened.waits_s]
    p50, p99 = np.percentile(waits, (50, 99)).tolist() if waits else (0.0, 0.0)
    return Run(
        watt_seconds / W_SECONDS_PER_KWH,
        work / W_SECONDS_PER_KWH,
        p50,
        p99,
        len(happened.stays),
        happened.waiting,
        happened.wakes,
    )


def _setting(asked: Question, variant: Variant) -> Setting:
    use = min(1.0, asked.use * variant.factor)
    pods = [pod._replace(memory=0.0) for pod in asked.pods]  # nodes have any memory here
    logged = Logged(asked.nodes, pods, asked.seconds, Use(use, use))
    return Setting.of(logged, variant.seed)


def run_baseline(asked: Question, variant: Variant) -> Run:
    setting = _setting(asked, variant)
    return _slowed(placed_by_default(setting), setting.speed)


def _run_product(asked: Question, variant: Variant, product: Product) -> Run:
    setting = _setting(asked, variant)
    return _slowed(placed_by_product(setting, product), setting.speed)


def _slowed(outcome: Outcome, speed: float) -> Run:
    return Run(
        outcome.kwh / speed,
        outcome.work_kwh / speed,
        outcome.wait_p50_s / speed,
        outcome.wait_p99_s / speed,
        outcome.admitted,
        outcome.waiting,
        outcome.switched.wakes,
    )
