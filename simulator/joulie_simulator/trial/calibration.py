"""The unchanged replay of a log beside what its meters measured.

Both are compared where there are readings: of the nodes with readings, the part of their time that
readings cover, awake and asleep apart. What a gap hides is in neither side.
"""

from collections.abc import Iterable, Sequence
from functools import reduce
from typing import NamedTuple

from joulie_simulator.energy.node_meter import NodeMeter

MOST_ERROR = 0.05
FEWEST_SPANS = 4  # of which half are judged that the fit has not seen
S_PER_HOUR = 3600.0


class Hours(NamedTuple):
    """Of the nodes with readings together, as it happened."""

    awake: float = 0.0
    asleep: float = 0.0
    read_awake: float = 0.0  # the part with readings
    read_asleep: float = 0.0

    def plus(self, other: "Hours") -> "Hours":
        return Hours(*(mine + its for mine, its in zip(self, other, strict=True)))

    @property
    def read_share(self) -> float:
        whole = self.awake + self.asleep
        return (self.read_awake + self.read_asleep) / whole if whole else 0.0


def sum_of(hours: Iterable[Hours]) -> Hours:
    return reduce(Hours.plus, hours, Hours())


class MeteredSpan(NamedTuple):
    """What the meters say of an interval; seconds count from the start of the period."""

    start_s: float
    end_s: float
    kwh: float
    hours: Hours


class Beside(NamedTuple):
    metered_kwh: float
    replayed_kwh: float

    @property
    def error(self) -> float | None:
        return self.replayed_kwh / self.metered_kwh - 1 if self.metered_kwh else None


class Calibration(NamedTuple):
    """`judged` is of the part of the period that the use of pods was not fitted to, if it is long
    enough, else of all; the rest of all."""

    whole: Beside
    judged: Beside
    is_apart: bool  # whether `judged` is another part than that of the fit
    hours: Hours
    by_interval: float | None  # the mean error of intervals, by their energy

    @property
    def is_good(self) -> bool:
        return self.judged.error is not None and abs(self.judged.error) <= MOST_ERROR


def halves(spans: Sequence[MeteredSpan]) -> tuple[list[MeteredSpan], list[MeteredSpan]] | None:
    """The earlier intervals with readings, and the later ones; None: there are too few."""
    known = [span for span in spans if span.kwh]
    if len(known) < FEWEST_SPANS:
        return None
    return known[: len(known) // 2], known[len(known) // 2 :]


def calibrated(spans: Sequence[MeteredSpan], meter: NodeMeter) -> Calibration:
    known = [span for span in spans if span.kwh]
    each = [Beside(span.kwh, _replayed_kwh(span, meter)) for span in known]
    parts = halves(spans)
    whole = _sum(each)
    missed_kwh = sum(abs(one.replayed_kwh - one.metered_kwh) for one in each)
    return Calibration(
        whole,
        _sum(each[len(each) // 2 :]) if parts else whole,
        parts is not None,
        sum_of(span.hours for span in spans),
        missed_kwh / whole.metered_kwh if whole.metered_kwh else None,
    )


def _sum(each: Sequence[Beside]) -> Beside:
    return Beside(sum(one.metered_kwh for one in each), sum(one.replayed_kwh for one in each))


def _replayed_kwh(span: MeteredSpan, meter: NodeMeter) -> float:
    """As much of it as readings cover. Where no node was asleep, nothing says how well they cover
    sleep: then as well as the rest."""
    awake_kwh, asleep_kwh = meter.kwh(span.start_s, span.end_s)
    hours = span.hours
    awake = hours.read_awake / hours.awake if hours.awake else 1.0
    asleep = hours.read_asleep / hours.asleep if hours.asleep else awake
    return awake_kwh * awake + asleep_kwh * asleep
