"""What is published of the polled power of nodes: as an agent does, with counters of energy."""

import math
from collections.abc import Iterator, Mapping
from collections.abc import Set as AbstractSet

from joulie_bus.events import TelemetrySampled
from joulie_bus.events.bounds import MOST_MW, MOST_READ_CARDS, is_name
from joulie_bus.metering.meters import Meter, NodePower, Part
from joulie_bus.metering.reporter import Moment, Reporter
from joulie_operator.facts.counters import LONGEST_S, ScrapedMeter
from joulie_operator.facts.readings import NODE, Reading

MOST_W = MOST_MW / 1000
_BOARD = Meter("prometheus", NODE, Part.PLATFORM)
_WHOLE = Meter("prometheus", NODE, Part.CHASSIS)


class MeteredNode:
    """The meters of one node, and what they have counted since it was read first."""

    def __init__(self, name: str) -> None:
        self._reporter = Reporter(name, longest_s=math.inf)
        self._meters: dict[Meter, ScrapedMeter] = {}
        self._read_s = math.inf

    def observe(self, at: Moment, reading: Reading, *, is_due: bool) -> TelemetrySampled | None:
        """The reading to publish; None if it is not time."""
        power, parts = _power(reading), _parts(reading)
        is_after_gap = at.at_s - self._read_s > LONGEST_S
        self._read_s = at.at_s
        self._meters = {meter: self._meters.get(meter) or ScrapedMeter() for meter in parts}
        if is_after_gap:
            self._lost()
        counted = [
            self._meters[meter].observe(
                at.at_s, power_mw, reading.counters.get(meter.component, {})
            )
            for meter, power_mw in parts.items()
        ]
        if is_after_gap and not all(counted):
            self._begin_again()
        totals = {meter: each.energy.total_uj for meter, each in self._meters.items()}
        return self._reporter.observe(at, power, totals, is_due=is_due)

    def _lost(self) -> None:
        for meter in self._meters.values():
            meter.lost()

    def _begin_again(self) -> None:
        """The energy of the gap is not known: the ledger counts its time as unknown."""
        self._reporter.missed()
        for meter in self._meters.values():
            meter.forget()


class MeteredNodes:
    def __init__(self) -> None:
        self._nodes: dict[str, MeteredNode] = {}

    def samples(
        self, readings: Mapping[str, Reading], at: Moment, *, are_due: bool = False
    ) -> Iterator[TelemetrySampled]:
        """With `are_due`, of all these nodes, whatever the pace."""
        for name, reading in sorted(readings.items()):
            node = self._nodes.get(name)
            if node is None:
                node = self._nodes[name] = MeteredNode(name)
            sampled = node.observe(at, reading, is_due=are_due)
            if sampled is not None:
                yield sampled

    def keep(self, names: AbstractSet[str]) -> None:
        """Forgets the other nodes."""
        self._nodes = {name: node for name, node in self._nodes.items() if name in names}


def _power(reading: Reading) -> NodePower:
    card_mw = _card_mw(reading.cards)
    whole = (_WHOLE,) if not reading.cards_are_added else (_BOARD, *_cards(reading))
    return NodePower(_mw(reading.watts), "node", reading.provider, card_mw, whole)


def _parts(reading: Reading) -> dict[Meter, int]:
    """The power of each meter: of the node, or of its board, and of its cards."""
    cards = {meter: _mw(watts) for meter, watts in _cards(reading).items()}
    if not reading.cards_are_added:
        return {_WHOLE: _mw(reading.watts), **cards}
    return {_BOARD: max(0, _mw(reading.watts) - sum(cards.values())), **cards}


def _cards(reading: Reading) -> dict[Meter, float]:
    return {Meter("prometheus", uuid, Part.CARD): w for uuid, w in reading.cards.items()}


def _card_mw(watts: Mapping[str, float]) -> dict[str, int]:
    """Without cards that no event may name, or whose power it may not hold."""
    fitting = [each for each in sorted(watts.items()) if is_name(each[0]) and each[1] <= MOST_W]
    return {uuid: _mw(each) for uuid, each in fitting[:MOST_READ_CARDS]}


def _mw(watts: float) -> int:
    return round(watts * 1000)
