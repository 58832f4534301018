"""Re-hashes every entry and checks every link; names the first place that is not what it was.

Nothing is believed because it is stored: bodies are hashed again, columns are compared with what
their body says, signatures are checked, and heads kept outside the database must still fit.
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from joulie_bus.errors import Undecodable
from joulie_projections.decisions import FIRST_PREV, UNREADABLE, Entry, chain_hash, entry_of_body
from joulie_projections.heads import Checker, Head, is_genuine
from joulie_projections.history import History, Logged
from joulie_projections.manifest import Manifest, chained


class Flaw(NamedTuple):
    """The first thing that is wrong, and where."""

    place: int
    what: str


class Report(NamedTuple):
    entries: int
    heads: int
    batches: int
    flaw: Flaw | None


def verify(history: History, public: Checker, anchored: Sequence[Head]) -> Report:
    """`anchored` are heads from outside the database; they show what was cut off or replaced."""
    heads = history.heads()
    entries, hashes, flaw = _check_entries(
        history.entries(), {found.pos for found in (*heads, *anchored)}
    )
    flaw = flaw or _check_heads([*heads, *anchored], hashes, entries, public)
    batches, batch_flaw = _check_manifests(history)
    return Report(entries, len(heads), batches, flaw or batch_flaw)


def _check_entries(
    entries: Iterable[Logged], wanted: set[int]
) -> tuple[int, dict[int, bytes], Flaw | None]:
    """Also returns the hashes at those positions that some head speaks of."""
    hashes: dict[int, bytes] = {}
    count, prev = 0, FIRST_PREV
    for entry in entries:
        what = _entry_flaw(entry, count + 1, prev)
        if what:
            return count, hashes, Flaw(count + 1, what)
        count, prev = entry.pos, entry.hash
        if entry.pos in wanted:
            hashes[entry.pos] = entry.hash
    return count, hashes, None


def _entry_flaw(entry: Logged, expected: int, prev: bytes) -> str:
    if entry.pos != expected:
        return f"entry {expected} is missing; the log goes on at {entry.pos}"
    if entry.prev != prev:
        return f"entry {entry.pos} does not follow the entry before it"
    if chain_hash(entry.prev, entry.body) != entry.hash:
        return f"the body of entry {entry.pos} is not the one that was hashed"
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


def _check_heads(
    heads: Iterable[Head], hashes: dict[int, bytes], entries: int, public: Checker
) -> Flaw | None:
    for found in heads:
        at = found.pos
        if not is_genuine(found, public):
            return Flaw(at, f"the signature of the head at {at} is not ours")
        if at > entries:
            what = f"a signed head speaks of entry {at}, but the log ends at {entries}"
            return Flaw(entries + 1, what)
        if hashes.get(at) != found.hash:
            return Flaw(at, f"entry {at} is not the one that was signed")
    return None


def _check_manifests(history: History) -> tuple[int, Flaw | None]:
    count, position, prev = 0, 0, b""
    for manifest in history.manifests():
        what = _manifest_flaw(manifest, position + 1, prev)
        if what:
            return count, Flaw(position + 1, what)
        count, position, prev = count + 1, manifest.p_to, manifest.head
    checkpoint = history.checkpoint()
    if checkpoint is not None and (checkpoint.position, checkpoint.head) != (position, prev):
        return count, Flaw(position, "the checkpoint and the last manifest do not fit together")
    return count, None


def _manifest_flaw(manifest: Manifest, expected: int, prev: bytes) -> str:
    if manifest.p_from != expected:
        return f"positions {expected} to {manifest.p_from - 1} are missing"
    span = (manifest.p_from, manifest.p_to)
    if sum(r.last - r.first + 1 for r in manifest.ranges) != span[1] - span[0] + 1:
        return f"the manifest at {expected} does not count right"
    again = chained(prev, span, manifest.ranges, manifest.merkle_root, manifest.state_digest)
    if (manifest.prev, manifest.head) != (prev, again):
        return f"the manifest at {expected} is not the one that was chained"
    return ""
