"""What was saved against the counterfactual, as reports computed it: the newest one, and that of
each day (UTC)."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from joulie_bus.errors import LedgerDamaged
from joulie_projections.energy.intervals import DAY_MS

NO_PLANS = "the log of this time has no plans, so nothing was saved; the report simulates some"


class SavedRange(msgspec.Struct, frozen=True):
    """Over all variants of the simulation."""

    low: float
    mid: float
    high: float


class Saved(msgspec.Struct, frozen=True, kw_only=True):
    """The baseline's energy less that of the policy, in the same physics."""

    kwh: SavedRange
    share: SavedRange
    share_per_work: SavedRange
    cost: SavedRange | None = None
    kgco2e: SavedRange | None = None
    currency: str | None = None


class Savings(msgspec.Struct, frozen=True, kw_only=True):
    """Of a period of the log; without `saved`, `why` says what was missing."""

    computed_ms: int
    position: int  # that the ledger had reached
    from_ms: int
    to_ms: int
    baseline: str
    policy: str
    pods: int
    nodes: int
    saved: Saved | None = None
    why: str = ""
    asked_from_ms: int = 0
    asked_to_ms: int = 0
    complete_to_ms: int = 0  # that the ledger had reached
    cpu_s: float = 0.0  # that the report took

    @property
    def day_ms(self) -> int | None:
        """The day that it covers, as far as the ledger had come; None for another period."""
        start, end = self.asked_from_ms, self.asked_to_ms
        is_day = start and start % DAY_MS == 0 and start < end <= start + DAY_MS
        covers = end >= min(start + DAY_MS, self.complete_to_ms)
        return start if is_day and covers else None

    def holds_all_of(self, day_ms: int) -> bool:
        return self.complete_to_ms >= day_ms + DAY_MS


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(Savings).decode


def savings_of(document: Mapping[str, Any], computed_ms: int, cpu_s: float) -> Savings:
    """From a report."""
    counterfactual = document["counterfactual"]
    named = {name: counterfactual[name] for name in ("baseline", "policy", "pods", "nodes")}
    # Without plans nothing was saved: both sides of the comparison are simulated.
    is_of_log = counterfactual.get("as_it_ran", True)
    found = counterfactual["saved"] if is_of_log else None
    why = counterfactual.get("why", "" if is_of_log else NO_PLANS)
    return Savings(
        computed_ms=computed_ms,
        position=document["position"],
        from_ms=counterfactual["from"],
        to_ms=counterfactual["to"],
        **named,
        saved=msgspec.convert(found, Saved) if found else None,
        why=why,
        asked_from_ms=document["asked"]["from"],
        asked_to_ms=document["asked"]["to"],
        complete_to_ms=document["complete_to"],
        cpu_s=cpu_s,
    )


def packed(savings: Savings) -> bytes:
    return _encode(savings)


def unpacked(body: bytes) -> Savings:
    """Raises LedgerDamaged."""
    try:
        return _decode(body)
    except msgspec.MsgspecError as error:
        raise LedgerDamaged from error


class Period(NamedTuple):
    """Metered energy of a period, with the part of it that has a price or an intensity."""

    from_ms: int
    to_ms: int  # up to when the energy is complete
    kwh: float
    cost: float | None
    kgco2e: float | None


class SavedInPeriod(NamedTuple):
    """Against the baseline, which would have done the work of the period with more energy, or with
    less: then the values are negative. Without `kwh`, `why` says what was missing."""

    kwh: SavedRange | None = None
    cost: SavedRange | None = None
    kgco2e: SavedRange | None = None
    why: str = ""
    uncompared_kwh: float = 0.0  # metered energy that no report compares


def saved_on(
    days: Sequence[Period], by_day: Mapping[int, Savings], newest: Savings | None
) -> SavedInPeriod:
    """The sum of days, each by the report of that day; without one, by the newest report if it is
    of that time. The ends of the interval are added up, as if all days erred to the same side."""
    found = [saved_in(each, by_day.get(each.from_ms, newest)) for each in days]
    if not any(each.kwh for each in found):
        why = found[-1].why if found else "the ledger holds no energy of this time"
        return SavedInPeriod(why=why, uncompared_kwh=sum(each.kwh for each in days))
    return SavedInPeriod(
        _sum([each.kwh for each in found]),
        _sum([each.cost for each in found]),
        _sum([each.kgco2e for each in found]),
        uncompared_kwh=sum(day.kwh for day, each in zip(days, found, strict=True) if not each.kwh),
    )


def _sum(ranges: Sequence[SavedRange | None]) -> SavedRange | None:
    known = [each for each in ranges if each]
    if not known:
        return None
    return SavedRange(
        sum(each.low for each in known),
        sum(each.mid for each in known),
        sum(each.high for each in known),
    )


def saved_in(period: Period, newest: Savings | None) -> SavedInPeriod:
    """The metered energy of a period, compared by the share per work of the newest report.

    A report of another time says nothing about this period.
    """
    if newest is None:
        return SavedInPeriod(why="no report was written yet")
    if newest.saved is None:
        return SavedInPeriod(why=newest.why)
    if newest.from_ms >= period.to_ms or newest.to_ms <= period.from_ms:
        return SavedInPeriod(why="the newest report is of another time")
    share = newest.saved.share_per_work
    if share.high >= 1:
        return SavedInPeriod(why="the newest report compares with no energy at all")
    return SavedInPeriod(_of(share, period.kwh), _of(share, period.cost), _of(share, period.kgco2e))


def _of(share: SavedRange, used: float | None) -> SavedRange | None:
    """Of a baseline `b`, which used `b * (1 - share)`."""
    if used is None:
        return None
    return SavedRange(*(used * each / (1 - each) for each in (share.low, share.mid, share.high)))
