"""What the ledger says of the nodes of a period: their energy, and how much of their time has
readings."""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence, Set
from typing import NamedTuple

from joulie_audit.ledger.pods_in_log import Off
from joulie_projections.energy.intervals import Interval, NodeEnergy, start_of
from joulie_projections.energy.report import UJ_PER_KWH
from joulie_projections.energy.saved import LedgerState
from joulie_simulator.trial.calibration import Hours, MeteredSpan

MS_PER_HOUR = 3_600_000
MS_PER_S = 1000
Span = tuple[int, int]  # milliseconds


class RunningHour(NamedTuple):
    """Of the hour that the ledger has not ended it has the exact time that readings cover, for each
    node; of ended ones it has the gaps, and not the time before the first reading of a node."""

    start_ms: int
    known_ms: Mapping[str, int]

    @classmethod
    def of(cls, state: LedgerState) -> "RunningHour":
        ledger = state.ledger
        known = ledger.meters.columns["known_ms"]
        return cls(
            start_of("hour", max(0, ledger.minutes_ms)),
            {name: int(known[node.row]) for name, node in ledger.nodes.items()},
        )


class Metered(NamedTuple):
    spans: Sequence[MeteredSpan]
    nodes: Set[str]  # with readings
    pods_uj: Sequence[Mapping[str, int]]  # above idle, of each span and node
    modelled_uj: int


class _Sum(NamedTuple):
    uj: int = 0
    pods_uj: int = 0
    modelled_uj: int = 0
    unknown_ms: int = 0

    def plus(self, row: NodeEnergy) -> "_Sum":
        return _Sum(
            self.uj + row.pods_uj + row.idle_uj,
            self.pods_uj + row.pods_uj,
            self.modelled_uj + row.modelled_uj,
            self.unknown_ms + row.unknown_ms,
        )


def metered_in(
    intervals: Sequence[Interval],
    span: Span,
    names: Set[str],
    off: Mapping[str, Sequence[Off]],
    running: RunningHour | None,
) -> Metered:
    """Of these nodes. Intervals do not overlap. `running` is None where the period has only a part
    of that hour."""
    parts = list(_parts(intervals, span, names))
    nodes = {name for _, sums in parts for name, found in sums.items() if found.uj}
    shares = _shares_of(running, parts) if running else {}
    spans = []
    for (start_ms, end_ms), sums in parts:
        hours, is_running = Hours(), bool(running and start_ms >= running.start_ms)
        for name in sorted(nodes):
            share = shares.get(name, 1.0) if is_running else 1.0
            asleep_ms = sum(_overlap(each, (start_ms, end_ms)) for each in off.get(name, ()))
            hours = hours.plus(_hours(sums.get(name), (start_ms, end_ms), asleep_ms, share))
        kwh = sum(sums[name].uj for name in sums) / UJ_PER_KWH
        start_s, end_s = (start_ms - span[0]) / MS_PER_S, (end_ms - span[0]) / MS_PER_S
        spans.append(MeteredSpan(start_s, end_s, kwh, hours))
    pods_uj = [{name: each.pods_uj for name, each in sums.items()} for _, sums in parts]
    modelled = sum(each.modelled_uj for _, sums in parts for each in sums.values())
    return Metered(spans, nodes, pods_uj, modelled)


_Part = tuple[Span, Mapping[str, _Sum]]


def _parts(intervals: Sequence[Interval], span: Span, names: Set[str]) -> Iterator[_Part]:
    for each in sorted(intervals, key=lambda interval: interval.start_ms):
        start_ms, end_ms = max(each.start_ms, span[0]), min(each.end_ms, span[1])
        if end_ms <= start_ms:
            continue
        sums: dict[str, _Sum] = defaultdict(_Sum)
        for row in each.nodes:
            if row.node in names:
                sums[row.node] = sums[row.node].plus(row)
        yield (start_ms, end_ms), sums


def _shares_of(running: RunningHour, parts: Sequence[_Part]) -> dict[str, float]:
    """The part of the time without gaps in that hour that readings cover, by node."""
    length: dict[str, int] = defaultdict(int)
    for (start_ms, end_ms), sums in parts:
        if start_ms >= running.start_ms:
            for name, found in sums.items():
                length[name] += _read_ms(found, end_ms - start_ms)
    known = running.known_ms
    return {name: min(1.0, known.get(name, 0) / ms) for name, ms in length.items() if ms}


def _read_ms(found: _Sum | None, length_ms: int) -> int:
    return max(0, length_ms - found.unknown_ms) if found and found.uj else 0


def _hours(found: _Sum | None, span: Span, asleep_ms: int, share: float) -> Hours:
    """Gaps count as those of sleep first: a node without power has no readings."""
    length_ms = span[1] - span[0]
    read_ms = _read_ms(found, length_ms)
    read_asleep_ms = max(0, asleep_ms - (length_ms - read_ms))
    return Hours(
        (length_ms - asleep_ms) / MS_PER_HOUR,
        asleep_ms / MS_PER_HOUR,
        share * (read_ms - read_asleep_ms) / MS_PER_HOUR,
        share * read_asleep_ms / MS_PER_HOUR,
    )


def _overlap(part: Off, span: Span) -> int:
    return max(0, min(part.end_ms or span[1], span[1]) - max(part.start_ms, span[0]))
