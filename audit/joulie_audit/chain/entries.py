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

from joulie_audit.chain.sequence_gaps import SequenceNumbers
from joulie_audit.workers import worker_pool, worker_process
from joulie_bus.errors import Undecodable
from joulie_projections.decision_log.entry import (
    FIRST_PREV,
    UNREADABLE,
    about_before_bounds,
    chain_hash,
    event_ids_in,
    has_header,
    header_in,
)
from joulie_projections.history.history import NEWEST, PAGE, History, Logged, Look
from joulie_projections.store.database import Place


class Flaw(NamedTuple):
    """The first thing that is wrong, and where."""

    place: int
    what: str


class EntryRange(NamedTuple):
    """Entries to look at: `first` to `last`, both included."""

    first: int = 1
    last: int = NEWEST

    def contains(self, pos: int) -> bool:
        return self.first <= pos <= self.last

    @property
    def starts_the_log(self) -> bool:
        return self.first == 1


class WalkResult(NamedTuple):
    last: int  # everything up to here is right
    hashes: dict[int, bytes]  # of the entries that some head speaks of
    counters: SequenceNumbers
    flaw: Flaw | None


class WorkerOptions(NamedTuple):
    """How many processes share the walk, and where they read the log."""

    database: Place
    jobs: int


Outcome = Callable[[], WalkResult]


def walk(history: History, entry_range: EntryRange, signed: Set[int]) -> WalkResult:
    """Entry by entry, nearly always by the short way."""
    walker = _ChainWalker(entry_range, signed)
    flaw = walker.start(history)
    while flaw is None:
        history.look_through(walker.pos + 1, entry_range.last, walker.fast_check())
        walker.flush()
        check_in_full = history.entries(walker.pos + 1, min(entry_range.last, walker.pos + PAGE))
        if (first := next(check_in_full, None)) is None:
            break
        for entry in chain([first], check_in_full):
            if flaw := walker.check_in_full(entry):
                break
    return WalkResult(walker.pos, walker.hashes, walker.counters, flaw)


@contextmanager
def parallel_walk(
    history: History, entry_range: EntryRange, signed: Set[int], workers: WorkerOptions | None
) -> Generator[Outcome, None, None]:
    """Meanwhile something else can be looked at; the result waits for all who share the walk."""
    spans = split_range(entry_range, history.tip(), workers.jobs) if workers else []
    if workers is None or len(spans) < 2:
        yield lambda: walk(history, entry_range, signed)
        return
    with worker_pool(len(spans)) as pool:
        results = [pool.submit(_walk_in_worker, workers.database, span, signed) for span in spans]
        yield lambda: join_walks([result.result() for result in results], spans)


# --- shared -----------------------------------------------------------------------------------


def split_range(entry_range: EntryRange, tip: int, jobs: int) -> list[EntryRange]:
    """About equal ones; each hangs on the last entry of the one before it."""
    last = min(entry_range.last, tip)
    count = last - entry_range.first + 1
    cuts = [entry_range.first - 1 + count * result // jobs for result in range(jobs + 1)]
    return [EntryRange(cut + 1, end) for cut, end in pairwise(cuts) if cut < end]


def _walk_in_worker(place: Place, span: EntryRange, signed: Set[int]) -> WalkResult:
    with worker_process("verify"), History.readable(place) as history:
        return walk(history, span, signed)


def join_walks(walks: Sequence[WalkResult], spans: Sequence[EntryRange]) -> WalkResult:
    """As one walk would have ended: at the first flaw."""
    whole = walks[0]
    for before, found, span in zip(spans, walks[1:], spans[1:], strict=False):
        if whole.flaw is None and whole.last < before.last:
            whole = whole._replace(flaw=Flaw(whole.last + 1, _missing(whole.last + 1, span.first)))
        if whole.flaw is not None:
            return whole
        whole.counters.extend(found.counters)
        whole = WalkResult(found.last, whole.hashes | found.hashes, whole.counters, found.flaw)
    return whole


# --- one entry after the other ----------------------------------------------------------------


BATCH = 256  # entries whose bodies are held until their ids are counted


class _ChainWalker:
    """Goes along the chain; remembers the hashes that some head speaks of."""

    def __init__(self, entry_range: EntryRange, signed: Set[int]) -> None:
        self.pos = entry_range.first - 1
        self.hashes: dict[int, bytes] = {}
        self.counters = SequenceNumbers(from_one=entry_range.starts_the_log)
        self._prev = FIRST_PREV
        self._signed = sorted(signed)
        self._bodies: list[bytes] = []  # of entries that hang together, and are not counted yet
        self._hashes: list[bytes] = []

    def start(self, history: History) -> Flaw | None:
        """The entry before the first lends its hash; it is not looked at itself."""
        if self.pos == 0:
            return None
        before = history.entry(self.pos)
        if before is None:
            return Flaw(self.pos, f"entry {self.pos} is missing; nothing can follow it")
        self._prev = before.hash
        return None

    def fast_check(self) -> Look:
        """The hot loop, by the bare values: says whether an entry is what it was, and follows."""
        expected, prev = self.pos, self._prev
        bodies, hashes = self._bodies, self._hashes

        def check_entry(pos: int, body: bytes, link: bytes, stored: bytes) -> bool:
            nonlocal expected, prev
            expected += 1
            if pos != expected or link != prev or sha256(link + body).digest() != stored:
                return False
            prev = stored
            bodies.append(body)
            hashes.append(stored)
            return len(bodies) < BATCH or self._accept_batch()

        return check_entry

    def flush(self) -> None:
        """What was right before the short way ended."""
        if self._bodies:
            self._accept_batch()
            self._bodies.clear()
            self._hashes.clear()

    def _accept_batch(self) -> bool:
        """Headers were hashed. Of an entry without one, what it is found by has to be compared."""
        ids = event_ids_in(self._bodies)
        if ids is None:
            return False
        self._advance(self._hashes, ids)
        self._bodies.clear()
        self._hashes.clear()
        return True

    def check_in_full(self, entry: Logged) -> Flaw | None:
        """The long way: what is wrong, or on to the next."""
        expected = self.pos + 1
        if entry.pos != expected:
            return Flaw(expected, _missing(expected, entry.pos))
        if flaw_text := _flaw_of(entry, self._prev):
            return Flaw(expected, flaw_text)
        self._advance([entry.hash], [entry.event_id.encode()])
        return None

    def _advance(self, hashes: Sequence[bytes], ids: Sequence[bytes]) -> None:
        before, self.pos, self._prev = self.pos, self.pos + len(hashes), hashes[-1]
        self.counters.add(ids)
        of_heads = self._signed[bisect(self._signed, before) : bisect(self._signed, self.pos)]
        self.hashes.update((at, hashes[at - before - 1]) for at in of_heads)


def _missing(expected: int, found: int) -> str:
    return f"entry {expected} is missing; the log goes on at {found}"


def _flaw_of(entry: Logged, prev: bytes) -> str:
    if entry.prev != prev:
        return f"entry {entry.pos} does not follow the entry before it"
    if not _is_bytes(entry.body) or chain_hash(prev, entry.body) != entry.hash:
        return f"the body of entry {entry.pos} is not the one that was hashed"
    return _column_flaw(entry)


def _is_bytes(value: object) -> bool:
    """SQLite keeps values of any type in any column; nothing else was hashed."""
    return isinstance(value, bytes)


def _column_flaw(entry: Logged) -> str:
    """A header was hashed with its message, and of an older entry the message is all there is."""
    where, is_unreadable = f"entry {entry.pos}", entry.kind == UNREADABLE
    if is_unreadable and not has_header(entry.body):
        return ""
    try:
        recorded = (
            header_in(entry.body)
            if has_header(entry.body)
            else about_before_bounds(entry.body, where)
        )
    except (Undecodable, ValueError) as error:
        return "" if is_unreadable else f"{where}: {error}"
    column = recorded.differs_from(entry.about)
    return column and f"the column {column} of {where} is not what its body says"
