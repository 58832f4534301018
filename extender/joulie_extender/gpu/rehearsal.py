"""Chooses the weight of cores by a rehearsal: fills a small copy of the pool with likely pods.

No fixed weight is best for every mix of pods. Where pods ask for many cores, cards are stranded
unless pods with few cores keep to nodes with few cores; where many pods ask for all cards of a
node, the same rule breaks up those nodes. So each candidate fills every n-th node of the
pool, empty, with the same pods, drawn from the shapes that arrived. The one with the most GPUs in
use wins.

The same arrivals and nodes give the same choice: the draw is a fixed sequence of integers.
"""

from collections.abc import Iterator, Sequence
from typing import TypeVar

import numpy as np

from joulie_extender.gpu.fragmentation import CostCache, Measure, TermWeights, terms_of
from joulie_extender.gpu.pool import Pool
from joulie_extender.gpu.shapes import CARD, Arrivals, Shape
from joulie_projections.twin.arrays import Floats, Ints

K = TypeVar("K")
CANDIDATES = (  # the first is the usual one
    TermWeights(),
    TermWeights(need=0.75),
    TermWeights(need=1.5),
    TermWeights(fragmentation=1.0, cores=0.3),
)
MOST_NODES = 160
LEVELS = (80, 90, 100)  # percent of the capacity, asked for; what is in use then is added up
MARGIN = 8  # thousandths of the capacity that another candidate must be ahead of the first


def rehearsed(arrivals: Arrivals, pool: Pool, worth: Floats) -> TermWeights:
    small = Pool(pool.nodes[:: -(-len(pool.nodes) // MOST_NODES)])
    terms = terms_of(arrivals, small, worth)
    results = [_in_use(arrivals, Pool(small.nodes), Measure(terms, each)) for each in CANDIDATES]
    best = max(range(len(results)), key=results.__getitem__)
    is_ahead = results[best] > results[0] + MARGIN * small.capacity // CARD
    return CANDIDATES[best] if is_ahead else CANDIDATES[0]


def _in_use(arrivals: Arrivals, pool: Pool, measure: Measure) -> int:
    cache, asked, found = CostCache(pool, measure.costs), 0, 0
    drawn = drawn_from(arrivals)
    for level in LEVELS:
        while asked * 100 < level * pool.capacity:
            shape = next(drawn)
            asked += shape.gpu_milli
            costs = cache.of(shape)
            row = int(costs.cost.argmin())
            if costs.cost[row] < np.inf:
                pool.take(shape, row, cards_at(pool, shape, row, costs.card))
                cache.change(row)
        found += pool.allocated()
    return found


def cards_at(pool: Pool, shape: Shape, row: int, card: Ints) -> list[int]:
    """The cards of the node that the measure chose; of several, the fullest that fit."""
    if shape.cards <= 1:
        return [int(card[row])] if shape.cards else []
    rest = pool.rest[row]
    fitting: list[int] = np.flatnonzero(rest >= shape.share).tolist()
    return sorted(fitting, key=rest.__getitem__)[: shape.cards]


def drawn_from(arrivals: Arrivals) -> Iterator[Shape]:
    """Shapes and allowed models by their counts, without end."""
    shapes, models = arrivals.shapes(), arrivals.models()
    draw = _Draw()
    while True:
        shape, allowed = draw.one(shapes), draw.one(models)
        yield shape._replace(models=allowed) if shape.cards else shape


class _Draw:
    """A linear congruential generator: the same numbers for everybody."""

    def __init__(self) -> None:
        self._state = 1

    def one(self, counts: Sequence[tuple[K, int]]) -> K:
        self._state = (self._state * 6364136223846793005 + 1442695040888963407) % 2**64
        left = (self._state >> 20) % sum(count for _, count in counts)
        for key, count in counts:
            left -= count
            if left < 0:
                return key
        raise AssertionError("the number drawn is less than the sum")
