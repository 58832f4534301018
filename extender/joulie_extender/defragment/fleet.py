"""Nodes with free cores, memory and cards, and the pods on them, as a plan moves pods about.

One row per node, one column per card. A node without cards has a row, too: a pod that only needs
cores can move there.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from joulie_extender.gpu.shapes import CARD
from joulie_projections.twin.arrays import Bools, Ints

NOT_ALLOWED = CARD + 1  # more of a card than there is


class Need(NamedTuple):
    """What a pod takes of the node that it is on. Pods with equal needs share results."""

    milli: int  # of cores
    memory_mib: int
    cards: int
    shares: tuple[int, ...]  # milli of each card, by the model of the node; or NOT_ALLOWED


class Occupant(NamedTuple):
    """A bound pod that may be moved."""

    uid: str
    row: int
    need: Need
    cards: tuple[int, ...] = ()  # the columns of the cards that it holds


class Move(NamedTuple):
    occupant: Occupant
    row: int  # a node on which it fits
    cards: tuple[int, ...]


class Fleet(NamedTuple):
    """Arrays that `move` changes; `copied` gives a fleet of their own."""

    model: Ints
    free_milli: Ints
    held_back: Ints  # of these, cores that no pod may request
    free_memory: Ints  # MiB
    rest: Ints  # milli of each card that are free
    users: Ints  # pods on each card
    whole: Ints  # milli of each card without users: 0 if it is not healthy, and where there is none
    group: Ints  # of linked cards, or 0
    is_open: Bools  # whether pods may move to the node

    def copied(self) -> "Fleet":
        return self.on(np.arange(len(self.model)))

    def on(self, rows: Ints) -> "Fleet":
        """A copy of these rows alone."""
        return Fleet(
            model=self.model[rows],
            free_milli=self.free_milli[rows],
            held_back=self.held_back[rows],
            free_memory=self.free_memory[rows],
            rest=self.rest[rows],
            users=self.users[rows],
            whole=self.whole[rows],
            group=self.group[rows],
            is_open=self.is_open[rows],
        )

    def without(self, occupants: Sequence[Occupant]) -> tuple[Ints, Ints]:
        """The free cores and the cards of each occupant's node, as if it alone were gone."""
        rows = np.array([each.row for each in occupants])
        milli, rest = self.free_milli[rows], self.rest[rows]
        for at, each in enumerate(occupants):
            milli[at] += each.need.milli
            for card in each.cards:
                rest[at, card] = self._without(each, card)
        return milli, rest

    def move(self, move: Move) -> None:
        self._leave(move.occupant)
        self._enter(move.occupant.need, move.row, move.cards)

    def undo(self, move: Move) -> None:
        self._leave(move.occupant._replace(row=move.row, cards=move.cards))
        self._enter(move.occupant.need, move.occupant.row, move.occupant.cards)

    def _without(self, occupant: Occupant, card: int) -> int:
        row = occupant.row
        if self.users[row, card] <= 1:
            return int(self.whole[row, card])
        return int(self.rest[row, card]) + occupant.need.shares[int(self.model[row])]

    def _leave(self, occupant: Occupant) -> None:
        row = occupant.row
        self.free_milli[row] += occupant.need.milli
        self.free_memory[row] += occupant.need.memory_mib
        for card in occupant.cards:
            self.rest[row, card] = self._without(occupant, card)
            self.users[row, card] -= 1

    def _enter(self, need: Need, row: int, cards: Sequence[int]) -> None:
        self.free_milli[row] -= need.milli
        self.free_memory[row] -= need.memory_mib
        for card in cards:
            self.rest[row, card] -= min(self.rest[row, card], need.shares[int(self.model[row])])
            self.users[row, card] += 1
