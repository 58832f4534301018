"""The rules of cluster-autoscaler with its default numbers, on nodes that sleep and wake.

It knows requests and no power. CPU nodes and GPU nodes are two node groups.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from joulie_simulator.energy.fleet import Fleet
from joulie_simulator.energy.jobs import Bools, Floats, Ints, Job
from joulie_simulator.energy.queueing import Switched
from joulie_simulator.energy.switching.conditions import WAKE_MINUTES

NEVER = np.iinfo(np.int64).max


class AutoscalerRules(NamedTuple):
    """Named as its flags."""

    scale_down_unneeded_minutes: int = 10
    scale_down_utilization_threshold: float = 0.5
    scale_down_delay_after_add_minutes: int = 10
    scale_down_non_empty_candidates_count: int = 30
    max_drain_parallelism: int = 1  # in a minute
    evicts: bool = True  # False: every pod has the annotation safe-to-evict=false


AUTOSCALERS: Mapping[str, AutoscalerRules] = {
    "cluster-autoscaler": AutoscalerRules(),
    "cluster-autoscaler-no-evict": AutoscalerRules(evicts=False),
}


class ClusterAutoscaler:
    """Sees jobs as a watcher does, and switches nodes."""

    def __init__(
        self, fleet: Fleet, rules: AutoscalerRules, wake_minutes: int = WAKE_MINUTES
    ) -> None:
        self._fleet, self._rules, self._wake_minutes = fleet, rules, wake_minutes
        self._wakes, self._boot_w_minutes = 0, 0.0
        self._ready = np.full(fleet.size, NEVER)  # minute at which a waking node is awake
        self._drained: list[int] = []  # in the minute before: cordoned, still on
        self._unneeded_since = np.full(fleet.size, NEVER)
        self._added_at = -NEVER
        self._running: list[dict[int, Job]] = [{} for _ in range(fleet.size)]
        self._place: dict[int, int] = {}

    # --- what happens to jobs -----------------------------------------------------------------

    def begin(self, minute: int) -> None:
        """It looks at the cluster after the jobs of the minute."""

    def arrived(self, number: int, job: Job) -> None:
        """It finds pending pods in the cluster."""

    def placed(self, number: int, job: Job, node: int) -> None:
        self._running[node][number] = job
        self._place[number] = node

    def ended(self, number: int) -> None:
        del self._running[self._place.pop(number)][number]

    # --- nodes --------------------------------------------------------------------------------

    @property
    def switched(self) -> Switched:
        return Switched(self._wakes, self._boot_w_minutes)

    def wake_ready(self, minute: int) -> None:
        ready = np.flatnonzero(self._ready <= minute)
        self._ready[ready] = NEVER
        self._fleet.awake[ready] = True

    def step(self, minute: int, waiting: Iterable[Job]) -> Sequence[int]:
        """Returns the nodes whose jobs are evicted."""
        self._switch_off(np.array(self._drained, np.int64))
        self._drained = []
        self._scale_up(minute, list(waiting))
        self._mark_unneeded(minute)
        if minute - self._added_at >= self._rules.scale_down_delay_after_add_minutes:
            self._scale_down(minute)
        self._boot_w_minutes += float(self._fleet.power_w[self._ready < NEVER].sum())
        return self._drained

    def _switch_off(self, nodes: Ints) -> None:
        self._fleet.awake[nodes] = False
        self._fleet.set_asleep(nodes, asleep=True)
        self._unneeded_since[nodes] = NEVER

    def _scale_up(self, minute: int, waiting: list[Job]) -> None:
        """Packs the pods that wait on the nodes that boot, and on as few others as possible."""
        asleep = ~self._fleet.awake & (self._ready == NEVER)
        if not waiting or not asleep.any():
            return
        bins = _Bins(self._fleet, self._ready < NEVER, asleep)
        for job in sorted(waiting, key=lambda each: (-each.gpus, -each.cores)):
            bins.put(job)
        woken = np.array(bins.opened, np.int64)
        if not len(woken):
            return
        self._added_at = minute
        self._wakes += len(woken)
        self._ready[woken] = minute + self._wake_minutes
        self._fleet.set_asleep(woken, asleep=False)

    def _mark_unneeded(self, minute: int) -> None:
        removable = self._removable()
        self._unneeded_since[~removable] = NEVER
        np.minimum(self._unneeded_since, minute, out=self._unneeded_since, where=removable)

    def _removable(self) -> Bools:
        """Empty nodes, and those below the threshold whose jobs all fit on other nodes."""
        fleet, rules = self._fleet, self._rules
        found: Bools = fleet.awake & (fleet.jobs == 0)
        if not rules.evicts:
            return found
        is_low = _utilization(fleet) < rules.scale_down_utilization_threshold
        low = np.flatnonzero(fleet.awake & (fleet.jobs > 0) & is_low)
        # Those that were unneeded before come first.
        low = low[np.argsort(self._unneeded_since[low] == NEVER, kind="stable")]
        room = _Room(fleet, fleet.awake & ~found)
        for node in low[: rules.scale_down_non_empty_candidates_count].tolist():
            found[node] = room.moves(node, list(self._running[node].values()))
        return found

    def _scale_down(self, minute: int) -> None:
        since = minute - self._rules.scale_down_unneeded_minutes
        due = np.flatnonzero(self._unneeded_since <= since)
        self._switch_off(due[self._fleet.jobs[due] == 0])
        with_jobs = due[self._fleet.jobs[due] > 0]
        oldest = with_jobs[np.argsort(self._unneeded_since[with_jobs], kind="stable")]
        self._drained = oldest[: self._rules.max_drain_parallelism].tolist()
        self._fleet.awake[self._drained] = False  # cordoned


def _utilization(fleet: Fleet) -> Floats:
    """Of the cards where a node has some, else of the cores."""
    cores = 1 - fleet.free_cores / fleet.cores
    return np.where(fleet.cards > 0, 1 - fleet.free_cards / np.maximum(fleet.cards, 1), cores)


class _Room:
    """What nodes have left while the jobs of others move there."""

    def __init__(self, fleet: Fleet, takes: Bools) -> None:
        self._cores, self._cards = fleet.free_cores.copy(), fleet.free_cards.copy()
        self._takes = takes.copy()
        self._received: set[int] = set()

    def moves(self, node: int, jobs: Sequence[Job]) -> bool:
        """Whether all jobs of the node fit elsewhere; then they are there from now on."""
        if node in self._received:
            return False
        self._takes[node] = False
        places = list[int]()
        for job in jobs:
            fits = self._takes & (self._cores >= job.cores) & (self._cards >= job.gpus)
            place = int(fits.argmax())
            if not fits[place]:
                break
            places.append(place)
            self._change(place, job, 1)
        else:
            self._received.update(places)
            return True
        for place, job in zip(places, jobs, strict=False):
            self._change(place, job, -1)
        self._takes[node] = True
        return False

    def _change(self, place: int, job: Job, sign: int) -> None:
        self._cores[place] -= sign * job.cores
        self._cards[place] -= sign * job.gpus


class _Bins:
    """Whole nodes for pods that wait: those that boot, then sleeping ones of the cheapest group."""

    def __init__(self, fleet: Fleet, booting: Bools, asleep: Bools) -> None:
        self.opened: list[int] = []
        self._fleet = fleet
        self._cores = np.where(booting, fleet.cores, -1)
        self._cards = np.where(booting, fleet.cards, -1)
        with_cards = fleet.cards > 0
        self._asleep = {
            False: np.flatnonzero(asleep & ~with_cards).tolist()[::-1],
            True: np.flatnonzero(asleep & with_cards).tolist()[::-1],
        }

    def put(self, job: Job) -> None:
        fits = (self._cores >= job.cores) & (self._cards >= job.gpus)
        node = int(fits.argmax()) if fits.any() else self._open(job)
        if node >= 0:
            self._cores[node] -= job.cores
            self._cards[node] -= job.gpus

    def _open(self, job: Job) -> int:
        """Least waste: a GPU node only for cards, or where no CPU node is left; -1: none."""
        for with_cards in (True,) if job.gpus else (False, True):
            group = self._asleep[with_cards]
            if group and self._fleet.cores[group[-1]] >= job.cores:
                node = group.pop()
                self.opened.append(node)
                self._cores[node], self._cards[node] = (
                    self._fleet.cores[node],
                    self._fleet.cards[node],
                )
                return node
        return -1
