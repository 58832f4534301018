"""Suites: combinations of jobs, fleet and policies, and their result rows. Pure."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from joulie_simulator.energy.fleet import PEER, Fleet
from joulie_simulator.energy.jobs import Job, reference_jobs
from joulie_simulator.energy.policies import POLICIES
from joulie_simulator.energy.simulation import Result, run_dropping
from joulie_simulator.energy.trend import Trends

REFERENCE_NODES, REFERENCE_HOURS = 2500, 48.0
SEEDS = (42, 123, 456, 789, 1337, 2024, 9999, 31415)  # those of the published experiment
COMPAT = "compat"


class Size(NamedTuple):
    nodes: int = REFERENCE_NODES
    hours: float = REFERENCE_HOURS


class Row(NamedTuple):
    suite: str
    load: float  # share of the reference's arrivals for each node
    policy: str
    sleep: bool
    seed: int
    kwh: float
    work: float
    kwh_per_work: float
    dropped: int
    unfinished: int
    wait_p50_s: float  # of admitted jobs; a dropped job does not wait
    wait_p99_s: float
    wakes: int


def compat(size: Size, seeds: Sequence[int], policies: Sequence[str]) -> Iterator[Row]:
    """The published experiment, job for job: jobs that fit nowhere are dropped, no node sleeps.

    Demand for GPUs is forty times the capacity, so less energy can mean less work: compare
    `kwh_per_work`.
    """
    for seed in seeds:
        jobs = thinned(reference_jobs(seed, size.hours), size.nodes / REFERENCE_NODES, seed)
        for policy in policies:
            yield _row(policy, seed, run_compat(size, jobs, policy))


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


def _row(policy: str, seed: int, result: Result) -> Row:
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
    )
