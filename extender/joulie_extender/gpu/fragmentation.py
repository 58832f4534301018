"""What a placement costs the pods that arrive later, in milli of a card; the least cost wins.

    cost = 0.2 F + 1 C + 4 V + 1 M, each the change by the placement

- F, fragmentation: free GPU capacity that a pod drawn from the arrivals could not use, because the
  node has not the cores, the whole cards, the rest of a card or the model that it asks for.
- C, stranded cards: free GPUs beyond those that the free cores of the node can serve.
- V, worth of the cards' rests, by the prices of `card_worth`.
- M, models that others wait for: the demand bound to the node's model over its capacity.

F and C are of Weng et al., "Beware of Fragmentation" (USENIX ATC 2023), and of our own.
"""

from collections.abc import Callable, Iterable
from typing import NamedTuple

import numpy as np

from joulie_extender.gpu.card_worth import PARTS, prices_of
from joulie_extender.gpu.pool import Pool
from joulie_extender.gpu.shapes import CARD, Arrivals, Shape, hundredths
from joulie_projections.twin.arrays import Bools, Floats, Ints

MOST_CORES = 128  # more free cores than this make no difference
TENTH = CARD // PARTS
WHOLE_NODE = 200  # of so many pods one is assumed to ask for a whole node, of each kind
NEVER = np.inf  # the cost where the pod does not fit


class TermWeights(NamedTuple):
    fragmentation: float = 0.2
    cores: float = 1.0
    worth: float = 4.0
    models: float = 1.0
    need: float = 0.92  # times the learned cores per GPU; see `rehearsal`


class Terms(NamedTuple):
    """The tables that arrivals give for one pool."""

    one: Floats  # [model, free cores, rest]: capacity of a card that pods of one card can use
    many: Floats  # [model, free cores, whole cards]: the same of pods of several cards
    worth: Floats  # [rest]
    price: Floats  # [model], per GPU
    need: float  # cores per GPU


class Costs(NamedTuple):
    """One value per row."""

    cost: Floats
    card: Ints  # the best card for a pod of one card; of several, the first


def terms_of(arrivals: Arrivals, pool: Pool, worth: Floats) -> Terms:
    shapes, reach = arrivals.shapes(), _reach(arrivals, pool)
    total = max(1, sum(count for shape, count in shapes if shape.cards))
    wanted = [(shape, count / total * reach) for shape, count in shapes]
    one, many = usable_by(wanted + _whole_nodes(pool), pool)
    return Terms(one, many, worth, _prices(arrivals, pool), arrivals.need())


def worth_of(arrivals: Arrivals) -> Floats:
    return np.array(prices_of(arrivals.demand()).worth) * TENTH


def usable_by(wanted: Iterable[tuple[Shape, Floats]], pool: Pool) -> tuple[Floats, Floats]:
    """The tables `one` and `many` for shapes with their popularity on each model."""
    one = np.zeros((len(pool.models), MOST_CORES + 1, PARTS + 1))
    many = np.zeros((len(pool.models), MOST_CORES + 1, pool.rest.shape[1] + 1))
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


def _whole_nodes(pool: Pool) -> list[tuple[Shape, Floats]]:
    """A pod that fills a node, for each kind of node: it keeps empty nodes empty among equals."""
    kinds = set(zip(pool.model.tolist(), pool.milli.tolist(), pool.cards.tolist(), strict=True))
    models = np.arange(len(pool.models))
    return [
        (Shape(min(MOST_CORES * 1000, milli), 0, cards, CARD), (models == model) / WHOLE_NODE)
        for model, milli, cards in sorted(kinds)
        if cards
    ]


def _prices(arrivals: Arrivals, pool: Pool) -> Floats:
    """The demand that is bound to each model, relative to its capacity."""
    capacity = np.bincount(pool.model, pool.cards, len(pool.models))
    bound, asked = np.zeros(len(pool.models)), arrivals.models()
    for models, milli in asked:
        if models:
            share = capacity * pool.allowed(models)
            bound += milli * share / max(1.0, float(share.sum()))
    full = float(capacity.sum()) / max(1, sum(milli for _, milli in asked))
    return np.divide(bound * full, capacity, out=np.zeros(len(bound)), where=capacity > 0)


def _reach(arrivals: Arrivals, pool: Pool) -> Floats:
    """The share of the demand that may use each model."""
    asked = arrivals.models()
    total = max(1, sum(milli for _, milli in asked))
    found = np.zeros(len(pool.models))
    for models, milli in asked:
        found += milli / total * pool.allowed(models)
    return found


class Measure:
    """The costs of placements under given tables and weights."""

    def __init__(self, terms: Terms, weights: TermWeights) -> None:
        self._worth = weights.worth * terms.worth
        self._one = (weights.fragmentation * terms.one).ravel()
        self._many = (weights.fragmentation * terms.many).ravel()
        self._counts = terms.many.shape[2]
        self._price = weights.models * terms.price
        self._cores, self._need = weights.cores, max(0.1, terms.need * weights.need)

    def costs(self, pool: Pool, shape: Shape, rows: Ints) -> Costs:
        milli, model, rest = pool.free_milli[rows], pool.model[rows], pool.rest[rows]
        left = milli - shape.milli
        fits = (left >= 0) & (pool.free_memory[rows] >= shape.memory_mib)
        if shape.models:
            fits &= pool.allowed(shape.models)[model]
        whole, free = (rest == CARD).sum(1), rest.sum(1)
        now, then = _place(model, milli), _place(model, left)
        usable = self._use(now, rest).sum(1) + self._many.take(now * self._counts + whole)
        cost = usable - self._use(then, rest).sum(1)
        if self._cores:
            lost = _stranded(free - shape.gpu_milli, left, self._need)
            cost += self._cores * (lost - _stranded(free, milli, self._need))
        if not shape.cards:
            cost -= self._many.take(then * self._counts + whole)
            return Costs(np.where(fits, cost, NEVER), np.zeros(len(rows), np.int64))
        if not shape.models:
            cost += self._price[model] * shape.gpu_milli
        by_card = self._by_card(shape, rest, then, whole)
        card = by_card.argmin(1)
        if shape.cards == 1:
            cost += by_card[np.arange(len(rows)), card]
        else:
            cost += _of_several(by_card, shape.cards)
        return Costs(np.where(fits, cost, NEVER), card)

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
        return np.where(fit, lost - kept / shape.cards, NEVER)


def _place(model: Ints, milli: Ints) -> Ints:
    """The place of the model's free cores in a table."""
    return model * (MOST_CORES + 1) + np.clip(milli // 1000, 0, MOST_CORES)


def _stranded(free: Ints, milli: Ints, need: float) -> Floats:
    found: Floats = np.maximum(0.0, free - milli / need)
    return found


def _of_several(by_card: Floats, cards: int) -> Floats:
    if by_card.shape[1] < cards:
        return np.full(len(by_card), NEVER)
    found: Floats = np.sort(by_card, 1)[:, :cards].sum(1)
    return found


Evaluator = Callable[[Pool, Shape, Ints], Costs]


class CostCache:
    """The costs of each shape on all rows; only rows that changed are computed again."""

    def __init__(self, pool: Pool, measure: Evaluator) -> None:
        self._pool, self._measure = pool, measure
        self._all = np.arange(len(pool.milli))
        self._changed = list[int]()
        self._kept: dict[Shape, tuple[Costs, int]] = {}

    def of(self, shape: Shape) -> Costs:
        costs, seen = self._kept.get(shape, (None, 0))
        stale = self._changed[seen:]
        if costs is None or len(stale) > len(self._all):
            costs = self._measure(self._pool, shape, self._all)
        elif stale:
            rows = np.array(sorted(set(stale)))
            fresh = self._measure(self._pool, shape, rows)
            costs.cost[rows], costs.card[rows] = fresh
        self._kept[shape] = costs, len(self._changed)
        return costs

    def change(self, row: int) -> None:
        self._changed.append(row)

    def replace(self, measure: Evaluator) -> None:
        self._measure = measure
        self._kept.clear()
        self._changed.clear()
