"""The tables of the cost, from what pods asked for and the kinds of nodes that there are."""

from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from joulie_extender.gpu.card_worth import prices_of
from joulie_extender.gpu.fragmentation import MOST_CORES, TENTH, Terms, TermWeights, usable_by
from joulie_extender.gpu.models import Aliases, is_model
from joulie_extender.gpu.shapes import CARD, Shape, hundredths
from joulie_projections.state.gpu_arrivals import Counts, GpuArrivals, GpuDemand, GpuShape
from joulie_projections.twin.arrays import Bools, Floats

USUAL = 0.92  # times the mean; at 1 pods of 8 cards are dropped early
NEARLY = 0.95  # of what most cards have
SCARCE, FAR_ABOVE = 1.2, 1.6  # times the mean, and times what most cards have
WHOLE_NODE = 200  # of so many pods one is assumed to ask for a whole node, of each kind
RARE = 0.5  # a kind of node is rare if it has less than this part of all cards
FORETOLD = 20  # demand is foretold by what runs, at most so many times as much
OWN = 0.04  # of the cores of a node, the most that DaemonSets are taken to use


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
    cards: tuple[int, ...] = ()  # on all nodes of each kind
    # Cores for each card of the kind of node with the most cards; kinds that hardly differ are one.
    usual_need: float = 0.0

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


def terms_of(demand: GpuDemand, kinds: PoolKinds, worth: Floats) -> Terms:
    """As long as cores do not run out. Rare nodes are kept for pods that fit on no other."""
    arrivals = demand.arrivals
    wanted = list(_wanted(arrivals, kinds))
    wanted += _awaited(tuple(wanted), arrivals, kinds)
    wanted += _whole_nodes(_in_whole_cores(kinds.nodes), kinds.models)
    one, many = usable_by(wanted, len(kinds.models), kinds.most_cards)
    need = wanted_cores(need_of(arrivals, kinds), kinds)
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


class InUse(NamedTuple):
    """On nodes with cards and cores that are known, by all pods there."""

    milli: int  # of cores
    all_milli: int
    gpu: int  # milli of cards
    all_gpu: int
    on_each: int  # milli of cores, of all nodes, if each had as little in use as the least


def cores_run_out(used: InUse, mean: float) -> bool:
    """Whether there are hardly cores for all cards, if pods come like those that run.

    Pods that ask for no GPU count by what they take beside the cards in use, without what pods of
    DaemonSets take on each node. While few cards are in use, that does not foretell much.
    """
    own = min(used.on_each, OWN * used.all_milli)
    beside = max(0.0, used.milli - own - mean * used.gpu)
    times = used.all_gpu / max(1.0, used.gpu, used.all_gpu / FORETOLD)
    return own + mean * used.all_gpu + times * beside > NEARLY * used.all_milli


def wanted_cores(mean: float, kinds: PoolKinds, *, is_short_of_cores: bool = False) -> float:
    """What free cards are taken to need, by the mean that pods ask for and what most cards have.

    Just above what most cards have, even nodes that are empty would count as without cores, and
    pods with few cores would open them, which pods of several cards wait for. Below it the need is
    kept somewhat below the mean. Where pods ask for more, it is far above it: then cores run out
    before cards, and pods with few cores belong beside pods with many. The same holds where cores
    run out because of pods that ask for no GPU.
    """
    common = kinds.usual_need
    if common and (mean > NEARLY * common or is_short_of_cores):
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


def _whole_nodes(
    nodes: Iterable[NodeKind], models: Sequence[str]
) -> Iterable[tuple[Shape, Floats]]:
    """A pod that fills a node, for each kind of node: it keeps empty nodes empty among equals."""
    numbers = np.arange(len(models))
    return [
        (Shape(min(MOST_CORES * 1000, kind.milli), 0, kind.cards, CARD), found / WHOLE_NODE)
        for kind in nodes
        for found in [(numbers == kind.model).astype(np.float64)]
    ]


def _in_whole_cores(nodes: Iterable[NodeKind]) -> Iterable[NodeKind]:
    """Nodes that differ by parts of a core are of one kind, and a pod that fills one fits on it."""
    return sorted({kind._replace(milli=kind.milli // 1000 * 1000) for kind in nodes})


def _awaited(
    wanted: Sequence[tuple[Shape, Floats]], arrivals: GpuArrivals, kinds: PoolKinds
) -> Iterator[tuple[Shape, Floats]]:
    """Pods of several cards that fit on few nodes only, as popular as these nodes are in demand.

    Such a node is worth the demand that is bound to it over its cards, as `_prices` are of models.
    """
    gpus, pods = max(1, sum(arrivals.models.values())), sum(arrivals.shapes.values())
    full, unit = sum(kinds.cards), TermWeights().fragmentation
    for shape, popularity in wanted:
        fitting = _cards_for(shape, kinds) if shape.cards > 1 else 0
        if 0 < fitting < RARE * full:
            demand = popularity * (shape.gpu_milli * pods / gpus * full / fitting)
            yield shape, np.minimum(1.0, demand) / unit


def _cards_for(shape: Shape, kinds: PoolKinds) -> int:
    """Of all nodes that could serve it if they were empty."""
    cores = -(-shape.milli // 1000)
    return sum(
        cards
        for kind, cards in zip(kinds.nodes, kinds.cards, strict=True)
        if kind.milli // 1000 >= cores and kind.cards >= shape.cards
    )


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
