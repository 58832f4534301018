"""The simulation loop: each minute jobs end, nodes draw power, jobs arrive."""

from collections import defaultdict
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from joulie_simulator.energy.fleet import Fleet, work_w
from joulie_simulator.energy.jobs import MINUTE_S, Floats, Job
from joulie_simulator.energy.policies import Policy, chosen
from joulie_simulator.energy.trend import Trends

W_MINUTES_PER_KWH = 60_000.0
W_SECONDS_PER_KWH = 3_600_000.0


class Result(NamedTuple):
    """Energy, and the work that was completed with it."""

    kwh: float
    work_kwh: float  # the ideal dynamic energy of all jobs inside the window
    admitted: int
    dropped: int
    unfinished: int  # still running at the end
    power_w: Floats  # of each minute

    @property
    def kwh_per_work(self) -> float:
        return self.kwh / self.work_kwh if self.work_kwh else 0.0


def run_dropping(
    fleet: Fleet, jobs: Sequence[Job], policy: Policy, trends: Trends, minutes: int
) -> Result:
    """A job that fits on no node in its minute is dropped, as in the published experiment."""
    run = _Run(fleet, policy, trends, minutes)
    arrivals = by_minute(jobs, minutes)
    power = np.zeros(minutes)
    for minute in range(minutes):
        run.begin(minute)
        for job in arrivals[minute]:
            run.arrive(minute, job)
        power[minute] = fleet.power_w.sum()
    return Result(
        kwh=float(power.sum() / W_MINUTES_PER_KWH),
        work_kwh=run.work_ws / W_SECONDS_PER_KWH,
        admitted=run.admitted,
        dropped=run.dropped,
        unfinished=run.running,
        power_w=power,
    )


def by_minute(jobs: Sequence[Job], minutes: int) -> list[list[Job]]:
    """Group jobs by the first minute that begins at or after their arrival."""
    found: list[list[Job]] = [[] for _ in range(minutes)]
    for job in jobs:
        minute = -int(-job.arrival_s // MINUTE_S)
        if minute < minutes:
            found[minute].append(job)
    return found


def _is_no_smaller(job: Job, other: Job) -> bool:
    """A policy may refuse nodes to jobs without cards alone, so these say nothing of the others."""
    same = bool(job.gpus) == bool(other.gpus)
    return same and job.cores >= other.cores and job.gpus >= other.gpus


class _Run:
    def __init__(self, fleet: Fleet, policy: Policy, trends: Trends, minutes: int) -> None:
        self.work_ws = 0.0
        self.admitted = self.dropped = 0
        self._fleet, self._policy, self._trends = fleet, policy, trends
        self._end_s = minutes * MINUTE_S
        self._leaving: dict[int, list[tuple[int, Job]]] = defaultdict(list)
        self._refused: list[
            Job
        ] = []  # fit on no node this minute; later placements only take resources

    @property
    def running(self) -> int:
        return sum(map(len, self._leaving.values()))

    def begin(self, minute: int) -> None:
        for node, job in self._leaving.pop(minute, ()):
            self._fleet.release(node, job)
            self._fleet.update_power(node)
        self._trends.sample(self._fleet.power_w)
        self._refused.clear()

    def arrive(self, minute: int, job: Job) -> None:
        node = -1
        if not any(_is_no_smaller(job, no) for no in self._refused):
            scores = self._policy.scores(self._fleet, job)
            node = chosen(self._fleet, job, scores)
            if node < 0 and scores.max() > -np.inf:  # no room, not a refusal of the policy
                self._refused.append(job)
        if node < 0:
            self.dropped += 1
            return
        self.admitted += 1
        self._place(minute, node, job)

    def _place(self, minute: int, node: int, job: Job) -> None:
        self._fleet.place(node, job)
        self._fleet.update_power(node)
        self._trends.placed(node, float(self._fleet.power_w[node]))
        self._leaving[minute + job.minutes].append((node, job))
        inside_s = min(job.duration_s, self._end_s - minute * MINUTE_S)
        self.work_ws += work_w(job) * inside_s
