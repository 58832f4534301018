"""The measure that follows the pods of one pool: tables and weights, renewed as pods arrive.

Tables are renewed after 64, 128, 256 and 512 pods and from then on after every 512; prices and
weights after 256, 1024 and 4096 pods and from then on after every 4096.
"""

from joulie_extender.gpu.fragmentation import CostCache, Measure, TermWeights, terms_of, worth_of
from joulie_extender.gpu.pool import Pool
from joulie_extender.gpu.rehearsal import rehearsed
from joulie_extender.gpu.shapes import Arrivals, Shape

FIRST_TABLES, TABLES_EVERY = 64, 512
FIRST_REHEARSAL, REHEARSAL_EVERY = 256, 4096


class Learned:
    """`pool` is the pool that pods are placed on."""

    def __init__(self, pool: Pool) -> None:
        self.weights = TermWeights()
        self._pool, self._arrivals = pool, Arrivals()
        self._worth = worth_of(self._arrivals)
        self._terms = terms_of(self._arrivals, pool, self._worth)
        self._tables_at, self._rehearsal_at = FIRST_TABLES, FIRST_REHEARSAL
        self.cache = CostCache(pool, Measure(self._terms, self.weights).costs)

    def arrive(self, shape: Shape) -> None:
        self._arrivals.count(shape)
        if self._arrivals.pods >= self._tables_at:
            self._tables_at += min(self._tables_at, TABLES_EVERY)
            self._renew()

    def _renew(self) -> None:
        is_rehearsed = self._arrivals.pods >= self._rehearsal_at
        if is_rehearsed:
            self._worth = worth_of(self._arrivals)
            self._rehearsal_at += min(3 * self._rehearsal_at, REHEARSAL_EVERY)
        self._terms = terms_of(self._arrivals, self._pool, self._worth)
        if is_rehearsed:
            self.weights = rehearsed(self._arrivals, self._pool, self._worth)
        self._arrivals.age()
        self.cache.replace(Measure(self._terms, self.weights).costs)
