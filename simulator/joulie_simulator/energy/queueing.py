"""The simulation loop with a queue: no job is dropped, and empty nodes may sleep."""

from collections import defaultdict
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from joulie_simulator.energy.fleet import GPU_NODE_CARDS, Fleet, work_w
from joulie_simulator.energy.jobs import MINUTE_S, Job
from joulie_simulator.energy.policies import Policy, chosen
from joulie_simulator.energy.simulation import W_MINUTES_PER_KWH, W_SECONDS_PER_KWH, by_minute
from joulie_simulator.energy.sleep import SleepController, SleepRules
from joulie_simulator.energy.trend import Trends
from joulie_simulator.energy.waiting import Queue, Waiting


class Parts(NamedTuple):
    """Shares of the energy; together they are the total."""

    base_kwh: float  # chassis and CPUs, awake or asleep
    idle_cards_kwh: float
    dynamic_kwh: float


class Outcome(NamedTuple):
    kwh: float
    parts: Parts
    work_kwh: float  # the ideal dynamic energy of all jobs inside the window
    arrived: int
    admitted: int
    running: int  # at the end
    waiting: int  # at the end
    waiting_whole: int  # of these, jobs for all cards of a node
    power_w: tuple[float, ...]  # of each minute
    wait_p50_s: float  # a job that still waits counts with its wait until the end
    wait_p99_s: float
    wakes: int


def run_queueing(
    fleet: Fleet,
    jobs: Sequence[Job],
    policy: Policy,
    trends: Trends,
    minutes: int,
    *,
    sleep: SleepRules | None,
) -> Outcome:
    """A job that fits on no node waits and is tried again each minute."""
    run = _Run(fleet, policy, trends, minutes)
    controller = SleepController(fleet, sleep) if sleep else None
    for minute, arrivals in enumerate(by_minute(jobs, minutes)):
        if controller:
            controller.wake_ready(minute)
        run.step(minute, arrivals)
        if controller:
            controller.step(minute, run.waiting_jobs())
        run.meter()
    return run.outcome(controller.wakes if controller else 0)


class _Run:
    def __init__(self, fleet: Fleet, policy: Policy, trends: Trends, minutes: int) -> None:
        self._fleet, self._policy, self._trends = fleet, policy, trends
        self._minutes = minutes
        self._queue = Queue()
        self._leaving: dict[int, list[tuple[int, Job]]] = defaultdict(list)
        self._waits: list[int] = []
        self._minute = self._arrived = 0
        self._work_ws = 0.0
        self._watt_minutes = np.zeros(3)  # total, idle cards, dynamic
        self._power_w: list[float] = []

    def step(self, minute: int, arrivals: Sequence[Job]) -> None:
        self._minute = minute
        for node, job in self._leaving.pop(minute, ()):
            self._fleet.release(node, job)
            self._fleet.update_power(node)
        self._trends.sample(self._fleet.power_w)
        self._fleet.waiting = len(self._queue)
        self._arrived += len(arrivals)
        for job in arrivals:
            self._queue.add(minute, job)
        self._queue.offer(self._place)

    def waiting_jobs(self) -> list[Job]:
        return [each.job for each in self._queue]

    def _place(self, waiting: Waiting) -> bool:
        job, fleet = waiting.job, self._fleet
        node = chosen(fleet, job, self._policy.scores(fleet, job))
        if node < 0:
            return False
        fleet.place(node, job)
        fleet.update_power(node)
        self._trends.placed(node, float(fleet.power_w[node]))
        self._leaving[self._minute + job.minutes].append((node, job))
        self._waits.append(self._minute - waiting.minute)
        inside_s = min(job.duration_s, (self._minutes - self._minute) * MINUTE_S)
        self._work_ws += work_w(job) * inside_s
        return True

    def meter(self) -> None:
        fleet = self._fleet
        total = float(fleet.power_w.sum())
        self._power_w.append(total)
        self._watt_minutes += (total, fleet.idle_cards_w(), fleet.dynamic_w.sum())

    def outcome(self, wakes: int) -> Outcome:
        total, cards, dynamic = (self._watt_minutes / W_MINUTES_PER_KWH).tolist()
        waits = [*self._waits, *(self._minutes - each.minute for each in self._queue)]
        p50, p99 = np.percentile(waits, (50, 99)).tolist() if waits else (0.0, 0.0)
        return Outcome(
            kwh=total,
            parts=Parts(total - cards - dynamic, cards, dynamic),
            work_kwh=self._work_ws / W_SECONDS_PER_KWH,
            arrived=self._arrived,
            admitted=len(self._waits),
            running=sum(map(len, self._leaving.values())),
            waiting=len(self._queue),
            waiting_whole=sum(each.job.gpus == GPU_NODE_CARDS for each in self._queue),
            power_w=tuple(self._power_w),
            wait_p50_s=p50 * MINUTE_S,
            wait_p99_s=p99 * MINUTE_S,
            wakes=wakes,
        )
