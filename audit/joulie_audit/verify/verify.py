"""Finds the first place of the log that was changed after it was written.

Hashes the entries again along their chain, checks signatures, compares heads that are kept outside
the database, and checks manifests and snapshots.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from joulie_audit.chain.checkpoints import checkpoints_flaw
from joulie_audit.chain.entries import EntryRange, Flaw, WorkerOptions, parallel_walk
from joulie_audit.chain.heads import end_flaw, handover_flaw, heads_flaw, lost_flaw
from joulie_audit.chain.log_start import after_cut, cut_flaw, first_manifest, hiding_cut
from joulie_audit.replay.fold_start import opened
from joulie_bus.errors import StateDamaged
from joulie_migrations import decision_table
from joulie_projections.chain.keyring import Ring
from joulie_projections.chain.sequence_gaps import Gap
from joulie_projections.chain.signed import Head
from joulie_projections.fold.commit import Cut
from joulie_projections.fold.manifest import Manifest, chained
from joulie_projections.history.history import History


class Report(NamedTuple):
    entries: int
    heads: int
    batches: int
    snapshots: int
    gaps: Sequence[Gap]  # sequence numbers that a replica used and that are not in the log
    flaw: Flaw | None
    cut: Cut | None = None  # entries before it were requested and not checked


ALL_ENTRIES = EntryRange()


def verify(
    history: History,
    public: Ring,
    anchored: Sequence[Head],
    entry_range: EntryRange = ALL_ENTRIES,
    workers: WorkerOptions | None = None,
) -> Report:
    """`anchored` are heads from outside the database: they reveal a truncated or replaced log.

    With `workers`, several processes share the entries.
    """
    inside, cut, is_whole = history.heads(), history.cut(), entry_range == ALL_ENTRIES
    hidden, entry_range = hiding_cut(entry_range, cut), after_cut(entry_range, cut)
    heads = [head for head in (*inside, *anchored) if entry_range.contains(head.pos)]
    handovers = [published for published in public.handovers if entry_range.contains(published.pos)]
    rows = history.tree_rows(entry_range.first, entry_range.last)
    wanted = {head.pos for head in heads} | {published.pos for published in handovers}
    wanted |= {row.pos for row in rows}
    with parallel_walk(history, entry_range, wanted, workers) as entries:
        batches, batch_flaw = _check_manifests(history) if is_whole else (0, None)
        snapshots, snapshot_flaw = _check_snapshots(history) if is_whole else (0, None)
        walked = entries()
    count = walked.last - entry_range.first + 1
    flaw = (
        _check_columns(history)
        or (cut_flaw(history, cut, public, (*inside, *anchored)) if cut else None)
        or walked.flaw
        or heads_flaw(heads, walked, public)
        or handover_flaw(handovers, walked)
        or lost_flaw(inside, [head for head in anchored if entry_range.contains(head.pos)])
        or (end_flaw(history.recorded_end(), walked) if is_whole else None)
        or checkpoints_flaw(rows, walked, public)
        or batch_flaw
        or snapshot_flaw
    )
    return Report(count, len(inside), batches, snapshots, walked.numbers.gaps(), flaw, hidden)


def _check_columns(history: History) -> Flaw | None:
    """Columns are generated from the body as defined, or stored and compared with it."""
    if history.generated_columns() in (None, decision_table.TABLE):
        return None
    return Flaw(0, "the table of decisions was redefined: its columns do not come from the bodies")


# --- manifests --------------------------------------------------------------------------------


def _check_manifests(history: History) -> tuple[int, Flaw | None]:
    count, position, prev = 0, 0, b""
    cut = history.cut()
    if cut is not None and (first := first_manifest(history, cut)) is not None:
        position, prev = first.p_from - 1, first.prev
    for manifest in history.manifests(position + 1):
        what = manifest_flaw(manifest, position + 1, prev)
        if what:
            return count, Flaw(position + 1, what)
        count, position, prev = count + 1, manifest.p_to, manifest.head
    checkpoint = history.checkpoint()
    if checkpoint is not None and (checkpoint.position, checkpoint.head) != (position, prev):
        return count, Flaw(position, "the checkpoint does not match the last manifest")
    return count, None


def manifest_flaw(manifest: Manifest, expected: int, prev: bytes) -> str:
    if manifest.p_from != expected:
        return f"positions {expected} to {manifest.p_from - 1} are missing"
    span = (manifest.p_from, manifest.p_to)
    if sum(r.last - r.first + 1 for r in manifest.ranges) != span[1] - span[0] + 1:
        return f"the ranges of the manifest at {expected} do not match its positions"
    again = chained(prev, span, manifest.ranges, manifest.merkle_root, manifest.state_digest)
    if (manifest.prev, manifest.head) != (prev, again):
        return f"the manifest at {expected} does not match its chain hash"
    return ""


def _check_snapshots(history: History) -> tuple[int, Flaw | None]:
    count = 0
    for found in history.snapshots():
        try:
            opened(history, found)
        except StateDamaged:
            at = found.position
            return count, Flaw(at, f"the snapshot at position {at} is corrupted")
        count += 1
    return count, None


# --- published and not logged -----------------------------------------------------------------


def unlogged_flaw(gaps: Sequence[Gap], published: Mapping[str, int]) -> Flaw | None:
    """A gap is a drop, unless the stream still holds the entry: then it was removed from the log.

    `published` are the ids in the stream of decisions, and their sequences.
    """
    for gap in gaps:
        for event_id in gap.ids():
            if event_id in published:
                what = f"{event_id} is #{published[event_id]} of the stream and not in the log"
                return Flaw(0, what)
    return None
