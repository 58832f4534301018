"""Compares the entries of each replica with what the replica promised.

What does not fit is no proof that the log was changed: a replica that is not ours any more can
promise anything, too. So it is reported for itself, and has an exit code, but is no corruption.
"""

from collections import Counter
from collections.abc import Iterator, Sequence, Set
from typing import NamedTuple

from joulie_bus.errors import Undecodable
from joulie_bus.events import DecisionsDropped, Promise, PromiseKey, codec
from joulie_projections.chain.promise import Promised, SignedEnd, key_in, signed_end_in
from joulie_projections.chain.sequence_gaps import Gap, GapKind, SequenceNumbers
from joulie_projections.history.history import EntryQuery, History

_WANTED = {cls.TYPE.encode() for cls in (Promise, PromiseKey, DecisionsDropped)}


class Unkept(NamedTuple):
    """What a replica promised and the log does not have, or has with another content."""

    life: str
    what: str

    def __str__(self) -> str:
        return f"{self.life}: {self.what}"


class _Signed(NamedTuple):
    pos: int
    end: SignedEnd


class PromisesSeen:
    """The keys and the newest promise of each life of a replica, in log order."""

    def __init__(self) -> None:
        self._keys: dict[str, PromiseKey] = {}
        self._newest: dict[str, _Signed] = {}
        self._lost: Counter[str] = Counter()  # by replica: promised, and lost by itself
        self._unread: list[Unkept] = []

    def add(self, first: int, kinds: Sequence[bytes], messages: Sequence[bytes]) -> None:
        """Entries from position `first` on."""
        if _WANTED.isdisjoint(kinds):
            return
        for at, (kind, message) in enumerate(zip(kinds, messages, strict=True), first):
            if kind in _WANTED:
                self._add(at, kind.decode(), message)

    def extend(self, later: "PromisesSeen") -> None:
        """Adds those of the part of the log that follows this one."""
        self._keys = later._keys | self._keys
        self._newest |= later._newest
        self._lost += later._lost
        self._unread += later._unread

    def _look_up_keys(self, history: History) -> None:
        """Those of lives that began before the part of the log that was read."""
        if self._newest.keys() <= self._keys.keys():
            return
        for entry in history.find(EntryQuery(kinds=(PromiseKey.TYPE,))):
            life, key = _key_in(entry.message, entry.pos)
            self._keys.setdefault(life, key)

    def judged(
        self, numbers: SequenceNumbers, history: History
    ) -> tuple[list[Gap], tuple[Unkept, ...]]:
        """The gaps, each with its kind, and what the log lacks of the promises."""
        self._look_up_keys(history)
        gaps = [*numbers.gaps(), *self._missing_ends(numbers)]
        promised = [gap for gap in gaps if gap.kind is GapKind.MISSING]
        missing = Counter[str]()
        for gap in promised:
            missing[_replica(gap.life)] += gap.size
        declared = {name for name, count in missing.items() if count <= self._lost[name]}
        judged = [_judged(gap, declared) for gap in gaps]
        unkept = (
            *(Unkept(gap.life, _missing(gap)) for gap in judged if gap.kind is GapKind.MISSING),
            *(Unkept(life, _broken(number)) for life, number in numbers.breaks()),
            *self._unsigned(),
            *self._unread,
        )
        return judged, unkept

    def _add(self, pos: int, kind: str, message: bytes) -> None:
        where = f"entry {pos}"
        try:
            if kind == Promise.TYPE:
                end = signed_end_in(message, where)
                self._newest[end.last.life] = _Signed(pos, end)
            elif kind == PromiseKey.TYPE:
                life, key = _key_in(message, pos)
                self._keys.setdefault(life, key)  # a later one is another program's
            else:
                self._count_lost(message, where)
        except Undecodable as error:
            self._unread.append(Unkept(where, str(error)))

    def _count_lost(self, message: bytes, where: str) -> None:
        envelope = codec.open_envelope(message, where)
        event = codec.read(envelope, where)
        if isinstance(event, DecisionsDropped):
            self._lost[_replica(Promised(envelope.id, b"").life)] += event.promised

    def _missing_ends(self, numbers: SequenceNumbers) -> Iterator[Gap]:
        """The next life names the last message of the life before it."""
        for key in self._keys.values():
            life, _, number = key.last.rpartition(":")
            if number.isdecimal() and 0 < (end := numbers.end_of(life)) < int(number):
                yield Gap(life, end + 1, int(number), GapKind.MISSING)

    def _unsigned(self) -> Iterator[Unkept]:
        for life, (pos, end) in self._newest.items():
            if (key := self._keys.get(life)) is None:
                yield Unkept(life, f"the key of the promise in entry {pos} is in no entry")
            elif not end.is_signed_by(key.public):
                yield Unkept(life, f"the promise in entry {pos} is not signed by its key")


def _key_in(message: bytes, pos: int) -> tuple[str, PromiseKey]:
    event_id, key = key_in(message, f"entry {pos}")
    return Promised(event_id, b"").life, key


def _judged(gap: Gap, declared: Set[str]) -> Gap:
    """`declared` are the replicas whose entries say how much they lost of what they promised."""
    is_lost = gap.kind is GapKind.MISSING and _replica(gap.life) in declared
    return gap._replace(kind=GapKind.LOST) if is_lost else gap


def _replica(life: str) -> str:
    return life.rpartition(":")[0]


def _missing(gap: Gap) -> str:
    numbers = f"number {gap.first}" if gap.size == 1 else f"numbers {gap.first} to {gap.last}"
    return f"{numbers}, which it promised, are not in the log"


def _broken(number: int) -> str:
    return f"the entries {number - 1} and {number} of it do not follow each other as it promised"
