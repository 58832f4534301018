"""Walks the log entry by entry and checks number, link, hash and columns, in parallel if asked.

Stored hashes are not trusted: bodies are hashed again. Columns that entries are found by are
generated from the body, or compared with it.
"""

from bisect import bisect
from collections.abc import Callable, Generator, Sequence, Set
from contextlib import contextmanager
from hashlib import sha256
from itertools import chain, pairwise
from typing import NamedTuple

from joulie_audit.chain.promises import PromisesSeen
from joulie_audit.chain.tree_walk import TreeFollower, TreeWalk
from joulie_audit.workers import worker_pool, worker_process
from joulie_projections.chain.entry import (
    FIRST_PREV,
    chain_hash,
    ids_and_kinds_in,
    message_in,
    parse_header,
)
from joulie_projections.chain.sequence_gaps import SequenceNumbers
from joulie_projections.history.history import NEWEST, PAGE, EntryCheck, History, StoredEntry
from joulie_projections.store.database import Place


class Flaw(NamedTuple):
    """The first error, and the entry or position where it is."""

    place: int
    what: str


class EntryRange(NamedTuple):
    """The entries to check: `first` to `last`, both included."""

    first: int = 1
    last: int = NEWEST

    def contains(self, pos: int) -> bool:
        return self.first <= pos <= self.last

    @property
    def starts_the_log(self) -> bool:
        return self.first == 1


class WalkResult(NamedTuple):
    last: int  # every entry up to this one is correct
    hashes: dict[int, bytes]  # of the entries that a head covers
    numbers: SequenceNumbers
    promises: PromisesSeen
    flaw: Flaw | None
    tree: TreeWalk


class WorkerOptions(NamedTuple):
    """How many worker processes share a walk, and the database that they read."""

    database: Place
    jobs: int


WaitForWalk = Callable[[], WalkResult]


def walk(history: History, entry_range: EntryRange, signed: Set[int]) -> WalkResult:
    """Checks entry by entry; takes the slow path only where the fast path rejects an entry."""
    walker = _ChainWalker(entry_range, signed)
    flaw = walker.start(history)
    while flaw is None:
        history.check_entries(walker.pos + 1, entry_range.last, walker.fast_check())
        walker.flush()
        entries = history.entries(walker.pos + 1, min(entry_range.last, walker.pos + PAGE))
        if (first := next(entries, None)) is None:
            break
        for entry in chain([first], entries):
            if flaw := walker.check_in_full(entry):
                break
    tree = walker.tree.result()
    return WalkResult(walker.pos, walker.hashes, walker.numbers, walker.promises, flaw, tree)


@contextmanager
def parallel_walk(
    history: History, entry_range: EntryRange, signed: Set[int], workers: WorkerOptions | None
) -> Generator[WaitForWalk, None, None]:
    """Starts the walk in workers; calling the result waits for all of them."""
    spans = split_range(entry_range, history.tip(), workers.jobs) if workers else []
    if workers is None or len(spans) < 2:
        yield lambda: walk(history, entry_range, signed)
        return
    with worker_pool(len(spans), __name__) as pool:
        results = [pool.submit(_walk_in_worker, workers.database, span, signed) for span in spans]
        yield lambda: join_walks([result.result() for result in results], spans)


# --- in parallel ------------------------------------------------------------------------------


def split_range(entry_range: EntryRange, tip: int, jobs: int) -> list[EntryRange]:
    """Ranges of about equal size; each starts from the last hash of the one before it."""
    last = min(entry_range.last, tip)
    count = last - entry_range.first + 1
    cuts = [entry_range.first - 1 + count * share // jobs for share in range(jobs + 1)]
    return [EntryRange(cut + 1, end) for cut, end in pairwise(cuts) if cut < end]


def _walk_in_worker(place: Place, span: EntryRange, signed: Set[int]) -> WalkResult:
    with worker_process("verify"), History.readable(place) as history:
        return walk(history, span, signed)


def join_walks(walks: Sequence[WalkResult], spans: Sequence[EntryRange]) -> WalkResult:
    """The result that a single walk would give: it ends at the first flaw."""
    whole = walks[0]
    for before, found, span in zip(spans, walks[1:], spans[1:], strict=False):
        if whole.flaw is None and whole.last < before.last:
            whole = whole._replace(flaw=Flaw(whole.last + 1, _missing(whole.last + 1, span.first)))
        if whole.flaw is not None:
            return whole
        if whole.tree.end != found.tree.start:
            what = f"the tree of the log does not fit its entries up to {whole.last}"
            return whole._replace(flaw=Flaw(whole.last, what))
        whole.numbers.extend(found.numbers)
        whole.promises.extend(found.promises)
        at, wrong = {**whole.tree.at, **found.tree.at}, whole.tree.wrong_tile
        wrong = wrong or found.tree.wrong_tile
        roots = TreeWalk(whole.tree.start, found.tree.end, at, wrong)
        hashes = whole.hashes | found.hashes
        whole = whole._replace(last=found.last, hashes=hashes, flaw=found.flaw, tree=roots)
    return whole


# --- one entry after another ------------------------------------------------------------------


BATCH = 256  # entries whose bodies are kept until their ids are counted


class _ChainWalker:
    """Follows the chain and keeps the hashes of entries that a head covers."""

    def __init__(self, entry_range: EntryRange, signed: Set[int]) -> None:
        self.pos = entry_range.first - 1
        self.hashes: dict[int, bytes] = {}
        self.numbers = SequenceNumbers(from_one=entry_range.starts_the_log)
        self.promises = PromisesSeen()
        self._prev = FIRST_PREV
        self._signed = sorted(signed)
        self._bodies: list[bytes] = []  # of entries that are linked, and not counted yet
        self._hashes: list[bytes] = []
        self.tree = TreeFollower()

    def start(self, history: History) -> Flaw | None:
        """Reads the hash of the entry before the first; that entry is not checked itself."""
        follower = TreeFollower.after(history, self.pos)
        if follower is None:
            what = f"the tree of the log lacks a part up to entry {self.pos}"
            return Flaw(self.pos, what)
        self.tree = follower
        if self.pos == 0:
            return None
        before = history.entry(self.pos)
        if before is None:
            return Flaw(
                self.pos, f"entry {self.pos} is missing, so the entry after it cannot be checked"
            )
        self._prev = before.hash
        return None

    def fast_check(self) -> EntryCheck:
        """The hot loop, on plain values: returns whether an entry is correct and follows."""
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
        """Accepts the entries that were correct before the fast path ended."""
        if self._bodies:
            self._accept_batch()
            self._bodies.clear()
            self._hashes.clear()

    def _accept_batch(self) -> bool:
        """False if an entry has no header."""
        found = ids_and_kinds_in(self._bodies)
        if found is None:
            return False
        self._advance(self._hashes, *found, list(map(message_in, self._bodies)))
        self._bodies.clear()
        self._hashes.clear()
        return True

    def check_in_full(self, entry: StoredEntry) -> Flaw | None:
        """The slow path: returns the flaw of the entry, or advances to the next one."""
        expected = self.pos + 1
        if entry.pos != expected:
            return Flaw(expected, _missing(expected, entry.pos))
        if flaw_text := _flaw_of(entry, self._prev):
            return Flaw(expected, flaw_text)
        ids, kinds = [entry.event_id.encode()], [entry.kind.encode()]
        self._advance([entry.hash], ids, kinds, [entry.message])
        return None

    def _advance(
        self,
        hashes: Sequence[bytes],
        ids: Sequence[bytes],
        kinds: Sequence[bytes],
        messages: Sequence[bytes],
    ) -> None:
        before, self.pos, self._prev = self.pos, self.pos + len(hashes), hashes[-1]
        self.numbers.add(ids, messages)
        self.promises.add(before + 1, kinds, messages)
        of_heads = self._signed[bisect(self._signed, before) : bisect(self._signed, self.pos)]
        self.hashes.update((at, hashes[at - before - 1]) for at in of_heads)
        self.tree.extend(before, hashes, of_heads)


def _missing(expected: int, found: int) -> str:
    return f"entry {expected} is missing; the next entry is {found}"


def _flaw_of(entry: StoredEntry, prev: bytes) -> str:
    if entry.prev != prev:
        return f"entry {entry.pos} does not link to the entry before it"
    if not _is_bytes(entry.body) or chain_hash(prev, entry.body) != entry.hash:
        return f"the body of entry {entry.pos} does not match its hash"
    return _column_flaw(entry)


def _is_bytes(value: object) -> bool:
    """SQLite stores a value of any type in any column; only bytes were hashed."""
    return isinstance(value, bytes)


def _column_flaw(entry: StoredEntry) -> str:
    """Compares the columns with the hashed header."""
    where = f"entry {entry.pos}"
    try:
        recorded = parse_header(entry.body)
    except ValueError as error:
        return f"{where}: {error}"
    column = recorded.differs_from(entry.fields)
    return column and f"the column {column} of {where} does not match its body"
