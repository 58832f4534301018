"""Fills a cluster with pods of a trace and counts the stranded GPUs.

Pods arrive in random order and stay, until their requests reach a given share of all GPUs. A pod
that does not fit stays pending. A free GPU is stranded if no pending pod fits on its node.

All policies use the same filter (cores, memory, and memory of the requested number of cards); they
differ in the scores of nodes and in the cards that they choose.
"""

import random
from collections.abc import Sequence
from typing import NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from joulie_projections.twin.arrays import Bools, Ints
from joulie_simulator.cluster.kube_arithmetic import PER_POINT, Use, plugin_scores
from joulie_simulator.hardware.shapes import Machine
from joulie_simulator.workload.workload import CARD_MB, Size, Sizes

NO_CARD = -1
POINTS = 10  # the maximum score of an extender


class Ask(NamedTuple):
    milli: int
    memory_mib: int
    gpus: int
    mb: int  # of every card

    @classmethod
    def of(cls, size: Size) -> "Ask":
        mb = size.gpu_mb or CARD_MB
        return cls(round(size.cores * 1000), size.memory_mib, size.gpus, mb)


class Farm:
    """Free resources in columns, one row per machine and one column per card, all of one size."""

    def __init__(self, machines: Sequence[Machine]) -> None:
        self.milli = np.array([machine.milli for machine in machines], np.int64)
        self.memory = np.array([machine.memory_mib for machine in machines], np.int64)
        self.free_milli, self.free_memory = self.milli.copy(), self.memory.copy()
        self.gpus = np.array([machine.gpus for machine in machines], np.int64)
        self.linked = [machine.is_linked for machine in machines]
        places = np.arange(max(1, self.gpus.max(initial=0)))
        self.free_mb = np.where(places < self.gpus[:, None], CARD_MB, NO_CARD)

    def fits(self, ask: Ask) -> Bools:
        found: Bools = (self.free_milli >= ask.milli) & (self.free_memory >= ask.memory_mib)
        if ask.gpus:
            found &= (self.free_mb >= ask.mb).sum(1) >= ask.gpus
        return found

    def take(self, ask: Ask, row: int, cards: Sequence[int]) -> None:
        self.free_milli[row] -= ask.milli
        self.free_memory[row] -= ask.memory_mib
        self.free_mb[row, list(cards)] -= ask.mb

    def free_gpus(self) -> npt.NDArray[np.float64]:
        """Free GPUs of each machine; parts of cards are added up."""
        return np.asarray(self.free_mb.clip(0).sum(1) / CARD_MB, np.float64)


class Policy(Protocol):
    """An extender's scores, 0 to 10 per row, and its choice of cards on a machine."""

    def points(self, farm: Farm, ask: Ask) -> Ints: ...
    def cards(self, farm: Farm, ask: Ask, row: int) -> Sequence[int]: ...


class KubeDefault:
    """kube-scheduler alone; a device plugin allocates the first cards that fit."""

    def points(self, farm: Farm, ask: Ask) -> Ints:
        return np.zeros(len(farm.milli), np.int64)

    def cards(self, farm: Farm, ask: Ask, row: int) -> Sequence[int]:
        fitting: list[int] = np.flatnonzero(farm.free_mb[row] >= ask.mb).tolist()
        return fitting[: ask.gpus]


class Article(KubeDefault):
    """Packing by the allocated share of a node's card memory, truncated to 0..10."""

    def points(self, farm: Farm, ask: Ask) -> Ints:
        total = farm.gpus * CARD_MB
        used = total - farm.free_mb.clip(0).sum(1)
        shares = np.divide(used * 100, total, out=np.zeros(len(total)), where=total > 0)
        return np.asarray(shares // POINTS, np.int64)


class BestFit(Article):
    """The article's nodes, and the cards with the least free memory, which keeps cards whole."""

    def cards(self, farm: Farm, ask: Ask, row: int) -> Sequence[int]:
        free = farm.free_mb[row]
        fitting: list[int] = np.flatnonzero(free >= ask.mb).tolist()
        return sorted(fitting, key=lambda card: int(free[card]))[: ask.gpus]


class Outcome(NamedTuple):
    gpus: int
    used: float
    stranded: float  # free, but on nodes where no pending pod fits
    waiting: int
    waiting_whole: int  # those of them that request all GPUs of a machine

    @property
    def free(self) -> float:
        return self.gpus - self.used


def fill(farm: Farm, sizes: Sizes, policy: Policy, options: "Filling") -> Outcome:
    draw = random.Random(options.seed)
    capacity, most = int(farm.gpus.sum()), int(farm.gpus.max(initial=0))
    asked, waiting = 0.0, list[Ask]()
    while asked < capacity * options.load:
        ask = Ask.of(sizes.draw(draw))
        asked += ask.gpus * ask.mb / CARD_MB
        if not _place(farm, ask, policy, options.weight, draw):
            waiting.append(ask)
    free = farm.free_gpus()
    usable = np.zeros(len(free), np.bool_)
    for ask in {ask for ask in waiting if ask.gpus}:
        usable |= farm.fits(ask)
    return Outcome(
        gpus=capacity,
        used=capacity - float(free.sum()),
        stranded=float(free[~usable].sum()),
        waiting=len(waiting),
        waiting_whole=sum(ask.gpus == most for ask in waiting),
    )


class Filling(NamedTuple):
    seed: int = 1
    load: float = 1.0  # requested GPUs divided by all GPUs
    weight: int = 1  # of the extender in kube-scheduler's sum


def _place(farm: Farm, ask: Ask, policy: Policy, weight: int, draw: random.Random) -> bool:
    rows = np.flatnonzero(farm.fits(ask))
    if not len(rows):
        return False
    total = kube_scores(farm, ask, rows)
    if ask.gpus:  # managedResources: a GPU extender receives only pods with GPUs
        total = total + PER_POINT * weight * policy.points(farm, ask)[rows]
    best: list[int] = rows[total == total.max()].tolist()
    row = draw.choice(best)
    farm.take(ask, row, policy.cards(farm, ask, row) if ask.gpus else [])
    return True


def kube_scores(farm: Farm, ask: Ask, rows: Ints) -> Ints:
    milli, memory = farm.milli[rows], farm.memory[rows]
    return plugin_scores(
        Use(milli - farm.free_milli[rows] + ask.milli, milli),
        Use(memory - farm.free_memory[rows] + ask.memory_mib, memory),
    )
