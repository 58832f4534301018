"""Intervals of energy: their rows, their encoding, and how hours become a day."""

import zlib
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from typing import Literal, NamedTuple, TypeVar

import msgspec

from joulie_bus.core.inflating import inflated
from joulie_bus.errors import LedgerDamaged
from joulie_projections.energy.grid import Rate

SECOND_MS = 1000
MINUTES_MS = 300 * SECOND_MS
HOUR_MS = 3_600 * SECOND_MS
DAY_MS = 86_400 * SECOND_MS
Grain = Literal["minutes", "hour", "day"]
LENGTHS: dict[Grain, int] = {"minutes": MINUTES_MS, "hour": HOUR_MS, "day": DAY_MS}
KEPT_MS: dict[Grain, int] = {"minutes": 2 * DAY_MS, "hour": 14 * DAY_MS}  # days are kept
LEVEL = 1  # of zlib
LARGEST_BODY = 1 << 30  # inflated


class NodeEnergy(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The energy of one node while one plan was in force. Its meter is `pods_uj + idle_uj`."""

    node: str
    plan: str  # the plan that last changed the node; "" for none
    pods_uj: int = 0  # above idle, of pods
    idle_uj: int = 0
    modelled_uj: int = 0  # the part of both that rests on modelled readings
    unknown_uj: int = 0  # an estimate over gaps; part of no other figure
    unknown_ms: int = 0
    cost_n: int = 0  # billionths of the currency, of the energy that has a price
    priced_uj: int = 0
    co2_ug: int = 0  # micrograms of CO2e, of the energy of known carbon intensity
    weighed_uj: int = 0


class PodEnergy(msgspec.Struct, frozen=True, array_like=True, gc=False):
    uid: str
    namespace: str
    name: str
    workload: str
    node: str
    pods_uj: int = 0
    idle_uj: int = 0  # its share of the idle energy of its node
    cost_n: int = 0
    priced_uj: int = 0
    co2_ug: int = 0
    weighed_uj: int = 0


class CardEnergy(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A card; a part of the energy of its node."""

    node: str
    card: str
    pods_uj: int = 0
    idle_uj: int = 0
    modelled_uj: int = 0  # the part of both that rests on the model, not on readings of the card
    cost_n: int = 0
    priced_uj: int = 0
    co2_ug: int = 0
    weighed_uj: int = 0


class GroupEnergy(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The pods of one namespace and workload class."""

    namespace: str
    workload: str
    pods_uj: int = 0
    idle_uj: int = 0
    cost_n: int = 0
    priced_uj: int = 0
    co2_ug: int = 0
    weighed_uj: int = 0


class Interval(NamedTuple):
    """One interval; `minutes` hold nodes only."""

    grain: Grain
    start_ms: int
    nodes: Sequence[NodeEnergy]
    groups: Sequence[GroupEnergy] = ()
    pods: Sequence[PodEnergy] = ()
    grid: Sequence[Rate] = ()  # the rates that were in force
    cards: Sequence[CardEnergy] = ()

    @property
    def end_ms(self) -> int:
        return self.start_ms + LENGTHS[self.grain]


EnergyRow = TypeVar("EnergyRow", NodeEnergy, PodEnergy, GroupEnergy, CardEnergy)
StoredRow = TypeVar("StoredRow", NodeEnergy, PodEnergy, GroupEnergy, CardEnergy, Rate)
_encode = msgspec.msgpack.Encoder().encode


def packed(rows: Sequence[StoredRow]) -> bytes:
    return zlib.compress(_encode(rows), LEVEL)


def unpacked(body: bytes, kind: type[StoredRow]) -> list[StoredRow]:
    """Raises LedgerDamaged."""
    try:
        rows = inflated(body, LARGEST_BODY)
        return msgspec.msgpack.decode(rows, type=list[kind])  # type: ignore[valid-type]
    except (zlib.error, msgspec.MsgspecError) as error:
        raise LedgerDamaged from error


def summed(rows: Iterable[EnergyRow]) -> list[EnergyRow]:
    """Adds the numbers of rows with equal texts; ordered by the texts."""
    sums: dict[tuple[str, ...], list[int]] = {}
    kind: Callable[..., EnergyRow] | None = None
    for row in rows:
        kind = _constructor(row)
        fields = msgspec.structs.astuple(row)
        texts = _TEXTS[type(row)]
        numbers = sums.get(fields[:texts])
        if numbers is None:
            sums[fields[:texts]] = list(fields[texts:])
        else:
            for place, number in enumerate(fields[texts:]):
                numbers[place] += number
    return [] if kind is None else [kind(*texts, *sums[texts]) for texts in sorted(sums)]


def _constructor(row: EnergyRow) -> Callable[..., EnergyRow]:
    return type(row)


_TEXTS: dict[type, int] = {NodeEnergy: 2, PodEnergy: 5, GroupEnergy: 2, CardEnergy: 2}


def groups_of(pods: Iterable[PodEnergy]) -> list[GroupEnergy]:
    sums: dict[tuple[str, str], list[int]] = defaultdict(lambda: [0] * 6)
    for pod in pods:
        line = sums[pod.namespace, pod.workload]
        line[0] += pod.pods_uj
        line[1] += pod.idle_uj
        if pod.priced_uj or pod.weighed_uj:
            worth = (pod.cost_n, pod.priced_uj, pod.co2_ug, pod.weighed_uj)
            for place, amount in enumerate(worth, 2):
                line[place] += amount
    return [GroupEnergy(*place, *sums[place]) for place in sorted(sums)]


def day_of(start_ms: int, hours: Sequence[Interval]) -> Interval:
    """The day of these hours."""
    return Interval(
        "day",
        start_ms,
        summed(row for hour in hours for row in hour.nodes),
        summed(row for hour in hours for row in hour.groups),
        summed(row for hour in hours for row in hour.pods),
        sorted({rate for hour in hours for rate in hour.grid}),
        summed(row for hour in hours for row in hour.cards),
    )


def start_of(grain: Grain, at_ms: int) -> int:
    return at_ms - at_ms % LENGTHS[grain]
