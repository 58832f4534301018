"""The method by which GPU packing is published, so that figures can be compared.

Pods arrive in random order until their requests reach 130 % of the GPUs. A pod that does not fit is
dropped; all others stay. Only nodes with GPUs take part, and the models that a pod allows are
obeyed. A row has what is allocated, and the watts, each time a level has arrived.

The method is that of Weng et al., "Beware of Fragmentation" (USENIX ATC 2023).
"""

import random
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from joulie_extender.gpu.card_worth import prices_of
from joulie_extender.gpu.pool import Pool, PoolNode
from joulie_extender.gpu.shapes import Shape, hundredths
from joulie_simulator.gpu_packing.card_watts import watts_of
from joulie_simulator.gpu_packing.published_policies import Packing

LEVELS = (50, 80, 90, 100, 130)  # percent of the GPUs


class Row(NamedTuple):
    policy: str
    seed: int
    arrived: int  # percent of all GPUs
    allocated: float  # percent of all GPUs
    watts: int


class Arriving:
    """Pods in random order; if all have arrived, they arrive again in another order."""

    def __init__(self, pods: Sequence[Shape], seed: int) -> None:
        self._pods, self._random = pods, random.Random(seed)

    def __iter__(self) -> Iterator[Shape]:
        while True:
            yield from self._random.sample(self._pods, len(self._pods))


def filled(name: str, policy: Packing, pool: Pool, pods: Sequence[Shape], seed: int) -> list[Row]:
    rows, asked, levels = list[Row](), 0, list(LEVELS)
    for shape in Arriving(pods, seed):
        placed(policy, pool, shape)
        asked += shape.gpu_milli
        while levels and asked * 100 >= levels[0] * pool.capacity:
            share = round(100 * pool.allocated() / pool.capacity, 2)
            rows.append(Row(name, seed, levels.pop(0), share, round(watts_of(pool).sum())))
        if not levels:
            break
    return rows


class Place(NamedTuple):
    row: int
    cards: Sequence[int]


def placed(policy: Packing, pool: Pool, shape: Shape) -> Place | None:
    """None if the pod fits nowhere."""
    costs, place = policy.costs(shape), None
    row = policy.row(costs)
    if costs[row] < np.inf:
        place = Place(row, policy.cards(shape, row))
        pool.take(shape, row, place.cards)
        policy.changed(row)
    policy.arrived(shape)
    return place


def bounds(pool: Pool, pods: Sequence[Shape], seeds: Sequence[int]) -> Mapping[int, float]:
    """The most that any placement could allocate of what has arrived at each level, in percent.

    Cards are bins; cores, memory, nodes and models are ignored. For the mean of the seeds: the
    bound of the mean demand is not less than the mean of their bounds.
    """
    asked = {level: Counter[int]() for level in LEVELS}
    for seed in seeds:
        for level, parts in _asked(pool, Arriving(pods, seed)):
            asked[level].update(parts)
    cards = int(pool.cards.sum()) * len(seeds)
    return {
        level: round(prices_of({size: counts[size] / cards for size in sorted(counts)}).bound, 2)
        for level, counts in asked.items()
    }


def _asked(pool: Pool, arriving: Arriving) -> Iterator[tuple[int, Mapping[int, int]]]:
    """At each level, the cards that were asked for, by their size in hundredths."""
    parts, asked, levels = Counter[int](), 0, list(LEVELS)
    for shape in arriving:
        asked += shape.gpu_milli
        if shape.cards:
            parts[hundredths(shape.share)] += shape.cards
        while levels and asked * 100 >= levels[0] * pool.capacity:
            yield levels.pop(0), parts.copy()
        if not levels:
            return


def pool_of(nodes: Sequence[PoolNode]) -> Pool:
    return Pool([node for node in nodes if node.cards])


def misfit(pods: Sequence[Shape], pool: Pool) -> str:
    """Why these pods cannot fill this pool; empty if they can."""
    if not pool.capacity:
        return "no node has a GPU"
    if not any(shape.gpu_milli for shape in pods):
        return "no pod asks for a GPU"
    return ""
