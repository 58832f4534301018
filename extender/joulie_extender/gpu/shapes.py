"""What the pods of one pool of GPU nodes ask for: shapes, and how often each arrived.

Every pod is counted once, when it arrives. Old pods count less: all counts are scaled down whenever
they are read for new tables. Counts are integers, so that the same pods give the same counts
everywhere. A neutral prior of a few pods stands for the time before there is history.
"""

from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

CARD = 1000  # milli of a card
MOST_SHAPES = 64
_POD = 1024  # the count of a pod that has just arrived
_PARTS = 100
K = TypeVar("K", bound=tuple[Any, ...])


class Shape(NamedTuple):
    milli: int  # of cores
    memory_mib: int
    cards: int
    share: int  # milli of each card
    models: tuple[str, ...] = ()  # allowed models, sorted; empty: any

    @property
    def gpu_milli(self) -> int:
        return self.cards * self.share


# A pod of each common kind, with 8 cores for a card.
_PRIOR = (
    (Shape(8000, 0, 1, CARD), 4),
    (Shape(4000, 0, 1, CARD // 2), 1),
    (Shape(16_000, 0, 2, CARD), 1),
    (Shape(32_000, 0, 4, CARD), 1),
    (Shape(64_000, 0, 8, CARD), 1),
)


class Arrivals:
    """The counts of shapes and of sets of allowed models, each bounded and apart from each other.

    Memory is not part of a counted shape, because it hardly ever decides. Sums over all pods are
    kept beside, so that shapes beyond the bound are still part of `need` and `demand`.
    """

    def __init__(self) -> None:
        self._shapes: dict[Shape, int] = {}
        self._models: dict[tuple[str, ...], int] = {}  # milli of cards
        self._parts = [0] * (_PARTS + 1)  # cards, by the part of each that is asked for
        self._milli = 0  # of cores, of pods that ask for cards
        self.pods = 0
        for shape, pods in _PRIOR:
            self._add(shape, pods * _POD)

    def count(self, shape: Shape) -> None:
        self.pods += 1
        self._add(shape, _POD)

    def _add(self, shape: Shape, count: int) -> None:
        _put(self._shapes, shape._replace(memory_mib=0, models=()), count, _by_gpus)
        if shape.cards:
            _put(self._models, shape.models, count * shape.gpu_milli, _by_count)
            self._parts[hundredths(shape.share)] += count * shape.cards
            self._milli += count * shape.milli

    def age(self) -> None:
        self._shapes = _aged(self._shapes)
        self._models = _aged(self._models)
        self._parts = [_older(count) for count in self._parts]
        self._milli = _older(self._milli)

    def shapes(self) -> list[tuple[Shape, int]]:
        """In an order that does not depend on the order of arrival."""
        return sorted(self._shapes.items())

    def models(self) -> list[tuple[tuple[str, ...], int]]:
        """GPUs that were asked for, by the set of allowed models; empty: any model."""
        return sorted(self._models.items())

    def need(self) -> float:
        """Mean cores per GPU of the pods that ask for GPUs."""
        asked = sum(10 * parts * count for parts, count in enumerate(self._parts))
        return self._milli / max(1, asked)

    def demand(self) -> dict[int, float]:
        """Cards and parts of cards by size in hundredths, where all pods together ask for one."""
        total = sum(parts * count for parts, count in enumerate(self._parts))
        return {
            parts: 100 * count / total for parts, count in enumerate(self._parts) if count and parts
        }


def _put(counts: dict[K, int], key: K, count: int, weight: Callable[[K, int], int]) -> None:
    """The least is dropped for a new one if there are too many."""
    if key not in counts and len(counts) >= MOST_SHAPES:
        del counts[min(counts, key=lambda each: (weight(each, counts[each]), each))]
    counts[key] = counts.get(key, 0) + count


def _by_gpus(shape: Shape, count: int) -> int:
    """A shape of many GPUs matters more than its number of pods."""
    return count * max(CARD, shape.gpu_milli)


def _by_count(_: object, count: int) -> int:
    return count


def _older(count: int) -> int:
    return count * 15 // 16


def _aged(counts: dict[K, int]) -> dict[K, int]:
    return {key: older for key, count in counts.items() if (older := _older(count))}


def hundredths(milli: int) -> int:
    return -(-milli // 10)
