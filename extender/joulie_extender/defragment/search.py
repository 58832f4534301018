"""Which pods to move so that free GPUs are of use to the pods that ask for GPUs.

What is lost on a node is its free GPU capacity that a pod drawn from the arrivals could not use;
what no such pod could use counts twice. A run moves pods of one node elsewhere, up to all of
them: several moves together can empty a node where each alone gains nothing. The run with the most
gain per pod is next, as long as the budgets last. The search is greedy: a better plan may exist.
"""

import heapq
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from joulie_extender.defragment.fleet import Fleet, Move, Need, Occupant
from joulie_extender.gpu.fragmentation import MOST_CORES, NEVER, TENTH
from joulie_extender.gpu.shapes import CARD
from joulie_projections.twin.arrays import Bools, Floats, Ints

LEAST_GAIN = 100.0  # milli of a GPU per moved pod: its work begins again
MOST_OF_A_NODE = 8  # pods of one run
_FULLEST = 1e-6  # per free core; of places with equal losses the fullest node is taken


class Budget(NamedTuple):
    """At most so many of these pods are moved."""

    name: str
    moves: int
    uids: frozenset[str]


class Usable(NamedTuple):
    """The tables of `usable_by`: capacity that arriving pods could use, by what is free."""

    one: Floats
    many: Floats

    def lost(self, model: Ints, milli: Ints, rest: Ints) -> Floats:
        """By row, in milli of a card."""
        used, has_use = self._use(model, milli, rest)
        found: Floats = rest.sum(1) - used + (rest * ~has_use).sum(1)
        return found

    def has_use(self, fleet: Fleet) -> Bools:
        """Of each card, whether what is free of it is of use to any pod."""
        return self._use(fleet.model, fleet.free_milli, fleet.rest)[1]

    def expected_loss(self, fleet: Fleet) -> Floats:
        """By row: free capacity that a pod drawn from the arrivals could not use."""
        used, _ = self._use(fleet.model, fleet.free_milli, fleet.rest)
        found: Floats = fleet.rest.sum(1) - used
        return found

    def _use(self, model: Ints, milli: Ints, rest: Ints) -> tuple[Floats, Bools]:
        cores = np.minimum(np.maximum(milli // CARD, 0), MOST_CORES)
        of_one = self.one[model[:, None], cores[:, None], rest // TENTH]
        is_whole = rest == CARD
        of_many = self.many[model, cores, is_whole.sum(1)]
        has_use = (of_one > 0) | (is_whole & (of_many > 0)[:, None])
        return of_one.sum(1) + of_many, has_use


class Summary(NamedTuple):
    """What is free, in GPUs; cards, groups of linked cards and nodes that are wholly free and of
    use to some pod."""

    free: float
    unusable: float
    expected_loss: float
    cards: int
    groups: int
    nodes: int


def summary_of(fleet: Fleet, usable: Usable) -> Summary:
    has_use = usable.has_use(fleet)
    is_free = has_use & (fleet.rest == CARD)
    numbers = np.bincount(fleet.group.ravel(), minlength=1)
    whole = np.bincount(fleet.group[is_free], minlength=len(numbers)) == numbers
    cards = (fleet.whole > 0).sum(1)
    return Summary(
        free=float(fleet.rest.sum() / CARD),
        unusable=float((fleet.rest * ~has_use).sum() / CARD),
        expected_loss=float(usable.expected_loss(fleet).sum() / CARD),
        cards=int(is_free.sum()),
        groups=int((whole & (numbers > 0))[1:].sum()),
        nodes=int(((is_free.sum(1) == cards) & (cards > 0)).sum()),
    )


def planned_moves(
    fleet: Fleet,
    usable: Usable,
    occupants: Iterable[Occupant],
    most: int,
    budgets: Sequence[Budget] = (),
) -> list[Move]:
    """At most so many moves, in their order; the fleet has them afterwards."""
    search = _Search(fleet, usable, occupants, _Allowance(most, budgets))
    return search.moves()


class _Allowance:
    """How many moves are left, of all pods and of those under each budget."""

    def __init__(self, most: int, budgets: Sequence[Budget]) -> None:
        self.left = most
        self._budgets = [each.moves for each in budgets]
        self._of: dict[str, list[int]] = {}
        for at, each in enumerate(budgets):
            for uid in each.uids:
                self._of.setdefault(uid, []).append(at)

    def permits(self, uid: str) -> bool:
        return self.left > 0 and all(self._budgets[at] > 0 for at in self._of.get(uid, ()))

    def take(self, uid: str, number: int = 1) -> None:
        self.left -= number
        for at in self._of.get(uid, ()):
            self._budgets[at] -= number


class _Run(NamedTuple):
    """The best moves of one node's pods, and what each gains."""

    gain: float
    moves: tuple[Move, ...]


class _Search:
    def __init__(
        self, fleet: Fleet, usable: Usable, occupants: Iterable[Occupant], allowance: _Allowance
    ) -> None:
        self._fleet, self._usable, self._allowance = fleet, usable, allowance
        self._on: dict[int, list[Occupant]] = {}
        for each in occupants:
            self._on.setdefault(each.row, []).append(each)
        self._places = _Places(fleet, usable)

    def moves(self) -> list[Move]:
        """Gains are computed again before a run is taken: others may have changed them."""
        found, nodes = list[Move](), sorted(self._on)
        heap = [(-run.gain, row) for row in nodes if (run := self._run(row)).moves]
        heapq.heapify(heap)
        while heap and self._allowance.left > 0:
            _, row = heapq.heappop(heap)
            run = self._run(row)
            if not run.moves:
                continue
            if heap and run.gain < -heap[0][0]:
                heapq.heappush(heap, (-run.gain, row))
                continue
            self._take(run, row)
            found += run.moves
            heapq.heappush(heap, (-run.gain, row))
        return found

    def _take(self, run: _Run, row: int) -> None:
        """A pod is moved once at most."""
        for move in run.moves:
            self._allowance.take(move.occupant.uid)
            self._places.move(move)
        moved = {move.occupant.uid for move in run.moves}
        self._on[row] = [each for each in self._on[row] if each.uid not in moved]

    def _run(self, row: int) -> _Run:
        """The beginning of the run with the most gain per pod; the fleet is as before."""
        tried, gained, best = list[Move](), 0.0, _Run(LEAST_GAIN, ())
        for occupant in self._ordered(row):
            if not self._allowance.permits(occupant.uid):
                continue
            before = self._places.lost_on(row)
            place = self._places.best(occupant)
            if place is None:
                continue
            self._allowance.take(occupant.uid)
            tried.append(self._places.move_to(place, occupant))
            self._places.try_move(tried[-1])
            gained += before - self._places.lost_on(row) - place.cost
            if gained / len(tried) > best.gain:
                best = _Run(gained / len(tried), tuple(tried))
        self._places.undo(tried)
        for move in tried:
            self._allowance.take(move.occupant.uid, -1)
        return best

    def _ordered(self, row: int) -> list[Occupant]:
        """The pods that gain most first."""
        here = [each for each in self._on[row] if self._allowance.permits(each.uid)]
        if not here:
            return []
        model = np.full(len(here), self._fleet.model[row])
        left = self._usable.lost(model, *self._fleet.without(here))
        costs = [place.cost if (place := self._places.best(each)) else NEVER for each in here]
        order = np.argsort(left + np.array(costs), kind="stable")
        return [here[at] for at in order.tolist()][:MOST_OF_A_NODE]


class _Place(NamedTuple):
    cost: float  # what is lost more on the node
    row: int


class _Places:
    """Where pods fit, and at what cost; of each need only rows that changed are computed again.

    Costs are kept without the moves that are only tried: they are as before once these are undone.
    """

    def __init__(self, fleet: Fleet, usable: Usable) -> None:
        self._fleet, self._usable = fleet, usable
        self._lost = usable.lost(fleet.model, fleet.free_milli, fleet.rest)
        self._changed = list[int]()
        self._tried = list[int]()
        self._costs: dict[Need, tuple[Floats, int]] = {}

    def lost_on(self, row: int) -> float:
        return float(self._lost[row])

    def best(self, occupant: Occupant) -> _Place | None:
        """The place elsewhere with the least cost."""
        costs = self._costs_of(occupant.need)
        if self._tried:
            rows = np.array(self._tried)
            costs = costs.copy()
            costs[rows] = self._computed(occupant.need, rows)
        before, costs[occupant.row] = costs[occupant.row], NEVER
        row = int(costs.argmin())
        cost, costs[occupant.row] = float(costs[row]), before
        return None if cost == NEVER else _Place(cost, row)

    def move_to(self, place: _Place, occupant: Occupant) -> Move:
        cards = self._cards(occupant.need, np.array([place.row]))[1][0]
        return Move(occupant, place.row, tuple(cards.tolist()))

    def try_move(self, move: Move) -> None:
        self._fleet.move(move)
        self._tried += self._noted(move)

    def undo(self, moves: Sequence[Move]) -> None:
        """All that were tried, in this order."""
        for move in reversed(moves):
            self._fleet.undo(move)
            self._noted(move)
        self._tried.clear()

    def move(self, move: Move) -> None:
        self._fleet.move(move)
        self._changed += self._noted(move)

    def _noted(self, move: Move) -> list[int]:
        places = [move.occupant.row, move.row]
        rows, fleet = np.array(places), self._fleet
        self._lost[rows] = self._usable.lost(
            fleet.model[rows], fleet.free_milli[rows], fleet.rest[rows]
        )
        return places

    def _costs_of(self, need: Need) -> Floats:
        costs, seen = self._costs.get(need, (None, 0))
        if costs is None:
            costs = self._computed(need, np.arange(len(self._fleet.model)))
        elif seen < len(self._changed):
            rows = np.array(sorted(set(self._changed[seen:])))
            costs[rows] = self._computed(need, rows)
        self._costs[need] = costs, len(self._changed)
        return costs

    def _computed(self, need: Need, rows: Ints) -> Floats:
        fleet, found = self._fleet, np.full(len(rows), NEVER)
        fits = fleet.is_open[rows] & (fleet.free_milli[rows] - fleet.held_back[rows] >= need.milli)
        fits &= fleet.free_memory[rows] >= need.memory_mib
        if need.cards:
            fits &= self._fitting(need, rows).sum(1) >= need.cards
        at = np.flatnonzero(fits)
        if len(at):
            after, _ = self._cards(need, rows[at])
            found[at] = after - self._lost[rows[at]] + _FULLEST * fleet.free_milli[rows[at]]
        return found

    def _fitting(self, need: Need, rows: Ints) -> Bools:
        share = np.array(need.shares)[self._fleet.model[rows]]
        found: Bools = self._fleet.rest[rows] >= share[:, None]
        return found

    def _cards(self, need: Need, rows: Ints) -> tuple[Floats, Ints]:
        """What is lost with the pod there, and the cards that it takes; it fits on all rows."""
        fleet, at = self._fleet, np.arange(len(rows))
        milli, model = fleet.free_milli[rows] - need.milli, fleet.model[rows]
        if not need.cards:
            lost = self._usable.lost(model, milli, fleet.rest[rows])
            return lost, np.zeros((len(rows), 0), np.int64)
        share, fit = np.array(need.shares)[model], self._fitting(need, rows)
        if need.cards > 1:  # the fullest ones that fit
            order = np.argsort(np.where(fit, fleet.rest[rows], 2 * CARD), 1, kind="stable")
            cards = order[:, : need.cards]
            return self._usable.lost(model, milli, self._taken(rows, cards, share)), cards
        width = fit.shape[1]
        each, card = np.repeat(rows, width), np.tile(np.arange(width), len(rows))[:, None]
        taken = self._taken(each, card, np.repeat(share, width))
        lost = self._usable.lost(np.repeat(model, width), np.repeat(milli, width), taken)
        losses = np.where(fit, lost.reshape(fit.shape), NEVER)
        best = losses.argmin(1)
        return losses[at, best], best[:, None]

    def _taken(self, rows: Ints, cards: Ints, share: Ints) -> Ints:
        rest: Ints = self._fleet.rest[rows]
        at = np.arange(len(rows))[:, None]
        rest[at, cards] = np.maximum(rest[at, cards] - share[:, None], 0)
        return rest
