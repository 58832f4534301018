"""Walks along the log entry by entry: its number, link, hash and columns. Several may share it.

Nothing is believed because it is stored: bodies are hashed again, and what entries are found by
is what stands in them, or is compared with it.
"""

from bisect import bisect
from collections.abc import Callable, Generator, Sequence, Set
from contextlib import contextmanager
from hashlib import sha256
from itertools import chain, pairwise
from typing import NamedTuple

from joulie_audit.chain.sequence_gaps import Counters
from joulie_audit.workers import processes, telling
from joulie_bus.errors import Undecodable
from joulie_projections.decision_log.entry import (
    FIRST_PREV,
    UNREADABLE,
    chain_hash,
    event_ids_in,
    fields_before_bounds,
    has_header,
    parse_header,
)
from joulie_projections.history.history import NEWEST, PAGE, EntryCheck, History, StoredEntry
from joulie_projections.store.database import Place


class Flaw(NamedTuple):
    """The first thing that is wrong, and where."""

    place: int
    what: str


class Part(NamedTuple):
    """Entries to look at: `first` to `last`, both included."""

    first: int = 1
    last: int = NEWEST

    def holds(self, pos: int) -> bool:
        return self.first <= pos <= self.last

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
    """Entry by entry, nearly always by the short way."""
    check = _Check(part, wanted)
    flaw = check.begin(history)
    while flaw is None:
        history.check_entries(check.pos + 1, part.last, check.looking())
        check.take_rest()
        closely = history.entries(check.pos + 1, min(part.last, check.pos + PAGE))
        if (first := next(closely, None)) is None:
            break
        for entry in chain([first], closely):
            if flaw := check.closely(entry):
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


AT_ONCE = 256  # entries whose bodies are held until their ids are counted


class _Check:
    """Goes along the chain; remembers the hashes that some head speaks of."""

    def __init__(self, part: Part, wanted: Set[int]) -> None:
        self.pos = part.first - 1
        self.hashes: dict[int, bytes] = {}
        self.counters = Counters(from_one=part.begins_the_log)
        self._prev = FIRST_PREV
        self._wanted = sorted(wanted)
        self._bodies: list[bytes] = []  # of entries that hang together, and are not counted yet
        self._hashes: list[bytes] = []

    def begin(self, history: History) -> Flaw | None:
        """The entry before the first lends its hash; it is not looked at itself."""
        if self.pos == 0:
            return None
        before = history.entry(self.pos)
        if before is None:
            return Flaw(self.pos, f"entry {self.pos} is missing; nothing can follow it")
        self._prev = before.hash
        return None

    def looking(self) -> EntryCheck:
        """The hot loop, by the bare values: says whether an entry is what it was, and follows."""
        expected, prev = self.pos, self._prev
        bodies, hashes = self._bodies, self._hashes

        def look(pos: int, body: bytes, link: bytes, stands: bytes) -> bool:
            nonlocal expected, prev
            expected += 1
            if pos != expected or link != prev or sha256(link + body).digest() != stands:
                return False
            prev = stands
            bodies.append(body)
            hashes.append(stands)
            return len(bodies) < AT_ONCE or self._take()

        return look

    def take_rest(self) -> None:
        """What was right before the short way ended."""
        if self._bodies:
            self._take()
            self._bodies.clear()
            self._hashes.clear()

    def _take(self) -> bool:
        """Headers were hashed. Of an entry without one, what it is found by has to be compared."""
        ids = event_ids_in(self._bodies)
        if ids is None:
            return False
        self._go_on(self._hashes, ids)
        self._bodies.clear()
        self._hashes.clear()
        return True

    def closely(self, entry: StoredEntry) -> Flaw | None:
        """The long way: what is wrong, or on to the next."""
        expected = self.pos + 1
        if entry.pos != expected:
            return Flaw(expected, _missing(expected, entry.pos))
        if what := _flaw_of(entry, self._prev):
            return Flaw(expected, what)
        self._go_on([entry.hash], [entry.event_id.encode()])
        return None

    def _go_on(self, hashes: Sequence[bytes], ids: Sequence[bytes]) -> None:
        before, self.pos, self._prev = self.pos, self.pos + len(hashes), hashes[-1]
        self.counters.seen(ids)
        of_heads = self._wanted[bisect(self._wanted, before) : bisect(self._wanted, self.pos)]
        self.hashes.update((at, hashes[at - before - 1]) for at in of_heads)


def _missing(expected: int, found: int) -> str:
    return f"entry {expected} is missing; the log goes on at {found}"


def _flaw_of(entry: StoredEntry, prev: bytes) -> str:
    if entry.prev != prev:
        return f"entry {entry.pos} does not follow the entry before it"
    if not _is_bytes(entry.body) or chain_hash(prev, entry.body) != entry.hash:
        return f"the body of entry {entry.pos} is not the one that was hashed"
    return _column_flaw(entry)


def _is_bytes(value: object) -> bool:
    """SQLite keeps values of any type in any column; nothing else was hashed."""
    return isinstance(value, bytes)


def _column_flaw(entry: StoredEntry) -> str:
    """A header was hashed with its message, and of an older entry the message is all there is."""
    where, is_unreadable = f"entry {entry.pos}", entry.kind == UNREADABLE
    if is_unreadable and not has_header(entry.body):
        return ""
    try:
        said = (
            parse_header(entry.body)
            if has_header(entry.body)
            else fields_before_bounds(entry.body, where)
        )
    except (Undecodable, ValueError) as error:
        return "" if is_unreadable else f"{where}: {error}"
    column = said.differs_from(entry.fields)
    return column and f"the column {column} of {where} is not what its body says"
