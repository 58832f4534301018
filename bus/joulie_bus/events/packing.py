"""Whether the packed numbers of a decision agree with its candidates.

A decision holds one verdict or score for each candidate, and readers pair them by their order. The
schema cannot express that, so the codec refuses a decision that does not agree with itself.
"""

from typing import TypeAlias

from joulie_bus.events.decisions import (
    Candidates,
    FilterDecided,
    PreemptDecided,
    PrioritizeDecided,
)

Packed: TypeAlias = FilterDecided | PreemptDecided | PrioritizeDecided
_ORDINAL, _SCORE = 4, 2  # bytes
_POSITIVE = bytes(range(128))  # the highest byte of an ordinal that is a row


def packing_flaw(event: Packed) -> str:
    """The first disagreement; empty if there is none."""
    candidates = event.candidates
    return _flaw_of_candidates(candidates) or _flaw_of_numbers(event, candidates.count)


def _flaw_of_candidates(candidates: Candidates) -> str:
    ordinals = candidates.ordinals
    if len(ordinals) % _ORDINAL:
        return f"its {len(ordinals)} bytes of ordinals end within a number"
    negative = len(ordinals[_ORDINAL - 1 :: _ORDINAL].translate(None, _POSITIVE))
    if not negative and not candidates.strangers:  # the common case
        return ""
    strangers = memoryview(ordinals).cast("i").tolist().count(-1)
    if negative != strangers:
        return "an ordinal is negative and not -1"
    named = len(candidates.strangers)
    return "" if named == strangers else f"it names {named} of {strangers} unknown nodes"


def _flaw_of_numbers(event: Packed, count: int) -> str:
    match event:
        case PrioritizeDecided():
            if len(event.scores) != count * _SCORE:
                return f"it has {len(event.scores)} bytes of scores for {count} candidates"
            what = f"it has the terms of {len(event.top)} nodes for {count} candidates"
            return what if len(event.top) > count else ""
        case FilterDecided() if len(event.eco_labels) not in (0, count):
            return f"it has {len(event.eco_labels)} eco labels for {count} candidates"
        case _:
            what = f"it has {len(event.verdicts)} verdicts for {count} candidates"
            return what if len(event.verdicts) != count else ""
