"""Answers about members of a group that equal the last entry about the same pod.

No I/O, no clock. kube-scheduler asks about a whole group again and again while it does not fit,
and nothing of an answer changes but its time. Such an answer is not written again for a while.
"""

from collections import OrderedDict
from typing import TypeAlias

import numpy as np
from msgspec.structs import replace

from joulie_bus.events import DecisionEntry, Duty, FilterDecided, PrioritizeDecided

WRITTEN_AGAIN_NS = 60_000_000_000  # an entry stands for the answers of a minute at most
MOST_BYTES = 8 * 1024 * 1024  # of candidates and scores
_FIXED = 4096  # an entry without them, roughly

Asked: TypeAlias = FilterDecided | PrioritizeDecided
_Key: TypeAlias = tuple[str, str, Duty]


class Repeats:
    """The last written entries, by pod; the oldest are forgotten when there are too many."""

    def __init__(self) -> None:
        self._written: OrderedDict[_Key, Asked] = OrderedDict()
        self._size = 0

    def is_repeat(self, entry: DecisionEntry) -> bool:
        """Whether the last entry of this pod is the same but for position, clock and ages."""
        if not isinstance(entry, Asked) or not entry.pod.group:
            return False
        last = self._written.get(_key(entry))
        return last is not None and _is_recent(last, entry) and _is_same(last, entry)

    def written(self, entry: DecisionEntry) -> None:
        if not isinstance(entry, Asked) or not entry.pod.group:
            return
        key = _key(entry)
        before = self._written.pop(key, None)
        self._size += _size_of(entry) - (_size_of(before) if before else 0)
        self._written[key] = entry
        while self._size > MOST_BYTES:
            self._size -= _size_of(self._written.popitem(last=False)[1])


def _key(entry: Asked) -> _Key:
    return entry.pod.uid, entry.TYPE, entry.duty


def _is_recent(last: Asked, entry: Asked) -> bool:
    return 0 <= entry.basis.now - last.basis.now < WRITTEN_AGAIN_NS


def _is_same(last: Asked, entry: Asked) -> bool:
    """All terms of all candidates are, whose digest is a part of the entry; or kube-scheduler,
    whose workers take turns, sent the same names in another order, and each has the same answer.
    """
    then, now = last.basis, entry.basis
    if (then.settings, then.incarnation) != (now.settings, now.incarnation):
        return False
    entry = replace(entry, basis=then)
    return entry == last or _in_order(entry) == _in_order(last)


def _in_order(entry: Asked) -> object:
    """The answer by candidate; what else follows from the order of the names is left out."""
    candidates = entry.candidates
    if candidates.strangers:
        return entry
    ordinals = np.frombuffer(candidates.ordinals, "<i4")
    order = np.argsort(ordinals, kind="stable")
    named = replace(candidates, ordinals=ordinals[order].tobytes())
    if isinstance(entry, FilterDecided):
        verdicts = np.frombuffer(entry.verdicts, np.uint8)[order].tobytes()
        return entry if entry.eco_labels else replace(entry, candidates=named, verdicts=verdicts)
    scores = np.frombuffer(entry.scores, "<i2")[order].tobytes()
    return replace(entry, candidates=named, scores=scores, terms_digest=b"", top=[])


def _size_of(entry: Asked) -> int:
    return _FIXED + 2 * len(entry.candidates.ordinals)
