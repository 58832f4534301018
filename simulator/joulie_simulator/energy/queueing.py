"""The simulation loop with a queue: no job is dropped, and empty nodes may sleep."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import NamedTuple, Protocol

import numpy as np

from joulie_simulator.energy.fleet import GPU_NODE_CARDS, Fleet, work_w
from joulie_simulator.energy.jobs import MINUTE_S, Job
from joulie_simulator.energy.node_meter import NodeMeter
from joulie_simulator.energy.policies import Policy, chosen
from joulie_simulator.energy.simulation import W_MINUTES_PER_KWH, W_SECONDS_PER_KWH, by_minute
from joulie_simulator.energy.trend import Trends
from joulie_simulator.energy.waiting import Queue, Waiting


class Parts(NamedTuple):
    """Shares of the energy; together they are the total."""

    base_kwh: float  # chassis and CPUs, awake or asleep
    idle_cards_kwh: float
    dynamic_kwh: float


class Switched(NamedTuple):
    """Nodes that were woken, and what that cost."""

    wakes: int = 0
    boot_w_minutes: float = 0.0  # of waking nodes, until they accept jobs
    lost: int = 0  # nodes that never came back

    @property
    def boot_kwh(self) -> float:
        return self.boot_w_minutes / W_MINUTES_PER_KWH


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
    wait_p99_performance_s: float  # of jobs of class performance; the others are standard
    wait_max_performance_s: float
    wait_p99_standard_s: float
    wait_max_standard_s: float
    switched: Switched
    restarts: int  # of jobs that were evicted: what they had done is lost


class SleepControl(Protocol):
    """Puts nodes to sleep and wakes them."""

    @property
    def switched(self) -> Switched: ...

    def wake_ready(self, minute: int, /) -> None:
        """Before the jobs of the minute: makes available the nodes that have woken up."""

    def step(self, minute: int, waiting: Iterable[Job], /) -> Sequence[int]:
        """After the jobs of the minute. Returns the nodes whose jobs are evicted."""
        ...


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
    meter: NodeMeter | None = None


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
            run.evict(sleep.step(minute, run.waiting_jobs()))
        run.meter()
    return run.outcome(sleep.switched if sleep else Switched())


class _Run:
    def __init__(self, fleet: Fleet, policy: Policy, minutes: int, beside: Beside) -> None:
        self._fleet, self._policy = fleet, policy
        self._trends, _, self._watcher, self._node_meter = beside
        self._minutes = minutes
        self._queue = Queue()
        self._leaving: dict[int, list[tuple[int, Waiting]]] = defaultdict(list)
        self._waits: dict[bool, list[int]] = {True: [], False: []}  # by class performance
        self._minute = self._arrived = self._placed = self._restarts = 0
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
        self._waits[job.performance].append(self._minute - waiting.minute)
        self._placed += 1
        if self._watcher:
            self._watcher.placed(waiting.number, job, node)
        self._work_ws += self._work_from(self._minute, job)
        return True

    def _work_from(self, minute: int, job: Job) -> float:
        """Inside the window."""
        return work_w(job) * min(job.duration_s, (self._minutes - minute) * MINUTE_S)

    def evict(self, nodes: Sequence[int]) -> None:
        """The jobs of the nodes wait again, and begin from the start: what they did is no work."""
        if not nodes:
            return
        for end, leaving in self._leaving.items():
            gone = [each for each in leaving if each[0] in nodes]
            for each in gone:
                leaving.remove(each)
                self._requeue(*each, started=end - each[1].job.minutes)

    def _requeue(self, node: int, waiting: Waiting, started: int) -> None:
        job = waiting.job
        self._fleet.release(node, job)
        self._fleet.update_power(node)
        self._work_ws -= self._work_from(started, job)
        self._placed -= 1
        self._restarts += 1
        number = self._queue.add(self._minute, job)
        if self._watcher:
            self._watcher.ended(waiting.number)
            self._watcher.arrived(number, job)

    def meter(self) -> None:
        fleet = self._fleet
        total = float(fleet.power_w.sum())
        self._power_w.append(total)
        self._watt_minutes += (total, fleet.idle_cards_w(), fleet.dynamic_w.sum())
        if self._node_meter:
            self._node_meter.read(fleet)

    def outcome(self, switched: Switched) -> Outcome:
        total, cards, dynamic = (self._watt_minutes / W_MINUTES_PER_KWH).tolist()
        waits = {is_performance: list(found) for is_performance, found in self._waits.items()}
        for each in self._queue:
            waits[each.job.performance].append(self._minutes - each.minute)
        every = [*waits[True], *waits[False]]
        return Outcome(
            kwh=total,
            parts=Parts(total - cards - dynamic, cards, dynamic),
            work_kwh=self._work_ws / W_SECONDS_PER_KWH,
            arrived=self._arrived,
            admitted=self._placed,
            running=sum(map(len, self._leaving.values())),
            waiting=len(self._queue),
            waiting_whole=sum(each.job.gpus == GPU_NODE_CARDS for each in self._queue),
            power_w=tuple(self._power_w),
            wait_p50_s=_percentile_s(every, 50),
            wait_p99_s=_percentile_s(every, 99),
            wait_max_s=_percentile_s(every, 100),
            wait_p99_performance_s=_percentile_s(waits[True], 99),
            wait_max_performance_s=_percentile_s(waits[True], 100),
            wait_p99_standard_s=_percentile_s(waits[False], 99),
            wait_max_standard_s=_percentile_s(waits[False], 100),
            switched=switched,
            restarts=self._restarts,
        )


def _percentile_s(minutes: list[int], percent: float) -> float:
    return float(np.percentile(minutes, percent)) * MINUTE_S if minutes else 0.0
