"""The shape of a pod as a placement on nodes needs it."""

from typing import NamedTuple

from joulie_projections.state.gpu_arrivals import CARD as CARD


class Shape(NamedTuple):
    milli: int  # of cores
    memory_mib: int
    cards: int
    share: int  # milli of each card
    models: tuple[str, ...] = ()  # allowed models; empty: any

    @property
    def gpu_milli(self) -> int:
        return self.cards * self.share


def hundredths(milli: int) -> int:
    return -(-milli // 10)
