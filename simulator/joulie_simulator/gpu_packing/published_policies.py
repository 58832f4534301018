"""The policies of `simulate gpus --published`: each gives every node a cost, and the least wins."""

import random
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import partial

import numpy as np

from joulie_bus.events import PodAsk
from joulie_extender.gpu.card_worth import PARTS
from joulie_extender.gpu.fit import FRAGMENTATION
from joulie_extender.gpu.fragmentation import (
    NEVER,
    CostCache,
    Costs,
    Measure,
    Terms,
    TermWeights,
    usable_by,
)
from joulie_extender.gpu.pool import Pool
from joulie_extender.gpu.shapes import Shape
from joulie_projections.twin.arrays import Floats, Ints
from joulie_simulator.cluster.kube_arithmetic import BEST, Use, plugin_scores
from joulie_simulator.gpu_packing.card_watts import added_watts
from joulie_simulator.gpu_packing.product import Product, mb_of

FGD = TermWeights(fragmentation=1.0, cores=0.0, worth=0.0, models=0.0)
Evaluator = Callable[[Pool, Shape, Ints], Costs]
POWER = 0.1  # of the score of pwr-fgd, as in the article


class Packing:
    """A policy with a cost per shape and node; equal costs go to the first node."""

    def __init__(self, pool: Pool, measure: Evaluator, draw: random.Random | None = None) -> None:
        self.pool, self._draw = pool, draw
        self.cache = CostCache(partial(measure, pool), len(pool.nodes))

    def costs(self, shape: Shape) -> Floats:
        return self.cache.of(shape).cost

    def row(self, costs: Floats) -> int:
        first = int(costs.argmin())
        if self._draw is None:
            return first
        return int(self._draw.choice(np.flatnonzero(costs == costs[first])))

    def cards(self, shape: Shape, row: int) -> Sequence[int]:
        return cards_at(self.pool, shape, row, self.cache.of(shape).card)

    def changed(self, row: int) -> None:
        self.cache.change(row)

    def arrived(self, shape: Shape) -> None:
        """Most policies learn nothing."""

    def left(self, number: int, row: int, cards: Sequence[int]) -> None:
        """The pod that was placed as this one, from 0, has left the pool."""
        self.changed(row)


class Joulie(Packing):
    """The product, which knows only the pods that have arrived; equal answers by chance."""

    scoring = ""  # by cards alone

    def __init__(self, pool: Pool, pods: Sequence[Shape], seed: int) -> None:
        super().__init__(pool, random_node, random.Random(seed))
        models = [pod.models for pod in pods if pod.models]
        self._product = Product(pool, FRAGMENTATION, models, self.scoring)
        self._bound = list[PodAsk]()

    def costs(self, shape: Shape) -> Floats:
        self._pod = self._product.arrives(shape)
        answer = self._product.scores(self._pod)
        return np.where(self.cache.of(shape).cost < NEVER, -answer.astype(np.float64), NEVER)

    def cards(self, shape: Shape, row: int) -> Sequence[int]:
        chosen = self._product.cards(self._pod, row) if shape.cards else []
        self._bind(self._pod, shape, row, chosen)
        return chosen

    def follow(self, shape: Shape, row: int | None, cards: Sequence[int]) -> None:
        """A pod that another policy has placed in the same pool; without a row, it is pending."""
        pod = self._product.arrives(shape)
        if row is not None:
            self._bind(pod, shape, row, cards)
            self.changed(row)

    def left(self, number: int, row: int, cards: Sequence[int]) -> None:
        super().left(number, row, cards)
        self._product.leaves(self._bound[number], row, cards)

    def _bind(self, pod: PodAsk, shape: Shape, row: int, cards: Sequence[int]) -> None:
        self._product.binds(pod, row, cards, mb_of(shape))
        self._bound.append(pod)


class JoulieSavings(Joulie):
    """The score of `PRESET=savings`: the watts that a pod adds, with those of lost GPUs."""

    scoring = "energy"


class PowerAndFragmentation(Packing):
    """The article's weighted sum of two scores from 0 to 100."""

    def __init__(self, pool: Pool, pods: Sequence[Shape]) -> None:
        super().__init__(pool, fgd_of(pool, pods))
        self._watts = CostCache(partial(added_watts, pool), len(pool.nodes))

    def costs(self, shape: Shape) -> Floats:
        watts, fgd = self._watts.of(shape).cost, self.cache.of(shape).cost
        known = watts[watts < NEVER]
        if not len(known):
            return fgd
        low, high = float(known.min()), float(known.max())
        scaled = (watts - low) * (BEST / (high - low)) if high > low else watts - low
        return np.where(watts < NEVER, POWER * scaled + (1 - POWER) * fgd, NEVER)

    def changed(self, row: int) -> None:
        super().changed(row)
        self._watts.change(row)


def cards_at(pool: Pool, shape: Shape, row: int, card: Ints) -> list[int]:
    """The cards of the node that the measure chose; of several, the fullest that fit."""
    if shape.cards <= 1:
        return [int(card[row])] if shape.cards else []
    rest = pool.rest[row]
    fitting: list[int] = np.flatnonzero(rest >= shape.share).tolist()
    return sorted(fitting, key=rest.__getitem__)[: shape.cards]


def fgd_of(pool: Pool, pods: Sequence[Shape]) -> Evaluator:
    """FGD knows the popularity of all shapes beforehand, and answers with integers to 100."""
    counts = Counter(shape for shape in pods if shape.cards)
    wanted = [
        (shape, np.where(pool.allowed(shape.models), count / counts.total(), 0.0))
        for shape, count in counts.items()
    ]
    one, many = usable_by(wanted, len(pool.models), int(pool.cards.max()))
    nothing = np.zeros(len(pool.models))
    measure = Measure(Terms(one, many, np.zeros(PARTS + 1), nothing, need=1.0), FGD)

    def evaluated(pool: Pool, shape: Shape, rows: Ints) -> Costs:
        cost, card = measure.costs(pool, shape, rows)
        points = np.floor(BEST / (1 + np.exp(np.minimum(cost, 1e5) / 1000)))
        return Costs(np.where(cost < NEVER, -points, NEVER), card)

    return evaluated


def random_node(pool: Pool, shape: Shape, rows: Ints) -> Costs:
    fits = pool.fits(shape, rows)
    return Costs(np.where(fits, 0.0, NEVER), first_card(pool, shape, rows))


def kube_default(pool: Pool, shape: Shape, rows: Ints) -> Costs:
    milli, memory = pool.milli[rows], pool.memory[rows]
    points = plugin_scores(
        Use(milli - pool.free_milli[rows] + shape.milli, milli),
        Use(memory - pool.free_memory[rows] + shape.memory_mib, memory),
    )
    cost = np.where(pool.fits(shape, rows), -points.astype(np.float64), NEVER)
    return Costs(cost, first_card(pool, shape, rows))


def best_fit(pool: Pool, shape: Shape, rows: Ints) -> Costs:
    """The node with the least left over, and of its cards the fullest that fits."""
    left = (pool.free_milli[rows] - shape.milli) / pool.milli.max()
    left += (pool.free_memory[rows] - shape.memory_mib) / pool.memory.max()
    left += (pool.rest[rows].sum(1) - shape.gpu_milli) / (1000 * pool.cards.max())
    rest = np.where(pool.rest[rows] >= shape.share, pool.rest[rows], 1001)
    return Costs(np.where(pool.fits(shape, rows), left, NEVER), rest.argmin(1))


def first_card(pool: Pool, shape: Shape, rows: Ints) -> Ints:
    found: Ints = (pool.rest[rows] >= shape.share).argmax(1)
    return found


Beginning = Callable[[Pool, Sequence[Shape], int], Packing]
POLICIES: Mapping[str, Beginning] = {
    "kube-default": lambda pool, _, seed: Packing(pool, kube_default, random.Random(seed)),
    "best-fit": lambda pool, *_: Packing(pool, best_fit),
    "random": lambda pool, _, seed: Packing(pool, random_node, random.Random(seed)),
    "fgd": lambda pool, pods, _: Packing(pool, fgd_of(pool, pods)),
    "pwr-fgd": lambda pool, pods, _: PowerAndFragmentation(pool, pods),
    "joulie": Joulie,
    "joulie-savings": JoulieSavings,
}
