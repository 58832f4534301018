"""What was saved against the counterfactual, as the newest report computed it."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import msgspec


class SavedRange(msgspec.Struct, frozen=True):
    """Over all variants of the simulation."""

    low: float
    mid: float
    high: float


class Saved(msgspec.Struct, frozen=True, kw_only=True):
    """The baseline's energy less that of the policy, both simulated."""

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


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(Savings).decode


def savings_of(counterfactual: Mapping[str, Any], position: int, computed_ms: int) -> Savings:
    """From the part `counterfactual` of a report."""
    named = {name: counterfactual[name] for name in ("baseline", "policy", "pods", "nodes")}
    found = counterfactual["saved"]
    return Savings(
        computed_ms=computed_ms,
        position=position,
        from_ms=counterfactual["from"],
        to_ms=counterfactual["to"],
        **named,
        saved=msgspec.convert(found, Saved) if found else None,
        why=counterfactual.get("why", ""),
    )


def packed(savings: Savings) -> bytes:
    return _encode(savings)


def unpacked(body: bytes) -> Savings:
    return _decode(body)


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
