"""The sleep controller of reports of the first format, which are verified with it.

Spare nodes stay awake, other empty ones sleep. CPU nodes and GPU nodes are two pools. Everywhere
else the operator plans (`product`).
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from joulie_operator.planning.sleep import surplus_of
from joulie_simulator.energy.fleet import (
    CPU_NODE_CORES,
    GPU_NODE_CARDS,
    GPU_NODE_CORES,
    Fleet,
)
from joulie_simulator.energy.jobs import Bools, Ints, Job
from joulie_simulator.energy.queueing import Switched

NEVER = np.iinfo(np.int64).max


class SleepRules(NamedTuple):
    # Empty nodes that stay awake for arrivals, as a share of their pool.
    spare_cpu_nodes: float = 0.02
    spare_gpu_nodes: float = 0.03
    idle_minutes: int = 10  # a node is empty for so long before it sleeps
    wake_minutes: int = 5  # a waking node draws its idle power


class SleepController:
    def __init__(self, fleet: Fleet, rules: SleepRules) -> None:
        self.wakes = 0
        self._fleet, self._rules = fleet, rules
        self._ready = np.full(fleet.size, NEVER)  # minute at which a waking node is awake
        self._empty_since = np.zeros(fleet.size, dtype=np.int64)
        has_cards = fleet.cards > 0
        self._cpu_pool, self._gpu_pool = ~has_cards, has_cards
        self._spare = {
            False: int(np.ceil(rules.spare_cpu_nodes * self._cpu_pool.sum())),
            True: int(np.ceil(rules.spare_gpu_nodes * self._gpu_pool.sum())),
        }

    def wake_ready(self, minute: int) -> None:
        """Makes available the nodes whose wake-up ends in this minute."""
        ready = np.flatnonzero(self._ready <= minute)
        self._ready[ready] = NEVER
        self._empty_since[ready] = minute
        self._fleet.awake[ready] = True

    @property
    def switched(self) -> Switched:
        return Switched(self.wakes)

    def step(self, minute: int, waiting: Iterable[Job]) -> Sequence[int]:
        """Wakes nodes for the jobs that wait and for the spare ones; others may fall asleep."""
        self._empty_since[self._fleet.jobs > 0] = minute
        cpu, gpu = _nodes_needed(waiting)
        missing = self._balance(minute, cpu, has_cards=False)
        self._balance(minute, gpu + missing, has_cards=True)
        return ()

    def _balance(self, minute: int, needed: int, *, has_cards: bool) -> int:
        """Returns how many nodes are missing because none of the pool is asleep."""
        pool = self._gpu_pool if has_cards else self._cpu_pool
        empty = pool & self._fleet.awake & (self._fleet.jobs == 0)
        waking = pool & (self._ready < NEVER)
        surplus = surplus_of(
            int(empty.sum()), int(waking.sum()), needed, reserve=self._spare[has_cards]
        )
        if surplus < 0:
            found = self._wake(minute, np.flatnonzero(pool & self._asleep)[:-surplus])
            return max(0, needed - int(empty.sum() + waking.sum()) - found)
        self._put_to_sleep(minute, empty, surplus)
        return 0

    @property
    def _asleep(self) -> Bools:
        asleep: Bools = ~self._fleet.awake & (self._ready == NEVER)
        return asleep

    def _wake(self, minute: int, nodes: Ints) -> int:
        self._ready[nodes] = minute + self._rules.wake_minutes
        self.wakes += len(nodes)
        self._fleet.set_asleep(nodes, asleep=False)
        return len(nodes)

    def _put_to_sleep(self, minute: int, empty: Bools, most: int) -> None:
        """The nodes that are empty for the longest time; of equal ones the highest index."""
        idle = np.flatnonzero(empty & (minute - self._empty_since >= self._rules.idle_minutes))
        order = np.lexsort((-idle, self._empty_since[idle]))
        chosen = idle[order[:most]]
        self._fleet.awake[chosen] = False
        self._fleet.set_asleep(chosen, asleep=True)


def _nodes_needed(waiting: Iterable[Job]) -> tuple[int, int]:
    """Whole nodes that the waiting jobs would fill, of each pool."""
    cpu = gpu = 0.0
    for job in waiting:
        if job.gpus:
            gpu += max(job.gpus / GPU_NODE_CARDS, job.cores / GPU_NODE_CORES)
        else:
            cpu += job.cores / CPU_NODE_CORES
    return int(np.ceil(cpu)), int(np.ceil(gpu))
