"""Checks the parts of an archive, each on its own and in several processes, for `verify_archive`.

What joins one part to the next is left to the caller: it gets the manifests and the hashes.
"""

import os
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple, TypeVar

import numpy as np

from joulie_audit.archive.part_tables import (
    READING_MESSAGES,
    FactPart,
    LogPart,
    PartMessages,
    counted,
)
from joulie_audit.archive.parts import Archive, Part, require_same_columns
from joulie_audit.archive.untrusted_files import reading
from joulie_audit.columns.facts import fact_tables
from joulie_audit.columns.log import log_tables
from joulie_audit.verify.verify import manifest_flaw
from joulie_audit.workers import uncollected, worker_pool
from joulie_bus.errors import ArchiveBroken
from joulie_projections.chain.entry import chain_hash
from joulie_projections.chain.head import Head
from joulie_projections.chain.keyring import Ring
from joulie_projections.chain.signed import KeyStatement
from joulie_projections.fold.joins import PlacedRange, joined_ranges
from joulie_projections.fold.manifest import Manifest, Range, hash_of_all
from joulie_projections.fold.quarantine_quota import all_positions

PARTS_PER_PROCESS = 4  # fewer are checked before a process has started
Placed = tuple[Path, Part]


class CheckedFacts(NamedTuple):
    """Batches that follow each other and hold what they should; not the batches themselves, which
    take longer to hand over than to check."""

    first: Manifest | None  # None with a flaw
    head: bytes  # of the last batch
    cut_head: bytes  # of the batch that ends at the cut of the log
    ranges: Sequence[PlacedRange]  # of each stream one, if they join
    folds: Mapping[str, int]  # positions by fold version
    lost: int  # messages that had aged out before they were archived
    flaw: tuple[str, str] | None = None  # where and what


class CheckedLog(NamedTuple):
    """Entries that follow each other; `hashes` also has the one before them."""

    hashes: Mapping[int, bytes]
    heads: Sequence[Head]
    keys: Sequence[KeyStatement]
    flaw: tuple[str, str] | None = None


Checked = TypeVar("Checked", CheckedFacts, CheckedLog)


def checked_facts(archive: Archive, jobs: int, cut: int = 0) -> Iterator[CheckedFacts]:
    """In the order of the parts; raises at the first flaw. With 0 jobs as many processes as are
    worthwhile. `cut` is the last position before the cut of the log."""
    return _in_processes(partial(_check_facts, archive.path, cut), archive.facts, jobs)


def checked_log(archive: Archive, jobs: int) -> Iterator[CheckedLog]:
    return _in_processes(partial(_check_log, archive.path), archive.log, jobs)


def _in_processes(
    check: Callable[[Placed], Checked], parts: Sequence[Placed], jobs: int
) -> Iterator[Checked]:
    worthwhile = min(os.cpu_count() or 1, len(parts) // PARTS_PER_PROCESS)
    processes = jobs or worthwhile
    if processes <= 1:
        yield from map(_raised, map(check, parts))
        return
    with worker_pool(processes, __name__) as pool:
        yield from map(_raised, pool.map(check, parts))


def _raised(checked: Checked) -> Checked:
    """Most of our errors do not pickle."""
    if checked.flaw is not None:
        raise ArchiveBroken(*checked.flaw)
    return checked


def _check_facts(archive: Path, cut: int, placed: Placed) -> CheckedFacts:
    place, part = placed
    try:
        with uncollected(), reading(place):
            found = Archive(archive).read_messages(place, part)
            manifests, lost = found.outline.manifests, found.outline.lost
            span = part.first - 1, part.last
            prev = manifests[0].prev if manifests else b""
            bodies = found.messages.bodies
            require_bodies_fit(str(place), manifests, lost, bodies, span, prev)
            _require_same_facts(Archive(archive), place, part, found)
    except ArchiveBroken as error:
        return CheckedFacts(None, b"", b"", (), {}, 0, (error.file, error.why))
    return _summary_of(manifests, lost, cut)


def _summary_of(manifests: Sequence[Manifest], lost: Sequence[Range], cut: int) -> CheckedFacts:
    folds = Counter[str]()
    for each in manifests:
        folds[each.fold_version] += each.p_to - each.p_from + 1
    cut_head = next((each.head for each in manifests if each.p_to == cut), b"")
    gone = sum(place.count for place in lost)
    ranges = joined_ranges(manifests)
    return CheckedFacts(manifests[0], manifests[-1].head, cut_head, ranges, folds, gone)


def _require_same_facts(archive: Archive, place: Path, part: Part, found: PartMessages) -> None:
    made = fact_tables(found.messages, all_positions(found.outline.aside))
    require_same_columns(archive, place, part, made.typed)
    if not np.array_equal(found.plain, found.messages.positions[made.plain]):
        what = f"{READING_MESSAGES} are not those whose readings a ledger folds from the columns"
        raise ArchiveBroken(str(place), what)


def _check_log(archive: Path, placed: Placed) -> CheckedLog:
    place, part = placed
    try:
        with uncollected(), reading(place):
            found = Archive(archive).read_log(place, part)
            hashes = linked_hashes(str(place), found, found.entries[0].prev)
            if list(hashes) != list(range(part.first - 1, part.last + 1)):
                raise ArchiveBroken(str(place), "its entries are not those that its name tells")
            require_same_columns(Archive(archive), place, part, log_tables(found.entries))
    except ArchiveBroken as error:
        return CheckedLog({}, [], [], (error.file, error.why))
    return CheckedLog(hashes, found.heads, found.keys)


def linked_hashes(place: str, part: LogPart, prev: bytes) -> dict[int, bytes]:
    """Raises unless each entry follows the one before it, the first one `prev`; hashes by entry."""
    hashes = {entry.pos - 1: prev for entry in part.entries[:1]}
    for entry in part.entries:
        if entry.prev != prev or chain_hash(prev, entry.body) != entry.hash:
            raise ArchiveBroken(place, f"entry {entry.pos} does not link to the entry before it")
        prev = hashes[entry.pos] = entry.hash
    return hashes


def require_heads_fit(
    place: str, heads: Sequence[Head], hashes: Mapping[int, bytes], ring: Ring
) -> None:
    """Raises unless keys that the ring knows signed the heads, and heads and handovers are of
    these entries."""
    for handover in ring.handovers:
        if hashes.get(handover.pos, handover.hash) != handover.hash:
            raise ArchiveBroken(
                place, f"a handover of keys at {handover.pos} does not match this log"
            )
    for head in heads:
        if what := ring.flaw_of(head):
            raise ArchiveBroken(place, what)
        if hashes.get(head.pos) != head.hash:
            raise ArchiveBroken(place, f"the head at {head.pos} does not match this log")


def ring_with_keys(place: str, keys: Sequence[KeyStatement], ring: Ring) -> Ring:
    """The ring with the key statements of a part; the first key has to be known."""
    ring, flaws = ring.with_all(keys)
    if flaws:
        raise ArchiveBroken(place, flaws[0])
    return ring


def require_facts_fit(place: str, part: FactPart, span: tuple[int, int], prev: bytes) -> bytes:
    """Raises unless the batches follow `prev` and lead from one position of `span` to the other."""
    bodies = [record.data for record in part.records]
    return require_bodies_fit(place, part.manifests, part.lost, bodies, span, prev)


def require_bodies_fit(
    place: str,
    manifests: Sequence[Manifest],
    lost: Sequence[Range],
    bodies: Sequence[bytes],
    span: tuple[int, int],
    prev: bytes,
) -> bytes:
    """Messages that had aged out before they were archived are left out of the comparison."""
    (position, end), at = span, 0
    for manifest, count, gone in counted(manifests, lost):
        if what := manifest_flaw(manifest, position + 1, prev):
            raise ArchiveBroken(place, what)
        if not gone and hash_of_all(bodies[at : at + count]) != manifest.facts_hash:
            raise ArchiveBroken(
                place, f"facts at {manifest.p_from} to {manifest.p_to} differ from their manifest"
            )
        position, prev, at = manifest.p_to, manifest.head, at + count
    if (position, at) != (end, len(bodies)):
        raise ArchiveBroken(
            place, f"its batches hold {at} facts to {position}, not {len(bodies)} to {end}"
        )
    return prev
