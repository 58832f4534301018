"""Free resources of a pool of GPU nodes in columns: one row per node, one column per card."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from joulie_extender.gpu.shapes import CARD, Shape
from joulie_projections.twin.arrays import Bools, Ints


class PoolNode(NamedTuple):
    milli: int  # of cores
    memory_mib: int
    cards: int
    model: str = ""


class Pool:
    def __init__(self, nodes: Sequence[PoolNode]) -> None:
        self.nodes = tuple(nodes)
        self.milli = np.array([node.milli for node in nodes], np.int64)
        self.memory = np.array([node.memory_mib for node in nodes], np.int64)
        self.cards = np.array([node.cards for node in nodes], np.int64)
        self.models = sorted({node.model for node in nodes})
        self.model = np.array([self.models.index(node.model) for node in nodes], np.int64)
        self.capacity = int(self.cards.sum()) * CARD
        self.free_milli, self.free_memory = self.milli.copy(), self.memory.copy()
        places = np.arange(self.cards.max(initial=1))
        self.rest: Ints = np.where(places < self.cards[:, None], CARD, 0)  # 0: also of no card

    def fits(self, shape: Shape, rows: Ints) -> Bools:
        found: Bools = (self.free_milli[rows] >= shape.milli) & (
            self.free_memory[rows] >= shape.memory_mib
        )
        if shape.models:
            found &= self.allowed(shape.models)[self.model[rows]]
        if shape.cards:
            found &= (self.rest[rows] >= shape.share).sum(1) >= shape.cards
        return found

    def allowed(self, models: Sequence[str]) -> Bools:
        """One value per model of the pool; an empty set allows any."""
        return np.array([not models or name in models for name in self.models])

    def take(self, shape: Shape, row: int, cards: Sequence[int]) -> None:
        self.free_milli[row] -= shape.milli
        self.free_memory[row] -= shape.memory_mib
        self.rest[row, list(cards)] -= shape.share

    def allocated(self) -> int:
        """Milli of cards."""
        return self.capacity - int(self.rest.sum())
