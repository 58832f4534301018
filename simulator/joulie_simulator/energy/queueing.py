"""The simulation loop with a queue: no job is dropped, and empty nodes may sleep."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import NamedTuple, Protocol

import numpy as np

from joulie_simulator.energy.fleet import GPU_NODE_CARDS, Fleet, work_w
from joulie_simulator.energy.jobs import MINUTE_S, Job
from joulie_simulator.energy.policies import Policy, chosen
from joulie_simulator.energy.simulation import W_MINUTES_PER_KWH, W_SECONDS_PER_KWH, by_minute
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
    wait_max_s: float
    wait_max_performance_s: float  # of jobs of class performance
    wakes: int


class SleepControl(Protocol):
    """Puts nodes to sleep and wakes them."""

    wakes: int

    def wake_ready(self, minute: int, /) -> None:
        """Before the jobs of the minute: makes available the nodes that have woken up."""

    def step(self, minute: int, waiting: Iterable[Job], /) -> None:
        """After the jobs of the minute."""


class Watcher(Protocol):
    """Sees what happens to jobs, as a watcher of the API server does."""

    def begin(self, minute: int, /) -> None: ...

    def arrived(self, number: int, job: Job, /) -> None: ...

    def placed(self, number: int, job: Job, node: int, /) -> None: ...

    def ended(self, number: int, /) -> None: ...


class Beside(NamedTuple):
    """What goes on beside the jobs."""

    trends: Trends
    sleep: SleepControl | None = None
    watcher: Watcher | None = None


def run_queueing(
    fleet: Fleet, jobs: Sequence[Job], policy: Policy, minutes: int, beside: Beside
) -> Outcome:
    """A job that fits on no node waits and is tried again each minute."""
    run, sleep = _Run(fleet, policy, minutes, beside), beside.sleep
    for minute, arrivals in enumerate(by_minute(jobs, minutes)):
        run.begin(minute)
        if sleep:
            sleep.wake_ready(minute)
        run.step(arrivals)
        if sleep:
            sleep.step(minute, run.waiting_jobs())
        run.meter()
    return run.outcome(sleep.wakes if sleep else 0)


class _Run:
    def __init__(self, fleet: Fleet, policy: Policy, minutes: int, beside: Beside) -> None:
        self._fleet, self._policy = fleet, policy
        self._trends, _, self._watcher = beside
        self._minutes = minutes
        self._queue = Queue()
        self._leaving: dict[int, list[tuple[int, Waiting]]] = defaultdict(list)
        self._waits: list[int] = []
        self._longest_performance = 0
        self._minute = self._arrived = 0
        self._work_ws = 0.0
        self._watt_minutes = np.zeros(3)  # total, idle cards, dynamic
        self._power_w: list[float] = []

    def begin(self, minute: int) -> None:
        """The jobs that end in this minute leave."""
        self._minute = minute
        if self._watcher:
            self._watcher.begin(minute)
        for node, done in self._leaving.pop(minute, ()):
            self._fleet.release(node, done.job)
            self._fleet.update_power(node)
            if self._watcher:
                self._watcher.ended(done.number)

    def step(self, arrivals: Sequence[Job]) -> None:
        self._trends.sample(self._fleet.power_w)
        self._fleet.waiting = len(self._queue)
        self._arrived += len(arrivals)
        for job in arrivals:
            number = self._queue.add(self._minute, job)
            if self._watcher:
                self._watcher.arrived(number, job)
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
        self._leaving[self._minute + job.minutes].append((node, waiting))
        self._waited(waiting, self._waits)
        if self._watcher:
            self._watcher.placed(waiting.number, job, node)
        inside_s = min(job.duration_s, (self._minutes - self._minute) * MINUTE_S)
        self._work_ws += work_w(job) * inside_s
        return True

    def _waited(self, waiting: Waiting, waits: list[int], until: int | None = None) -> None:
        waited = (self._minute if until is None else until) - waiting.minute
        waits.append(waited)
        if waiting.job.performance:
            self._longest_performance = max(self._longest_performance, waited)

    def meter(self) -> None:
        fleet = self._fleet
        total = float(fleet.power_w.sum())
        self._power_w.append(total)
        self._watt_minutes += (total, fleet.idle_cards_w(), fleet.dynamic_w.sum())

    def outcome(self, wakes: int) -> Outcome:
        total, cards, dynamic = (self._watt_minutes / W_MINUTES_PER_KWH).tolist()
        waits = list(self._waits)
        for each in self._queue:
            self._waited(each, waits, self._minutes)
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
            wait_max_s=max(waits, default=0) * MINUTE_S,
            wait_max_performance_s=self._longest_performance * MINUTE_S,
            wakes=wakes,
        )
