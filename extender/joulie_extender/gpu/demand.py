"""The tables of the cost, from what pods asked for and the kinds of nodes that there are."""

from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from joulie_extender.gpu.card_worth import prices_of
from joulie_extender.gpu.fit import NEED_BY_NODES, NEED_FIXED
from joulie_extender.gpu.fragmentation import MOST_CORES, TENTH, Terms, usable_by
from joulie_extender.gpu.models import Aliases, is_model
from joulie_extender.gpu.shapes import CARD, Shape, hundredths
from joulie_projections.state.gpu_arrivals import Counts, GpuArrivals, GpuDemand, GpuShape
from joulie_projections.twin.arrays import Bools, Floats

USUAL = 0.92  # times the mean; at 1 pods of 8 cards are dropped early
NEARLY = 0.95  # of what most cards have
SCARCE, FAR_ABOVE = 1.2, 1.6  # times the mean, and times what most cards have
WHOLE_NODE = 200  # of so many pods one is assumed to ask for a whole node, of each kind


class NodeKind(NamedTuple):
    model: int  # place among the models
    milli: int  # of cores
    cards: int


class PoolKinds(NamedTuple):
    """What the tables depend on besides the pods: the same for any order of nodes and cards."""

    models: tuple[str, ...]  # sorted; a name for each size of memory
    total_mb: tuple[int, ...]
    capacity: tuple[int, ...]  # cards of each model
    nodes: tuple[NodeKind, ...]  # sorted, each once
    aliases: Aliases = ()
    common_need: float = 0.0  # cores for each card of the kind of node with the most cards

    @property
    def most_cards(self) -> int:
        return max((kind.cards for kind in self.nodes), default=0)

    @property
    def common_mb(self) -> int:
        """Of a card of the model with the most cards."""
        return max(zip(self.capacity, self.total_mb, strict=True), default=(0, 0))[1]

    def allowed(self, asked: str) -> Bools:
        """One value per model; a pod that names none may use any."""
        return np.array([not asked or is_model(asked, name, self.aliases) for name in self.models])


def terms_of(
    demand: GpuDemand, kinds: PoolKinds, worth: Floats, need_rule: str = NEED_FIXED
) -> Terms:
    arrivals = demand.arrivals
    wanted = [*_wanted(arrivals, kinds), *_whole_nodes(kinds)]
    one, many = usable_by(wanted, len(kinds.models), kinds.most_cards)
    need = wanted_cores(need_of(arrivals, kinds), kinds.common_need, need_rule)
    return Terms(one, many, worth, _prices(arrivals, kinds), need)


def usable_now(demand: GpuDemand, kinds: PoolKinds) -> tuple[Floats, Floats]:
    """The tables `one` and `many` of pods that were seen alone: 0 where none of them fits."""
    wanted = _wanted(demand.arrivals, kinds)
    return usable_by(wanted, len(kinds.models), kinds.most_cards)


def worth_of(priced: Counts, kinds: PoolKinds) -> Floats:
    """Of the rest of a card, by the sizes that all pods together ask for."""
    return _worth(tuple(sorted(priced.items())), kinds.common_mb)


@lru_cache(maxsize=4)
def _worth(priced: Sequence[tuple[str, int]], common_mb: int) -> Floats:
    """The program takes some 20 ms; it is the same when nodes come and go."""
    parts: dict[int, int] = {}
    for share, cards in _sizes(priced, common_mb):
        if share:
            parts[hundredths(share)] = parts.get(hundredths(share), 0) + cards
    total = sum(size * cards for size, cards in parts.items())
    wanted = {size: 100 * cards / total for size, cards in sorted(parts.items())}
    return np.array(prices_of(wanted).worth) * TENTH


def need_of(arrivals: GpuArrivals, kinds: PoolKinds) -> float:
    """Mean cores per GPU of the pods that ask for GPUs."""
    sizes = _sizes(arrivals.sizes.items(), kinds.common_mb)
    asked = sum(10 * hundredths(share) * cards for share, cards in sizes)
    return arrivals.milli / max(1, asked)


def wanted_cores(mean: float, common: float, rule: str) -> float:
    """What free cards are taken to need, by the mean that pods ask for and what most cards have.

    Just above what most cards have, even nodes that are empty would count as without cores, and
    pods with few cores would open them, which pods of several cards wait for. Below it the need is
    kept somewhat below the mean. Where pods ask for more, it is far above it: then cores run out
    before cards, and pods with few cores belong beside pods with many.
    """
    if rule == NEED_BY_NODES and common and mean > NEARLY * common:
        return max(SCARCE * mean, FAR_ABOVE * common)
    return USUAL * mean


def share_of(share: int, mb: int, total_mb: int) -> int:
    """Milli of a card of this memory; more than a card if the card is too small."""
    return max(share, -(-mb * CARD // total_mb)) if mb and total_mb else share


def _sizes(sizes: Iterable[tuple[str, int]], common_mb: int) -> Iterator[tuple[int, int]]:
    """Milli of a card, and how many cards; memory by the most common card."""
    for key, cards in sizes:
        share, mb = map(int, key.split("/"))
        yield min(CARD, share_of(share, mb, common_mb)), cards


def _wanted(arrivals: GpuArrivals, kinds: PoolKinds) -> Iterator[tuple[Shape, Floats]]:
    """Shapes with their popularity on each model, in an order that any log of them gives."""
    shapes = [(GpuShape.of_key(key), count) for key, count in sorted(arrivals.shapes.items())]
    total, reach = max(1, sum(count for _, count in shapes)), _reach(arrivals, kinds)
    for shape, count in shapes:
        popularity = count / total * reach
        if not shape.mb:
            yield Shape(shape.milli, 0, shape.cards, shape.share), popularity
            continue
        for at, total_mb in enumerate(kinds.total_mb):  # the same memory, other parts of a card
            share = share_of(shape.share, shape.mb, total_mb)
            if share <= CARD:
                alone = np.where(np.arange(len(reach)) == at, popularity, 0.0)
                yield Shape(shape.milli, 0, shape.cards, share), alone


def _whole_nodes(kinds: PoolKinds) -> Iterable[tuple[Shape, Floats]]:
    """A pod that fills a node, for each kind of node: it keeps empty nodes empty among equals."""
    models = np.arange(len(kinds.models))
    return [
        (Shape(min(MOST_CORES * 1000, kind.milli), 0, kind.cards, CARD), found / WHOLE_NODE)
        for kind in kinds.nodes
        for found in [(models == kind.model).astype(np.float64)]
    ]


def _prices(arrivals: GpuArrivals, kinds: PoolKinds) -> Floats:
    """The demand that is bound to each model, relative to its capacity."""
    capacity = np.array(kinds.capacity, np.float64)
    bound, total = np.zeros(len(capacity)), 0
    for model, milli in sorted(arrivals.models.items()):
        total += milli
        if model:
            share = capacity * kinds.allowed(model)
            bound += milli * share / max(1.0, float(share.sum()))
    full = float(capacity.sum()) / max(1, total)
    return np.divide(bound * full, capacity, out=np.zeros(len(bound)), where=capacity > 0)


def _reach(arrivals: GpuArrivals, kinds: PoolKinds) -> Floats:
    """The share of the demand that may use each model."""
    total = max(1, sum(arrivals.models.values()))
    found = np.zeros(len(kinds.models))
    for model, milli in sorted(arrivals.models.items()):
        found += milli / total * kinds.allowed(model)
    return found
