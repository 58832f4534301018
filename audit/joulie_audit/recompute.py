"""Gives an old answer again, with the functions that gave it, and compares. Pure."""

from typing import NamedTuple

from joulie_bus.events import PrioritizeDecided
from joulie_extender.decide import Recomputable
from joulie_extender.decide import again as again  # replay asks for it here


class Mismatch(NamedTuple):
    entry: int
    kind: str  # input-missing, state-differs, answer-differs, score-differs
    what: str


def compare(entry: int, then: Recomputable, now: Recomputable) -> Mismatch | None:
    """None if they are equal in every bit; else the first thing that differs."""
    if then == now:
        return None
    if isinstance(then, PrioritizeDecided) and isinstance(now, PrioritizeDecided):
        return Mismatch(entry, "score-differs", _first_term(then, now))
    return Mismatch(entry, "answer-differs", _first_field(then, now))


def _first_term(then: PrioritizeDecided, now: PrioritizeDecided) -> str:
    for old, new in zip(then.top, now.top, strict=False):
        for field in old.__struct_fields__:
            if getattr(old, field) != getattr(new, field):
                return (
                    f"{field} of {old.node}: {getattr(old, field)!r} then, "
                    f"{getattr(new, field)!r} now"
                )
    return _first_field(then, now)


def _first_field(then: Recomputable, now: Recomputable) -> str:
    for field in then.__struct_fields__:
        if getattr(then, field) != getattr(now, field):
            return f"{field} differs"
    return "nothing that has a name"
