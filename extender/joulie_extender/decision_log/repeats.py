"""Answers about members of a group that equal the last entry about the same pod.

No I/O, no clock. kube-scheduler asks about a whole group again and again while it does not fit,
and nothing of an answer changes but its time. Such an answer is not written again for a while.
"""

from collections import OrderedDict
from typing import NamedTuple, TypeAlias, get_args

import numpy as np
from msgspec.structs import replace

from joulie_bus.events import (
    DecisionEntry,
    Duty,
    FallbackAnswered,
    FilterDecided,
    PrioritizeDecided,
)

WRITTEN_AGAIN_NS = 60_000_000_000  # an entry stands for the answers of a minute at most
MOST_BYTES = 8 * 1024 * 1024  # of candidates and scores
DUTIES: tuple[Duty, ...] = get_args(Duty)
_FIXED = 4096  # an entry without them, roughly

Asked: TypeAlias = FilterDecided | PrioritizeDecided
_Key: TypeAlias = tuple[str, str, Duty]


class _Last(NamedTuple):
    entry: Asked
    counts: bool  # it is where an entry has to be before its answer is given


class Repeats:
    """The newest entries, by pod; the oldest are forgotten when there are too many."""

    def __init__(self) -> None:
        self._last: OrderedDict[_Key, _Last] = OrderedDict()
        self._size = 0

    def is_repeat(self, entry: DecisionEntry) -> bool:
        """Whether the last entry of this pod is the same but for position, clock and ages."""
        if not isinstance(entry, Asked) or not entry.pod.group:
            return False
        last = self._last.get(_key(entry))
        if last is None or not last.counts:
            return False
        return _is_recent(last.entry, entry) and _is_same(last.entry, entry)

    def written(self, entry: DecisionEntry, *, counts: bool = True) -> None:
        """The entry is the newest one about its pod; nothing repeats one before it."""
        match entry:
            case FilterDecided() | PrioritizeDecided() if entry.pod.group:
                self._forget(_key(entry))
                self._last[_key(entry)] = _Last(entry, counts)
                self._size += _size_of(entry)
                while self._size > MOST_BYTES:
                    self._forget(next(iter(self._last)))
            case FallbackAnswered():
                for kind in (FilterDecided, PrioritizeDecided):
                    for duty in DUTIES:
                        self._forget((entry.pod_uid, kind.TYPE, duty))
            case _:
                pass

    def stored(self, entry: DecisionEntry) -> None:
        """The broker has it. An entry that a newer one follows stays without effect."""
        if isinstance(entry, Asked):
            last = self._last.get(_key(entry))
            if last is not None and last.entry is entry:
                self._last[_key(entry)] = last._replace(counts=True)

    def _forget(self, key: _Key) -> None:
        last = self._last.pop(key, None)
        if last is not None:
            self._size -= _size_of(last.entry)


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
