"""What was saved against the counterfactual, as the newest report computed it."""

from collections.abc import Mapping
from typing import Any

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
