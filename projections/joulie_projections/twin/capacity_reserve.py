"""The capacity that the filter keeps free, for clusters where not all pods fit.

Arrays in, arrays out, one value per node; the extender and the simulator share it. Four rules:

- A pod of class performance that asks for cards leaves a share of all cards free.
- Such a pod asks for at most this number of cores for each of its cards, on any node.
- A pod that asks for no card leaves some cores beside each free card of its node.
- A pod that asks for no card and for more than `SMALL_CORES` cores leaves a share of the cores of
  the nodes without cards free.
"""

from typing import NamedTuple

import numpy as np

from joulie_projections.twin.arrays import Bools, Floats, Ints
from joulie_projections.twin.energy_score import ROUNDING

SMALL_CORES = 8.0


class CapacityReserve(NamedTuple):
    """How much each rule keeps free; 0 turns a rule off."""

    cards: float = 0.0  # share of all cards
    cores_per_card: float = 0.0  # the most
    cores_beside_card: float = 0.0  # for each free card of a node
    cores: float = 0.0  # share of the cores of all nodes without cards


NO_RESERVE = CapacityReserve()


class Capacity(NamedTuple):
    """One value per node in each column."""

    free_cores: Floats | Ints
    free_cards: Floats | Ints
    cores: Floats | Ints
    cards: Floats | Ints


class Totals(NamedTuple):
    free_cards: float
    cards: float
    free_cores: float  # of the nodes without cards
    cores: float


class Request(NamedTuple):
    """What a pod asks for."""

    cores: float
    cards: float
    performance: bool


def totals_of(nodes: Capacity) -> Totals:
    without = np.asarray(nodes.cards) == 0
    return Totals(
        float(nodes.free_cards.sum()),
        float(nodes.cards.sum()),
        float(nodes.free_cores[without].sum()),
        float(nodes.cores[without].sum()),
    )


def can_refuse(reserve: CapacityReserve, request: Request) -> bool:
    """Whether a rule applies to such a pod."""
    if request.cards:
        return request.performance and (reserve.cards > 0 or reserve.cores_per_card > 0)
    return reserve.cores_beside_card > 0 or _needs_many(reserve, request)


def asks_too_much(reserve: CapacityReserve, request: Request) -> bool:
    """Whether the pod asks for too many cores per card, however much is free."""
    if not (request.cards and request.performance and reserve.cores_per_card):
        return False
    return request.cores > reserve.cores_per_card * request.cards


def takes_reserve(reserve: CapacityReserve, totals: Totals, request: Request) -> bool:
    """Whether the pod would take what the whole cluster keeps free, on any node. Of what does not
    exist, nothing is kept.
    """
    if request.cards:
        applies = request.performance and reserve.cards * totals.cards > 0
        left = totals.free_cards - request.cards
        return applies and left < reserve.cards * totals.cards - ROUNDING
    applies = _needs_many(reserve, request) and totals.cores > 0
    return applies and totals.free_cores - request.cores < reserve.cores * totals.cores


def takes_cores_of_cards(
    reserve: CapacityReserve, free_cores: Floats | Ints, free_cards: Floats | Ints, request: Request
) -> Bools:
    """The nodes where the pod would take cores that are kept beside free cards."""
    if request.cards or not reserve.cores_beside_card:
        return np.zeros(len(free_cards), np.bool_)
    left = free_cores - request.cores
    taken: Bools = (free_cards > ROUNDING) & (left < reserve.cores_beside_card * free_cards)
    return taken


def _needs_many(reserve: CapacityReserve, request: Request) -> bool:
    return reserve.cores > 0 and request.cores > SMALL_CORES


# --- as text, for the setting and the log ------------------------------------------------------

_NAMES = {
    "cards": "cards",
    "cores-per-card": "cores_per_card",
    "cores-beside-card": "cores_beside_card",
    "cores": "cores",
}
_MOST_SHARE, _MOST_CORES = 0.5, 64.0


def capacity_reserve(text: str) -> CapacityReserve:
    """such as cards=0.05,cores-per-card=16,cores-beside-card=8,cores=0.005; empty: no rule"""
    kept = dict[str, float]()
    for part in filter(None, (each.strip() for each in text.split(","))):
        name, _, value = part.partition("=")
        if name not in _NAMES or _NAMES[name] in kept:
            raise ValueError(f"{part!r} is not one of {', '.join(_NAMES)} with a value, each once")
        kept[_NAMES[name]] = _number(
            part, value, _MOST_CORES if name.endswith("-card") else _MOST_SHARE
        )
    return CapacityReserve(**kept)


def _number(part: str, value: str, most: float) -> float:
    try:
        number = float(value)
    except ValueError:
        number = -1.0
    if not 0 <= number <= most:
        raise ValueError(f"{part!r} needs a number from 0 to {most:g}")
    return number


def written(reserve: CapacityReserve) -> str:
    """The inverse of `capacity_reserve`."""
    values = reserve._asdict()
    kept = {name: values[field] for name, field in _NAMES.items() if values[field]}
    return ",".join(f"{name}={value!r}" for name, value in kept.items())
