"""Chooses the weight of cores by a rehearsal: fills a small copy of the pool with likely pods.

No fixed weight is best for every mix of pods. Where pods ask for many cores, cards are stranded
unless pods with few cores keep to nodes with few cores; where many pods ask for all cards of a
node, the same rule breaks up those nodes. So each candidate fills every n-th node of the
pool, empty, with the same pods, drawn from the shapes that arrived. The one with the most GPUs in
use wins.

The same arrivals and nodes give the same choice: the draw is a fixed sequence of integers.
"""

from collections.abc import Iterator, Sequence
from functools import partial

import numpy as np

from joulie_extender.gpu.demand import PoolKinds, share_of, terms_of
from joulie_extender.gpu.fragmentation import CostCache, Measure, TermWeights
from joulie_extender.gpu.pool import Pool, PoolNode
from joulie_extender.gpu.shapes import CARD, Shape
from joulie_projections.state.gpu_arrivals import GpuArrivals, GpuDemand, GpuShape
from joulie_projections.twin.arrays import Bools, Floats, Ints

CANDIDATES = (  # the first is the usual one
    TermWeights(),
    TermWeights(need=0.75),
    TermWeights(need=1.5),
    TermWeights(fragmentation=1.0, cores=0.3),
)
MOST_NODES = 160
LEVELS = (80, 90, 100)  # percent of the capacity, asked for; what is in use then is added up
MARGIN = 8  # thousandths of the capacity that another candidate must be ahead of the first


class _Copy(Pool):
    """Every n-th node of a pool, empty; pods name models as their annotations do."""

    def __init__(self, nodes: Sequence[PoolNode], kinds: PoolKinds) -> None:
        super().__init__(nodes[:: -(-len(nodes) // MOST_NODES)])
        self._kinds = kinds
        self.models = list(kinds.models)
        self.model = np.array([self.models.index(node.model) for node in self.nodes], np.int64)

    def allowed(self, models: Sequence[str]) -> Bools:
        return self._kinds.allowed(models[0] if models else "")


def rehearsed(
    demand: GpuDemand, kinds: PoolKinds, nodes: Sequence[PoolNode], worth: Floats
) -> TermWeights:
    terms = terms_of(demand, kinds, worth)
    results = [
        _in_use(demand.arrivals, _Copy(nodes, kinds), kinds, Measure(terms, each))
        for each in CANDIDATES
    ]
    best = max(range(len(results)), key=results.__getitem__)
    is_ahead = results[best] > results[0] + MARGIN * _Copy(nodes, kinds).capacity // CARD
    return CANDIDATES[best] if is_ahead else CANDIDATES[0]


def _in_use(arrivals: GpuArrivals, pool: Pool, kinds: PoolKinds, measure: Measure) -> int:
    cache = CostCache(partial(measure.costs, pool), len(pool.nodes))
    asked = found = 0
    drawn = drawn_from(arrivals, kinds)
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


def drawn_from(arrivals: GpuArrivals, kinds: PoolKinds) -> Iterator[Shape]:
    """Shapes and allowed models by their counts, without end; memory by the most common card."""
    shapes, models = sorted(arrivals.shapes.items()), sorted(arrivals.models.items())
    draw = _Draw()
    while True:
        shape, model = GpuShape.of_key(draw.one(shapes)), draw.one(models)
        share = min(CARD, share_of(shape.share, shape.mb, kinds.common_mb))
        yield Shape(shape.milli, 0, shape.cards, share, (model,) if model else ())


class _Draw:
    """A linear congruential generator: the same numbers for everybody."""

    def __init__(self) -> None:
        self._state = 1

    def one(self, counts: Sequence[tuple[str, int]]) -> str:
        self._state = (self._state * 6364136223846793005 + 1442695040888963407) % 2**64
        left = (self._state >> 20) % sum(count for _, count in counts)
        for key, count in counts:
            left -= count
            if left < 0:
                return key
        raise AssertionError("the number drawn is less than the sum")
