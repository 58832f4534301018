"""Suites: combinations of jobs, fleet and policies, and their result rows."""

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from joulie_simulator.energy.fleet import GPU_NODE_CARDS, MEASURED, PEER, Fleet, IdleModel
from joulie_simulator.energy.folded import FoldedCluster
from joulie_simulator.energy.jobs import Job, reference_jobs
from joulie_simulator.energy.policies import BASELINE, POLICIES
from joulie_simulator.energy.product import (
    AWAKE,
    PRODUCT_POLICIES,
    SAVING,
    PlannedNodes,
    Product,
    run_product,
)
from joulie_simulator.energy.queueing import Beside, Outcome, run_queueing
from joulie_simulator.energy.simulation import Result, run_dropping
from joulie_simulator.energy.streams import Load, fair_jobs, kept_shares, trace_jobs
from joulie_simulator.energy.switching.autoscaler import AUTOSCALERS, ClusterAutoscaler
from joulie_simulator.energy.switching.conditions import CONDITIONS, USUAL, Conditions
from joulie_simulator.energy.trend import Trends
from joulie_simulator.workload.workload import Sizes

REFERENCE_NODES, REFERENCE_HOURS = 2500, 48.0
QUEUE_NODES = 500
SEEDS = (42, 123, 456, 789, 1337, 2024, 9999, 31415)  # those of the published experiment
COMPAT, FAIR, MIXED, TRACE = "compat", "fair", "mixed", "trace"
IDLE_MODELS: Mapping[str, IdleModel] = {model.name: model for model in (MEASURED, PEER)}
# Mean demand divided by what exists; at the peak of the day 1.6 times as much arrives.
LOADS: Mapping[str, Load] = {
    "low": Load(0.24, 0.20),
    "mid": Load(0.49, 0.41),
    "high": Load(0.67, 0.57),
}
TRACE_LOAD = 0.54  # of all GPUs, by the requests of pods
KUBE_DEFAULT = "kube-default"
QUEUE_POLICIES = (
    KUBE_DEFAULT,
    "cluster-autoscaler",
    "most-allocated",
    "most-allocated-taint",
    "joulie",
    "joulie-energy",
    "random",
    "refuse-big",
)


class Size(NamedTuple):
    nodes: int = REFERENCE_NODES
    hours: float = REFERENCE_HOURS


class Row(NamedTuple):
    suite: str
    load: str | float  # fair: its name; compat: share of the reference's arrivals; trace: of GPUs
    policy: str
    sleep: bool
    seed: int
    kwh: float
    work: float
    kwh_per_work: float
    dropped: int
    unfinished: int  # running at the end, and in a queue: waiting at the end
    wait_p50_s: float  # of jobs that a queue admitted; a dropped job does not wait
    wait_p99_s: float
    wakes: int
    wait_max_s: float = 0.0
    wait_max_performance_s: float = 0.0
    planner: str = ""  # real: the operator plans; cluster-autoscaler; empty: no node sleeps
    base_kwh: float = 0.0  # this and the next two: the parts of `kwh`, with a queue
    idle_cards_kwh: float = 0.0
    dynamic_kwh: float = 0.0
    stuck: int = 0  # jobs for all cards of a node that still wait at the end
    conditions: str = USUAL  # a name of `CONDITIONS`
    wait_p99_performance_s: float = 0.0
    wait_p99_standard_s: float = 0.0
    wait_max_standard_s: float = 0.0
    boot_kwh: float = 0.0  # a part of `kwh`: of nodes between the order to wake and their first job
    lost: int = 0  # nodes that never came back
    restarts: int = 0  # of jobs that were evicted
    power_w: tuple[float, ...] = ()  # of each minute; for plots


FIGURES = tuple(name for name in Row._fields if name != "power_w")


class Case(NamedTuple):
    """One run with a queue."""

    load: str | float
    policy: str
    sleep: bool
    conditions: str = USUAL


def compat(size: Size, seed: int, policies: Sequence[str]) -> list[Row]:
    """The published experiment, job for job: jobs that fit nowhere are dropped, no node sleeps.

    Demand for GPUs is forty times the capacity, so less energy can mean less work: compare
    `kwh_per_work`.
    """
    jobs = thinned(reference_jobs(seed, size.hours), size.nodes / REFERENCE_NODES, seed)
    return [_compat_row(policy, seed, run_compat(size, jobs, policy)) for policy in policies]


def run_compat(size: Size, jobs: list[Job], policy: str) -> Result:
    gpu_nodes = size.nodes // 5
    fleet = Fleet(size.nodes - gpu_nodes, gpu_nodes, PEER)
    trends = Trends(fleet.size)
    return run_dropping(fleet, jobs, POLICIES[policy](trends), trends, int(size.hours * 60))


def thinned(jobs: list[Job], share: float, seed: int) -> list[Job]:
    """A random sample of the jobs, so that a smaller fleet has as many jobs per node."""
    if share >= 1:
        return jobs
    drawn = np.random.default_rng((seed, 1)).random(len(jobs))
    return [job for job, at in zip(jobs, drawn, strict=True) if at < share]


def fair(
    size: Size,
    seed: int,
    cases: Sequence[Case],
    idle: IdleModel = MEASURED,
    *,
    mixed: bool = False,
) -> list[Row]:
    """The reference's classes at loads that the fleet can carry; no job is dropped.

    One node in five has GPUs. A mixed fleet has two generations of nodes.
    """
    gpu_nodes = size.nodes // 5
    cpu_nodes = size.nodes - gpu_nodes

    def jobs_of(load: str | float) -> list[Job]:
        return fair_jobs(seed, size.hours, kept_shares(cpu_nodes, gpu_nodes, LOADS[str(load)]))

    suite = _Suite(MIXED if mixed else FAIR, jobs_of, (cpu_nodes, gpu_nodes), idle)
    return _rows(suite, size, seed, cases)


def trace(
    size: Size,
    seed: int,
    cases: Sequence[Case],
    idle: IdleModel = MEASURED,
    sizes: Sizes | None = None,
) -> list[Row]:
    """Pods with the sizes and run times of openb; four nodes in five have GPUs, as there."""
    cpu_nodes = size.nodes // 5
    gpu_nodes = size.nodes - cpu_nodes

    def jobs_of(load: str | float) -> list[Job]:
        return trace_jobs(seed, size.hours, gpu_nodes * GPU_NODE_CARDS, float(load), sizes)

    return _rows(_Suite(TRACE, jobs_of, (cpu_nodes, gpu_nodes), idle), size, seed, cases)


class _Suite(NamedTuple):
    name: str
    jobs_of: Callable[[str | float], list[Job]]  # of a load
    nodes: tuple[int, int]  # without and with GPUs
    idle: IdleModel

    def conditions(self, case: Case) -> Conditions:
        usual = CONDITIONS[case.conditions]
        return usual._replace(idle=self.idle) if case.conditions == USUAL else usual


def _rows(suite: _Suite, size: Size, seed: int, cases: Sequence[Case]) -> list[Row]:
    jobs = {load: suite.jobs_of(load) for load in dict.fromkeys(case.load for case in cases)}
    found = []
    for case in cases:
        conditions = suite.conditions(case)
        mixed = suite.name == MIXED
        fleet = Fleet(*suite.nodes, conditions.idle, conditions.asleep, mixed=mixed)
        done = run_case(fleet, jobs[case.load], case, int(size.hours * 60))
        found.append(_queue_row(suite.name, case, seed, done))
    return found


def run_case(fleet: Fleet, jobs: Sequence[Job], case: Case, minutes: int) -> Outcome:
    """With sleep, the plans of the operator; and for its policies the answers of the extender."""
    trends, conditions = Trends(fleet.size), CONDITIONS[case.conditions]
    if rules := AUTOSCALERS.get(case.policy):
        scaler = ClusterAutoscaler(fleet, rules, conditions.wake_minutes)
        beside = Beside(trends, scaler, scaler)
        return run_queueing(fleet, jobs, POLICIES[KUBE_DEFAULT](trends), minutes, beside)
    if not (case.sleep or case.policy in PRODUCT_POLICIES):
        return run_queueing(fleet, jobs, POLICIES[case.policy](trends), minutes, Beside(trends))
    planned = SAVING if case.sleep else AWAKE
    if (weights := PRODUCT_POLICIES.get(case.policy)) is not None:
        return run_product(fleet, jobs, minutes, Product(planned, weights), conditions)
    folded = FoldedCluster.under(conditions, fleet)
    operator = PlannedNodes(fleet, folded, planned, conditions)
    policy = POLICIES[case.policy](trends)
    return run_queueing(fleet, jobs, policy, minutes, Beside(trends, operator, folded))


def _planner(case: Case) -> str:
    if case.policy in AUTOSCALERS:
        return "cluster-autoscaler"
    return "real" if case.sleep or case.policy in PRODUCT_POLICIES else ""


def _queue_row(suite: str, case: Case, seed: int, done: Outcome) -> Row:
    return Row(
        suite=suite,
        load=case.load,
        policy=case.policy,
        sleep=case.sleep,
        seed=seed,
        kwh=done.kwh,
        base_kwh=done.parts.base_kwh,
        idle_cards_kwh=done.parts.idle_cards_kwh,
        dynamic_kwh=done.parts.dynamic_kwh,
        stuck=done.waiting_whole,
        power_w=done.power_w,
        work=done.work_kwh,
        kwh_per_work=done.kwh / done.work_kwh if done.work_kwh else 0.0,
        dropped=done.arrived - done.admitted - done.waiting,
        unfinished=done.running + done.waiting,
        wait_p50_s=done.wait_p50_s,
        wait_p99_s=done.wait_p99_s,
        wait_max_s=done.wait_max_s,
        wait_max_performance_s=done.wait_max_performance_s,
        planner=_planner(case),
        wakes=done.switched.wakes,
        conditions=case.conditions,
        wait_p99_performance_s=done.wait_p99_performance_s,
        wait_p99_standard_s=done.wait_p99_standard_s,
        wait_max_standard_s=done.wait_max_standard_s,
        boot_kwh=done.switched.boot_kwh,
        lost=done.switched.lost,
        restarts=done.restarts,
    )


def _compat_row(policy: str, seed: int, result: Result) -> Row:
    return Row(
        suite=COMPAT,
        load=1.0,
        policy=policy,
        sleep=False,
        seed=seed,
        kwh=result.kwh,
        work=result.work_kwh,
        kwh_per_work=result.kwh_per_work,
        dropped=result.dropped,
        unfinished=result.unfinished,
        wait_p50_s=0.0,
        wait_p99_s=0.0,
        wakes=0,
        power_w=tuple(result.power_w.tolist()),
    )


_NOT_IN_COMPAT = (BASELINE, "most-allocated-taint", "random", "refuse-big")
COMPAT_POLICIES = (
    BASELINE,
    *(name for name in POLICIES if name not in _NOT_IN_COMPAT),
)
