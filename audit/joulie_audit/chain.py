"""Walks along the log entry by entry: its number, link, hash and columns. Several may share it.

Nothing is believed because it is stored: bodies are hashed again, and columns are compared with
what their body says.
"""

from bisect import bisect
from collections.abc import Callable, Generator, Sequence, Set
from contextlib import contextmanager
from hashlib import sha256
from itertools import pairwise
from operator import add
from typing import Any, NamedTuple

import msgspec

from joulie_audit.processes import processes, telling
from joulie_audit.producers import Counters
from joulie_bus.errors import Undecodable
from joulie_projections.database import Place
from joulie_projections.decisions import FIRST_PREV, UNREADABLE, Entry, chain_hash, entry_of_body
from joulie_projections.history import NEWEST, History, Logged

_EVENT_ID, _HASH = map(Logged._fields.index, ("event_id", "hash"))


class Flaw(NamedTuple):
    """The first thing that is wrong, and where."""

    place: int
    what: str


class Part(NamedTuple):
    """Entries to look at: `first` to `last`, both included."""

    first: int = 1
    last: int = NEWEST

    @property
    def begins_the_log(self) -> bool:
        return self.first == 1


class Walked(NamedTuple):
    last: int  # everything up to here is right
    hashes: dict[int, bytes]  # of the entries that some head speaks of
    counters: Counters
    flaw: Flaw | None


class Sharing(NamedTuple):
    """How many processes share the walk, and where they read the log."""

    database: Place
    jobs: int


Result = Callable[[], Walked]


def walk(history: History, part: Part, wanted: Set[int]) -> Walked:
    check = _Check(part, wanted)
    flaw = check.begin(history)
    for page in () if flaw else history.pages(*part):
        if flaw := check.page(page):
            break
    return Walked(check.pos, check.hashes, check.counters, flaw)


@contextmanager
def walking(
    history: History, part: Part, wanted: Set[int], sharing: Sharing | None
) -> Generator[Result, None, None]:
    """Meanwhile something else can be looked at; the result waits for all who share the walk."""
    spans = spans_of(part, history.tip(), sharing.jobs) if sharing else []
    if sharing is None or len(spans) < 2:
        yield lambda: walk(history, part, wanted)
        return
    with processes(len(spans)) as pool:
        shares = [
            pool.submit(_in_another_process, sharing.database, span, wanted) for span in spans
        ]
        yield lambda: joined([share.result() for share in shares], spans)


# --- shared -----------------------------------------------------------------------------------


def spans_of(part: Part, tip: int, jobs: int) -> list[Part]:
    """About equal ones; each hangs on the last entry of the one before it."""
    last = min(part.last, tip)
    count = last - part.first + 1
    cuts = [part.first - 1 + count * share // jobs for share in range(jobs + 1)]
    return [Part(cut + 1, end) for cut, end in pairwise(cuts) if cut < end]


def _in_another_process(place: Place, span: Part, wanted: Set[int]) -> Walked:
    with telling("verify"), History.readable(place) as history:
        return walk(history, span, wanted)


def joined(walks: Sequence[Walked], spans: Sequence[Part]) -> Walked:
    """As one walk would have ended: at the first flaw."""
    whole = walks[0]
    for before, found, span in zip(spans, walks[1:], spans[1:], strict=False):
        if whole.flaw is None and whole.last < before.last:
            whole = whole._replace(flaw=Flaw(whole.last + 1, _missing(whole.last + 1, span.first)))
        if whole.flaw is not None:
            return whole
        whole.counters.go_on(found.counters)
        whole = Walked(found.last, whole.hashes | found.hashes, whole.counters, found.flaw)
    return whole


# --- one entry after the other ----------------------------------------------------------------


class _Pod(msgspec.Struct, gc=False):
    uid: str
    namespace: str
    name: str


class _Basis(msgspec.Struct, gc=False):
    view: int
    now: int


class _About(msgspec.Struct, gc=False):
    """What any entry's data says of pod and view; all the rest is skipped while decoding."""

    pod: _Pod | None = None
    basis: _Basis | None = None
    pod_uid: str = ""
    namespace: str = ""
    name: str = ""


class _Said(msgspec.Struct, gc=False):
    id: str
    type: str
    ts: int
    data: _About


_said = msgspec.msgpack.Decoder(_Said).decode


def columns_said(body: bytes) -> tuple[str, str, str, str, int, int]:
    """The columns of an entry, by the short way: what `entry_of_body` says, a test holds the two.

    Verifying spends most of its time here; whoever fails it is looked at by the long way.
    """
    said = _said(body)
    data = said.data
    pod, basis = data.pod, data.basis
    if pod is not None:
        uid, name = pod.uid, f"{pod.namespace}/{pod.name}"
    elif data.pod_uid:
        uid, name = data.pod_uid, f"{data.namespace}/{data.name}"
    else:
        uid, name = "", ""
    if basis is None:
        return said.id, said.type, uid, name, 0, said.ts
    return said.id, said.type, uid, name, basis.view, basis.now


UNREADABLE_BODY = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)


class _Check:
    """Goes along the chain; remembers the hashes that some head speaks of."""

    def __init__(self, part: Part, wanted: Set[int]) -> None:
        self.pos = part.first - 1
        self.hashes: dict[int, bytes] = {}
        self.counters = Counters(from_one=part.begins_the_log)
        self._prev = FIRST_PREV
        self._wanted = sorted(wanted)

    def begin(self, history: History) -> Flaw | None:
        """The entry before the first lends its hash; it is not looked at itself."""
        if self.pos == 0:
            return None
        before = next(history.entries(self.pos, self.pos), None)
        if before is None:
            return Flaw(self.pos, f"entry {self.pos} is missing; nothing can follow it")
        self._prev = before.hash
        return None

    def page(self, rows: Sequence[Sequence[Any]]) -> Flaw | None:
        """Right as a whole, nearly always; else it is looked at entry by entry."""
        if self._is_right(rows):
            self._go_on(rows)
            return None
        for row in rows:
            entry = Logged._make(row)
            what = _link_flaw(entry, self.pos + 1, self._prev) or _column_flaw(entry)
            if what:
                return Flaw(self.pos + 1, what)
            self._go_on([row])
        return None

    def _is_right(self, rows: Sequence[Sequence[Any]]) -> bool:
        """The hot loop, by columns: plain values, no names."""
        pos, *columns, bodies, prevs, hashes = zip(*rows, strict=True)
        if pos != tuple(range(self.pos + 1, self.pos + 1 + len(rows))):
            return False
        if prevs != (self._prev, *hashes[:-1]):
            return False
        if [sha256(hashed).digest() for hashed in map(add, prevs, bodies)] != list(hashes):
            return False
        try:
            return list(map(columns_said, bodies)) == list(zip(*columns, strict=True))
        except UNREADABLE_BODY:
            return False

    def _go_on(self, right: Sequence[Sequence[Any]]) -> None:
        before, self.pos, self._prev = self.pos, self.pos + len(right), right[-1][_HASH]
        for row in right:
            self.counters.seen(row[_EVENT_ID])
        of_heads = self._wanted[bisect(self._wanted, before) : bisect(self._wanted, self.pos)]
        self.hashes.update((at, right[at - before - 1][_HASH]) for at in of_heads)


def _link_flaw(entry: Logged, expected: int, prev: bytes) -> str:
    if entry.pos != expected:
        return _missing(expected, entry.pos)
    if entry.prev != prev:
        return f"entry {entry.pos} does not follow the entry before it"
    if entry.hash != chain_hash(prev, entry.body):
        return f"the body of entry {entry.pos} is not the one that was hashed"
    return ""


def _missing(expected: int, found: int) -> str:
    return f"entry {expected} is missing; the log goes on at {found}"


def _column_flaw(entry: Logged) -> str:
    if entry.kind == UNREADABLE:
        return ""
    try:
        said = entry_of_body(entry.body, f"entry {entry.pos}")
    except Undecodable as error:
        return str(error)
    for column, value in zip(Entry._fields, said, strict=True):
        if getattr(entry, column) != value:
            return f"the column {column} of entry {entry.pos} is not what its body says"
    return ""
