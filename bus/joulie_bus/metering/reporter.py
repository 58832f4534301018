"""What is published of the power of one node, and when."""

from collections.abc import Mapping
from typing import NamedTuple

from joulie_bus.events import TelemetrySampled
from joulie_bus.metering.meters import Meter, NodePower, Part
from joulie_bus.metering.pace import USUAL, Pace, Published, is_worth_it

# Power alone does not tell what was used in a longer time between two samples.
LONGEST_S = 10.0


class Moment(NamedTuple):
    at_s: float  # by a monotonic clock
    at_ns: int  # by the wall clock; only names a counter


class Spread(NamedTuple):
    """The lowest and the highest power of some samples."""

    least_mw: int
    most_mw: int

    def with_power(self, mw: int) -> "Spread":
        return Spread(min(self.least_mw, mw), max(self.most_mw, mw))


class Counting(NamedTuple):
    """One counter of the node: the meters that add up to it, and what each had when it began."""

    began_ns: int
    whole: tuple[Meter, ...]  # in order
    cards: tuple[Meter, ...]
    before_uj: Mapping[Meter, int]

    def of_node_uj(self, totals: Mapping[Meter, int]) -> int:
        return sum(totals[meter] - self.before_uj[meter] for meter in self.whole)

    def of_cards_uj(self, totals: Mapping[Meter, int]) -> tuple[int, ...]:
        return tuple(totals[meter] - self.before_uj[meter] for meter in self.cards)


class Reporter:
    """Readings of a node. Its counter begins again when other meters add up to the node, and after
    a time in which its power was not known: a difference of two counters is always complete.

    `longest_s` is the longest time between two samples that the meters' totals cover."""

    def __init__(self, node: str, pace: Pace = USUAL, longest_s: float = LONGEST_S) -> None:
        self._node = node
        self._pace = pace
        self._longest_s = longest_s
        self._counting: Counting | None = None
        self._sampled_s = -longest_s
        self._last: Published | None = None
        self._last_uj: int | None = None  # of the same counter
        self._spread: Spread | None = None  # since the last reading

    def missed(self) -> None:
        """The power of the node is not known now."""
        self._counting = self._spread = None

    def observe(
        self,
        at: Moment,
        power: NodePower,
        totals: Mapping[Meter, int],
        *,
        is_due: bool = False,
    ) -> TelemetrySampled | None:
        """The reading to publish; None if it is not time. `totals` has what each meter counted."""
        if at.at_s - self._sampled_s > self._longest_s:
            self.missed()
        self._sampled_s = at.at_s
        counting = self._counted(at, power, totals)
        self._spread = (self._spread or Spread(power.power_mw, power.power_mw)).with_power(
            power.power_mw
        )
        if not (is_due or is_worth_it(self._last, at.at_s, power.power_mw, self._pace)):
            return None
        reading = self._reading(at, power, counting, totals)
        self._last = Published(at.at_s, power.power_mw)
        self._last_uj, self._spread = reading.energy_uj, None
        return reading

    def _counted(self, at: Moment, power: NodePower, totals: Mapping[Meter, int]) -> Counting:
        whole = tuple(sorted(power.meters))
        names = {meter.component: meter for meter in totals if meter.part is Part.CARD}
        cards = tuple(names[uuid] for uuid in power.card_mw)
        known = self._counting
        if known is None or (known.whole, known.cards) != (whole, cards):
            before = {meter: totals[meter] for meter in (*whole, *cards)}
            known = self._counting = Counting(at.at_ns, whole, cards, before)
            self._last_uj = None
        return known

    def _reading(
        self, at: Moment, power: NodePower, counting: Counting, totals: Mapping[Meter, int]
    ) -> TelemetrySampled:
        energy_uj = counting.of_node_uj(totals)
        mean_mw = self._mean_mw(at, energy_uj)
        spread = None
        if self._spread is not None and mean_mw is not None:
            spread = self._spread.with_power(mean_mw)
        return TelemetrySampled(
            node=self._node,
            power_mw=power.power_mw,
            source="utilization" if power.is_modelled else "kepler",
            provider=power.provider,
            card_mw=power.card_mw,
            min_mw=spread and spread.least_mw,
            mean_mw=mean_mw,
            max_mw=spread and spread.most_mw,
            counted_from=counting.began_ns,
            energy_uj=energy_uj,
            card_uj=counting.of_cards_uj(totals),
        )

    def _mean_mw(self, at: Moment, energy_uj: int) -> int | None:
        """Since the last reading, if the counter is still the same."""
        if self._last is None or self._last_uj is None or at.at_s <= self._last.at_s:
            return None
        return round((energy_uj - self._last_uj) / (at.at_s - self._last.at_s) / 1000)
