"""Which decisions their replica signed: in a log whose replicas sign, the others are foreign.

A promise signs a message, and by the hash in each message all that lead to it. What a replica
published after its newest promise follows a signed message by that hash. So only entries near a
decision have to be read.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

from joulie_bus.errors import Undecodable
from joulie_bus.events import Promise, PromiseKey
from joulie_projections.chain.promise import Promised, hash_of, key_in, prev_in, signed_end_in
from joulie_projections.history.history import EntryQuery, History, StoredEntry

BLOCK = 5_000  # entries that are judged together
MARGIN = 5_000  # on both sides: a promise comes within a second, or 1,000 messages of its replica


class _Published(NamedTuple):
    """A message of one run of a replica."""

    number: int
    pos: int
    kind: str
    message: bytes

    @property
    def hash(self) -> bytes:
        return hash_of(self.message)

    @property
    def prev(self) -> bytes:
        return prev_in(self.message)


class SignedDecisions:
    def __init__(self, history: History) -> None:
        self._history = history
        self._keys: dict[str, bytes] | None = None  # by run of a replica
        self._block, self._signed = -1, frozenset[int]()

    def is_foreign(self, pos: int) -> bool:
        """False for every entry of a log in which no replica signs."""
        if self._keys is None:
            self._keys = _keys_in(self._history)
        if not self._keys:
            return False
        if (block := pos // BLOCK) != self._block:
            self._block, self._signed = block, self._signed_in(block, self._keys)
        return pos not in self._signed

    def _signed_in(self, block: int, keys: dict[str, bytes]) -> frozenset[int]:
        first, last = block * BLOCK - MARGIN, (block + 1) * BLOCK + MARGIN
        found = defaultdict[str, list[_Published]](list)
        for entry in self._history.entries(max(1, first), last):
            life, _, number = entry.event_id.rpartition(":")
            if life in keys and number.isdecimal():
                found[life].append(_Published(int(number), entry.pos, entry.kind, entry.message))
        return frozenset(pos for life in found for pos in _signed(sorted(found[life]), keys[life]))


def _keys_in(history: History) -> dict[str, bytes]:
    """The first key of each run: a later one, that another program published, counts nothing."""
    keys = dict[str, bytes]()
    for entry in _oldest_first(history.find(EntryQuery(kinds=(PromiseKey.TYPE,)))):
        try:
            event_id, key = key_in(entry.message, f"entry {entry.pos}")
        except Undecodable:
            continue  # `verify` reports it
        keys.setdefault(Promised(event_id, b"").life, key.public)
    return keys


def _oldest_first(found: Iterable[StoredEntry]) -> list[StoredEntry]:
    return sorted(found, key=lambda entry: entry.pos)


def _signed(published: Sequence[_Published], public: bytes) -> Iterator[int]:
    """The positions of what the replica signed, and of what only follows it."""
    proved = set(_proved(published, public))
    yield from proved
    before = published[0] if published and published[0].pos in proved else None
    for each, following in pairwise([*published, None]):
        assert each is not None
        if each.pos in proved:
            before = each
        elif (
            before is not None and each.prev == before.hash and not _denies(following, each, proved)
        ):
            yield each.pos
            before = each


def _proved(published: Sequence[_Published], public: bytes) -> Iterator[int]:
    """From the newest to the oldest: a promise, and what leads to it."""
    wanted = b""
    for each in reversed(published):
        if each.hash == wanted or _is_genuine(each, public):
            yield each.pos
            wanted = each.prev


def _denies(following: _Published | None, each: _Published, proved: set[int]) -> bool:
    """Whether the replica signed that another message came before `following`."""
    return following is not None and following.pos in proved and following.prev != each.hash


def _is_genuine(each: _Published, public: bytes) -> bool:
    where = f"entry {each.pos}"
    try:
        if each.kind == PromiseKey.TYPE:
            return key_in(each.message, where)[1].public == public
        return each.kind == Promise.TYPE and signed_end_in(each.message, where).is_signed_by(public)
    except Undecodable:
        return False
