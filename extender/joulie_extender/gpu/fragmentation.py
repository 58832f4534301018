"""What a placement costs the pods that arrive later, in milli of a card; the least cost wins.

    cost = 0.2 F + 1 C + 4 V + 1 M, each the change by the placement

- F, fragmentation: free GPU capacity that a pod drawn from the arrivals could not use, because the
  node has not the cores, the whole cards, the rest of a card or the model that it asks for.
- C, stranded cards: free GPUs beyond those that the free cores of the node can serve.
- V, worth of the cards' rests, by the prices of `card_worth`.
- M, models that others wait for: the demand bound to the node's model over its capacity.

F and C are of Weng et al., "Beware of Fragmentation" (USENIX ATC 2023), and of our own.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Generic, NamedTuple, Protocol, TypeVar

import numpy as np

from joulie_extender.gpu.card_worth import PARTS
from joulie_extender.gpu.shapes import CARD, Shape, hundredths
from joulie_projections.twin.arrays import Bools, Floats, Ints

MOST_CORES = 128  # more free cores than this make no difference
TENTH = CARD // PARTS
_GRAIN = 1024.0  # parts of a milli: sums of multiples are exact in any order
NEVER = np.inf  # the cost where the pod does not fit


class TermWeights(NamedTuple):
    fragmentation: float = 0.2
    cores: float = 1.0
    worth: float = 4.0
    models: float = 1.0


class Terms(NamedTuple):
    """The tables that arrivals give for one pool."""

    one: Floats  # [model, free cores, rest]: capacity of a card that pods of one card can use
    many: Floats  # [model, free cores, whole cards]: the same of pods of several cards
    worth: Floats  # [rest]
    price: Floats  # [model], per GPU
    need: float  # cores per GPU that free cards are taken to need


class Costs(NamedTuple):
    """One value per row."""

    cost: Floats
    card: Ints  # the best card for a pod of one card; of several, the first


def usable_by(
    wanted: Iterable[tuple[Shape, Floats]], models: int, most_cards: int
) -> tuple[Floats, Floats]:
    """The tables `one` and `many` for shapes with their popularity on each model."""
    one = np.zeros((models, MOST_CORES + 1, PARTS + 1))
    many = np.zeros((models, MOST_CORES + 1, most_cards + 1))
    for shape, popularity in wanted:
        cores = -(-shape.milli // 1000)
        if not shape.cards or cores > MOST_CORES or shape.cards >= many.shape[2]:
            continue
        if shape.cards == 1:
            one[:, cores, hundredths(shape.share)] += popularity
        else:
            many[:, cores, shape.cards] += popularity
    for table, step in ((one, TENTH), (many, CARD)):
        np.cumsum(table, 1, out=table)  # a pod that asks for less fits, too
        np.cumsum(table, 2, out=table)
        table *= step * np.arange(table.shape[2])
    return one, many


class Placeable(Protocol):
    """Nodes with free cards, one value per row; `rest` has one column per card."""

    @property
    def free_milli(self) -> Ints: ...  # of cores

    @property
    def free_memory(self) -> Ints: ...

    @property
    def model(self) -> Ints: ...

    @property
    def rest(self) -> Ints: ...  # milli of each card that are free

    def allowed(self, models: Sequence[str]) -> Bools: ...  # by the number of the model


class Measure:
    """The costs of placements under given tables and weights."""

    def __init__(self, terms: Terms, weights: TermWeights = TermWeights()) -> None:  # noqa: B008
        self._worth = _exact(weights.worth * terms.worth)
        self._one = _exact(weights.fragmentation * terms.one).ravel()
        self._many = _exact(weights.fragmentation * terms.many).ravel()
        self._counts = terms.many.shape[2]
        self._price = _exact(weights.models * terms.price)
        self._cores, self._need = weights.cores, max(0.1, terms.need)

    def costs(self, pool: Placeable, shape: Shape, rows: Ints, *, is_spread: bool = False) -> Costs:
        """Spread, the pod gets the cards with the largest rests, and else those that cost least."""
        milli, model, rest = pool.free_milli[rows], pool.model[rows], pool.rest[rows]
        left = milli - shape.milli
        fits = (left >= 0) & (pool.free_memory[rows] >= shape.memory_mib)
        if shape.models:
            fits &= pool.allowed(shape.models)[model]
        whole, free = np.add.reduce(rest == CARD, 1), np.add.reduce(rest, 1)
        now, then = _place(model, milli), _place(model, left)
        usable = self._usable(now, rest) + self._many.take(now * self._counts + whole)
        cost = usable - self._usable(then, rest)
        if self._cores:
            lost = _stranded(free - shape.gpu_milli, left, self._need)
            cost += self._cores * (lost - _stranded(free, milli, self._need))
        if not shape.cards:
            cost -= self._many.take(then * self._counts + whole)
            return Costs(np.where(fits, cost, NEVER), np.zeros(len(rows), np.int64))
        if not shape.models:
            cost += self._price[model] * shape.gpu_milli
        by_card = self._by_card(shape, rest, then, whole)
        if is_spread:
            by_card[~_are_largest(rest, shape.cards)] = NEVER
        card = by_card.argmin(1)
        if shape.cards == 1:
            cost += np.minimum.reduce(by_card, 1)
        else:
            cost += _of_several(by_card, shape.cards)
        return Costs(np.where(fits, cost, NEVER), card)

    def by_card(self, pool: Placeable, shape: Shape, row: int) -> Floats:
        """What each card of a row costs; NEVER where the pod does not fit."""
        at = np.array([row])
        rest = pool.rest[at]
        then = _place(pool.model[at], pool.free_milli[at] - shape.milli)
        found: Floats = self._by_card(shape, rest, then, (rest == CARD).sum(1))[0]
        return found

    def _usable(self, place: Ints, rest: Ints) -> Floats:
        found: Floats = np.add.reduce(self._use(place, rest), 1)
        return found

    def _use(self, place: Ints, rest: Ints) -> Floats:
        found: Floats = self._one.take(place[:, None] * (PARTS + 1) + rest // TENTH)
        return found

    def _by_card(self, shape: Shape, rest: Ints, then: Ints, whole: Ints) -> Floats:
        """What taking each card costs, and the whole cards that are left."""
        fit: Bools = rest >= shape.share
        after = np.where(fit, rest - shape.share, 0)
        lost = self._use(then, rest) - self._use(then, after)
        lost += self._worth.take(rest // TENTH) - self._worth.take(after // TENTH)
        taken = (rest == CARD) * shape.cards
        left = np.maximum(whole[:, None] - taken, 0)
        kept = self._many.take((then * self._counts)[:, None] + left)
        return np.where(fit, lost - _exact(kept / shape.cards), NEVER)


def _exact(values: Floats) -> Floats:
    found: Floats = np.rint(values * _GRAIN) / _GRAIN
    return found


def _place(model: Ints, milli: Ints) -> Ints:
    """The place of the model's free cores in a table."""
    cores = np.minimum(np.maximum(milli // 1000, 0), MOST_CORES)  # np.clip takes longer
    return model * (MOST_CORES + 1) + cores


def _stranded(free: Ints, milli: Ints, need: float) -> Floats:
    found: Floats = np.maximum(0.0, free - _exact(milli / need))
    return found


def _are_largest(rest: Ints, cards: int) -> Bools:
    """Equal rests cost the same, so that their order does not matter."""
    found = np.zeros(rest.shape, np.bool_)
    np.put_along_axis(found, np.argsort(rest, 1)[:, -cards:], values=True, axis=1)
    return found


def _of_several(by_card: Floats, cards: int) -> Floats:
    if by_card.shape[1] < cards:
        return np.full(len(by_card), NEVER)
    found: Floats = np.sort(by_card, 1)[:, :cards].sum(1)
    return found


MOST_KEPT = 256  # shapes
K = TypeVar("K")


class CostCache(Generic[K]):
    """The costs of each shape on all rows; only rows that changed are computed again.

    The caller copies from what it returns, because later calls write to the same arrays.
    """

    def __init__(self, evaluate: Callable[[K, Ints], Costs], rows: int) -> None:
        self._evaluate = evaluate
        self._all = np.arange(rows)
        self._changed = list[int]()
        self._kept: dict[K, tuple[Costs, int]] = {}

    def of(self, shape: K) -> Costs:
        costs, seen = self._kept.get(shape, (None, 0))
        stale = self._changed[seen:]
        if costs is None or len(stale) > len(self._all):
            costs = self._evaluate(shape, self._all)
        elif stale:
            rows = np.array(sorted(set(stale)))
            fresh = self._evaluate(shape, rows)
            costs.cost[rows], costs.card[rows] = fresh
        if len(self._kept) >= MOST_KEPT:
            self._begin_anew()
        self._kept[shape] = costs, len(self._changed)
        return costs

    def change(self, row: int) -> None:
        self._changed.append(row)
        if len(self._changed) > 16 * len(self._all):  # without calls of `of`, too
            self._begin_anew()

    def _begin_anew(self) -> None:
        self._kept.clear()
        self._changed.clear()
