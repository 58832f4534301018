"""What the pods that ask for GPUs ask for: shapes, and how often each arrived.

Every pod is counted once, when it is first seen. Counts are integers and bounded in number, and old
pods count less: all counts are scaled down whenever scores get them. That happens at fixed numbers
of pods, and no clock is read, so that the same pods give the same counts everywhere. A neutral
prior of a few pods stands for the time before there is history.
"""

from collections.abc import Callable
from typing import NamedTuple

import msgspec

from joulie_bus.events import PodAsk

CARD = 1000  # milli of a card
MOST_SHAPES = 64
MOST_SIZES = 128
MOST_MILLI = 128_000  # of cores: more make no difference
FIRST_RENEWAL, RENEW_EVERY = 64, 512
FIRST_PRICES, PRICES_EVERY = 256, 4096
_POD = 1024  # the count of a pod that has just arrived

# A row is written in a fixed order, and so its keys are texts.
Counts = dict[str, int]


class GpuShape(NamedTuple):
    """What a pod asks of its node. Memory is not part of it, because it hardly ever decides."""

    milli: int  # of cores
    cards: int
    share: int  # milli of each card
    mb: int = 0  # of each card, if the pod names memory

    @property
    def key(self) -> str:
        return f"{self.milli}/{self.cards}/{self.share}/{self.mb}"

    @classmethod
    def of_key(cls, key: str) -> "GpuShape":
        return cls(*map(int, key.split("/")))


class GpuArrivals(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Shapes, allowed models and sizes are bounded apart from each other. Sums over all pods are
    kept beside, so that shapes beyond the bound count there.
    """

    pods: int = 0
    shapes: Counts = {}
    models: Counts = {}  # milli of cards, by the model that the pod names; "": any
    sizes: Counts = {}  # cards, by share and memory of each
    milli: int = 0  # of cores


class GpuDemand(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """What scores use: the counts at the last renewal, and sizes at the last renewal of prices."""

    arrivals: GpuArrivals
    priced: Counts


def shape_of(pod: PodAsk) -> GpuShape | None:
    """None for a pod that asks for no GPU."""
    asked = pod.gpu
    asks = asked.model or asked.vram_mb or asked.topology or asked.share_milli
    if not (asks or pod.gpu_milli or pod.gpu_cards) or asked.unreadable:
        return None
    milli = asked.share_milli or (0 if pod.gpu_cards else pod.gpu_milli)
    cards = pod.gpu_cards or max(1, -(-milli // CARD))
    share = asked.share_milli or -(-milli // cards)
    cores = min(pod.cpu_milli, MOST_MILLI)
    if not share and (pod.gpu_cards or not asked.vram_mb):
        return GpuShape(cores, cards, CARD)
    return GpuShape(cores, cards, share, asked.vram_mb)


def with_pod(known: GpuArrivals, shape: GpuShape, model: str) -> GpuArrivals:
    return _with(known, shape, model, _POD, 1)


def renewed(known: GpuArrivals, before: GpuDemand) -> tuple[GpuArrivals, GpuDemand] | None:
    """What scores use from now on, and the counts to continue with; None most of the time."""
    if not _is_due(known.pods, FIRST_RENEWAL, RENEW_EVERY):
        return None
    is_priced = _is_due(known.pods, FIRST_PRICES, PRICES_EVERY, factor=4)
    demand = GpuDemand(known, known.sizes if is_priced else before.priced)
    return _aged(known), demand


def _is_due(pods: int, first: int, every: int, factor: int = 2) -> bool:
    """At the first number, at its multiples by the factor, and from then on after every so many."""
    if pods >= every:
        return pods % every == 0
    while first < pods:
        first *= factor
    return first == pods


def _with(known: GpuArrivals, shape: GpuShape, model: str, count: int, pods: int) -> GpuArrivals:
    shapes, models, sizes = dict(known.shapes), dict(known.models), dict(known.sizes)
    _put(shapes, shape.key, count, MOST_SHAPES, _by_gpus)
    _put(models, model, count * shape.cards * (shape.share or CARD), MOST_SHAPES, _by_count)
    _put(sizes, f"{shape.share}/{shape.mb}", count * shape.cards, MOST_SIZES, _by_count)
    return GpuArrivals(known.pods + pods, shapes, models, sizes, known.milli + count * shape.milli)


def _put(
    counts: Counts, key: str, count: int, most: int, weight: Callable[[str, int], int]
) -> None:
    """The least is dropped for a new one if there are too many."""
    if key not in counts and len(counts) >= most:
        del counts[min(counts, key=lambda each: (weight(each, counts[each]), each))]
    counts[key] = counts.get(key, 0) + count


def _by_gpus(key: str, count: int) -> int:
    """A shape of many GPUs matters more than its number of pods."""
    shape = GpuShape.of_key(key)
    return count * max(CARD, shape.cards * shape.share)


def _by_count(_: str, count: int) -> int:
    return count


def _aged(known: GpuArrivals) -> GpuArrivals:
    return GpuArrivals(
        known.pods,
        _older_counts(known.shapes),
        _older_counts(known.models),
        _older_counts(known.sizes),
        _older(known.milli),
    )


def _older_counts(counts: Counts) -> Counts:
    return {key: older for key, count in counts.items() if (older := _older(count))}


def _older(count: int) -> int:
    return count * 15 // 16


_KINDS = ((1, CARD, 4), (1, CARD // 2, 1), (2, CARD, 1), (4, CARD, 1), (8, CARD, 1))


def _prior() -> GpuArrivals:
    """A pod of each common kind, with 8 cores for a card."""
    found = GpuArrivals()
    for cards, share, pods in _KINDS:
        found = _with(found, GpuShape(8 * cards * share, cards, share), "", pods * _POD, 0)
    return found


PRIOR = _prior()
PRIOR_DEMAND = GpuDemand(PRIOR, PRIOR.sizes)
