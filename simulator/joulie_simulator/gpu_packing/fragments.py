"""What becomes of GPUs when pods of a trace fill a cluster: how many can nobody use? Pure, seeded.

Pods come in a random order and stay, until what they asked for is a given share of all GPUs. Who
does not fit waits. A free GPU that lies on a node where none of those who wait fits is stranded:
it is there, it is wanted, and nobody can have it.

Every policy has the same filter (cores, memory, and memory of as many cards as asked for); they
differ in the scores of nodes, and in the cards that they take.
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
POINTS = 10  # of an extender, the most it gives


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
    """Columns, a row per machine; cards are columns of their own, all of one size."""

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
        """Of each machine, with its parts of cards added up."""
        return np.asarray(self.free_mb.clip(0).sum(1) / CARD_MB, np.float64)


class Policy(Protocol):
    """Points of an extender, 0 to 10 a row; and which cards of a machine a pod has from now on."""

    def points(self, farm: Farm, ask: Ask) -> Ints: ...
    def cards(self, farm: Farm, ask: Ask, row: int) -> Sequence[int]: ...


class KubeDefault:
    """kube-scheduler alone; a device plugin gives out the first cards that fit."""

    def points(self, farm: Farm, ask: Ask) -> Ints:
        return np.zeros(len(farm.milli), np.int64)

    def cards(self, farm: Farm, ask: Ask, row: int) -> Sequence[int]:
        fitting: list[int] = np.flatnonzero(farm.free_mb[row] >= ask.mb).tolist()
        return fitting[: ask.gpus]


class Article(KubeDefault):
    """Packing by the share of a node's card memory that is given out, cut to 0..10."""

    def points(self, farm: Farm, ask: Ask) -> Ints:
        total = farm.gpus * CARD_MB
        used = total - farm.free_mb.clip(0).sum(1)
        shares = np.divide(used * 100, total, out=np.zeros(len(total)), where=total > 0)
        return np.asarray(shares // POINTS, np.int64)


class BestFit(Article):
    """The article's nodes; of a node's cards those with the least room, so that whole ones stay."""

    def cards(self, farm: Farm, ask: Ask, row: int) -> Sequence[int]:
        free = farm.free_mb[row]
        fitting: list[int] = np.flatnonzero(free >= ask.mb).tolist()
        return sorted(fitting, key=lambda card: int(free[card]))[: ask.gpus]


class Outcome(NamedTuple):
    gpus: int
    used: float
    stranded: float  # free, and of no use to anybody who waits
    waiting: int
    waiting_whole: int  # those of them that want all GPUs of a machine

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
    load: float = 1.0  # asked-for GPUs by all GPUs
    weight: int = 1  # of the extender in kube-scheduler's sum


def _place(farm: Farm, ask: Ask, policy: Policy, weight: int, draw: random.Random) -> bool:
    rows = np.flatnonzero(farm.fits(ask))
    if not len(rows):
        return False
    total = kube_scores(farm, ask, rows)
    if ask.gpus:  # managedResources: nobody else's pods come to a GPU extender
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
