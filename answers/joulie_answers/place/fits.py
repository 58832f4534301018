"""The largest request of a pod that fits now, where the pod itself does not."""

from collections.abc import Callable, Iterator
from typing import NamedTuple

from msgspec.structs import replace

from joulie_answers.place.known import GPU, KnownPod, with_amounts
from joulie_answers.place.placing import Placing
from joulie_bus.events import PodAsk

CARD_MILLI = 1000
MIB = 1 << 20
Fits = Callable[[PodAsk], bool]


class Nearest(NamedTuple):
    """With so much of one resource, and all else as it is, the pod fits."""

    resource: str
    asked: float
    fits: float


def nearest(placing: Placing, pod: KnownPod, ask: PodAsk) -> list[Nearest]:
    """One for each resource of which less is enough; none if none is enough by itself."""

    def fits(changed: PodAsk) -> bool:
        return placing.fits(with_amounts(pod, changed), changed)

    most = int(placing.nodes.cluster.allocatable(GPU).max(initial=0)) // CARD_MILLI
    return [*_of(ask, fits, most)]


def _of(ask: PodAsk, fits: Fits, most_cards: int) -> Iterator[Nearest]:
    if found := _fewest_lost(ask, fits, most_cards):
        yield Nearest("GPUs", ask.gpu_cards, found)
    if found := _largest(ask.cpu_milli, lambda value: fits(replace(ask, cpu_milli=value))):
        yield Nearest("cores", ask.cpu_milli / 1000, found / 1000)
    most_mib = -(-ask.memory_bytes // MIB)
    if found := _largest(most_mib, lambda value: fits(replace(ask, memory_bytes=value * MIB))):
        yield Nearest("MiB", ask.memory_bytes / MIB, found)


def _fewest_lost(ask: PodAsk, fits: Fits, most: int) -> int:
    """One after the other: with fewer cards a pod may have too many cores for each of them."""
    own = ask.gpu_milli - ask.gpu_cards * CARD_MILLI
    if own or ask.devices.claims:
        return 0  # no whole cards
    for cards in range(min(ask.gpu_cards - 1, most), 0, -1):
        if fits(replace(ask, gpu_cards=cards, gpu_milli=cards * CARD_MILLI)):
            return cards
    return 0


def _largest(asked: int, fits: Callable[[int], bool]) -> int:
    """The largest value below `asked` that fits; 0 if none does. If one fits, lower ones do."""
    low, high = 0, asked  # the value at `high` does not fit
    while high - low > 1:
        middle = (low + high) // 2
        if fits(middle):
            low = middle
        else:
            high = middle
    return low
