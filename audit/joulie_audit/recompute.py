"""Gives an old answer again, with the functions that gave it, and compares. Pure."""

from typing import NamedTuple

from joulie_bus.events import Decision, FilterDecided, PrioritizeDecided
from joulie_extender.decide import (
    Moment,
    filter_decision,
    names_of,
    prioritize_decision,
    rows_of,
)
from joulie_extender.scoring import Weights
from joulie_projections.board import Board


class Mismatch(NamedTuple):
    entry: int
    kind: str  # input-missing, state-differs, answer-differs, score-differs
    what: str


def again(decision: Decision, board: Board, weights: Weights) -> Decision:
    """The same question to the same board; `now` and the view's age are inputs, not clocks."""
    basis = decision.basis
    moment = Moment(board, basis.view, basis.view_age_ms, basis.now)
    match decision:
        case FilterDecided():
            rows = rows_of(decision.candidates)
            return filter_decision(decision.pod, decision.candidates, rows, moment, weights)
        case PrioritizeDecided():
            names = names_of(decision.candidates, board)
            return prioritize_decision(decision.pod, decision.candidates, names, moment, weights)


def compare(entry: int, then: Decision, now: Decision) -> Mismatch | None:
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


def _first_field(then: Decision, now: Decision) -> str:
    for field in then.__struct_fields__:
        if getattr(then, field) != getattr(now, field):
            return f"{field} differs"
    return "nothing that has a name"
