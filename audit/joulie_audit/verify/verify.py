"""Finds the first place of the log that was changed after it was written.

Hashes the entries again along their chain, checks signatures, compares heads that are kept outside
the database, and checks manifests, snapshots, definitions and indexes.
"""

from collections.abc import Sequence
from typing import NamedTuple

from joulie_audit.chain.entries import EntryRange, Flaw, WorkerOptions, parallel_walk
from joulie_audit.chain.heads import end_flaw, handover_flaw, heads_flaw, lost_flaw
from joulie_audit.chain.log_start import after_cut, cut_flaw, first_manifest, hiding_cut
from joulie_audit.chain.promises import Unkept
from joulie_audit.replay.fold_start import opened
from joulie_audit.verify.signed_facts import signed_facts
from joulie_audit.verify.unsigned import OfOthers, of_others
from joulie_bus.errors import StateDamaged
from joulie_migrations import decision_table
from joulie_projections.chain.head import Head
from joulie_projections.chain.keyring import Ring
from joulie_projections.chain.sequence_gaps import Gap
from joulie_projections.fold.commit import Cut
from joulie_projections.fold.joins import Joins
from joulie_projections.fold.manifest import Manifest, head_after
from joulie_projections.history.history import History
from joulie_projections.history.stored_schema import IntegrityCheck, schema_flaw


class Report(NamedTuple):
    entries: int
    heads: int
    batches: int
    snapshots: int
    gaps: Sequence[Gap]  # sequence numbers that a replica used and that are not in the log
    flaw: Flaw | None
    cut: Cut | None = None  # entries before it were requested and not checked
    unkept: Sequence[Unkept] = ()  # promises of replicas
    others: OfOthers = OfOthers()  # what they added, which proves nothing

    @property
    def notes(self) -> Sequence[str]:
        return self.others.notes


ALL_ENTRIES = EntryRange()


def verify(
    history: History,
    public: Ring,
    anchored: Sequence[Head],
    entry_range: EntryRange = ALL_ENTRIES,
    workers: WorkerOptions | None = None,  # several processes that share the entries
) -> Report:
    """`anchored` are heads from outside the database: they reveal a truncated or replaced log."""
    cut, is_whole = history.cut(), entry_range == ALL_ENTRIES
    inside = [head for head in history.heads() if public.has_signed(head)]
    stored = history.count_heads()
    hidden, entry_range = hiding_cut(entry_range, cut), after_cut(entry_range, cut)
    heads = [head for head in (*inside, *anchored) if entry_range.contains(head.pos)]
    handovers = [published for published in public.handovers if entry_range.contains(published.pos)]
    wanted = {head.pos for head in heads} | {published.pos for published in handovers}
    with parallel_walk(history, entry_range, wanted, workers) as entries:
        integrity = IntegrityCheck(history.connection.engine) if is_whole else None
        batches, batch_flaw = _check_manifests(history, heads) if is_whole else (0, None)
        snapshots, snapshot_flaw = _check_snapshots(history) if is_whole else (0, None)
        walked = entries()
    count = walked.last - entry_range.first + 1
    flaw = (
        _check_columns(history)
        or (_unsigned_flaw(stored) if stored and not inside else None)
        or (cut_flaw(history, cut, public, (*inside, *anchored)) if cut else None)
        or walked.flaw
        or (_record_flaw(history, inside) if is_whole else None)
        or heads_flaw(heads, walked, public)
        or handover_flaw(handovers, walked)
        or lost_flaw(inside, [head for head in anchored if entry_range.contains(head.pos)])
        or (end_flaw(history.recorded_end, walked.last) if is_whole else None)
        or batch_flaw
        or snapshot_flaw
        or (_index_flaw(history, integrity) if integrity else None)
    )
    gaps, unkept = walked.promises.judged(walked.numbers, history)
    others = of_others(history, stored - len(inside))
    return Report(count, len(inside), batches, snapshots, gaps, flaw, hidden, unkept, others)


def _unsigned_flaw(heads: int) -> Flaw:
    """Any program may add a head that no key signed; none can change which heads are signed."""
    return Flaw(0, f"no key of this log signed any of its {heads} heads: is the key another one?")


def _record_flaw(history: History, heads: Sequence[Head]) -> Flaw | None:
    """Entries that a head signs are in the database, and the record of the end leaves them out."""
    end, last = history.recorded_end, history.last_row()
    signed = max((head.pos for head in heads), default=0)
    return end_flaw(end, last) if end < signed <= last else None


def _check_columns(history: History) -> Flaw | None:
    """Columns are generated from the body as defined, or stored and compared with it."""
    if history.generated_columns() in (None, decision_table.TABLE):
        return None
    return Flaw(0, "the table of decisions was redefined: its columns do not come from the bodies")


def _index_flaw(history: History, integrity: IntegrityCheck) -> Flaw | None:
    """Entries are read in their order here, and by indexes everywhere else."""
    if what := schema_flaw(history.connection):
        return Flaw(0, f"{what}, so readers may not find every entry, or the log is not guarded")
    if what := integrity.flaw():
        return Flaw(0, f"an index or a page of the database does not match its table: {what}")
    return None


# --- manifests --------------------------------------------------------------------------------


def _check_manifests(history: History, heads: Sequence[Head]) -> tuple[int, Flaw | None]:
    count, position, prev, joins = 0, 0, b"", Joins()
    cut, signed = history.cut(), signed_facts(history, heads)
    if cut is not None and (first := first_manifest(history, cut)) is not None:
        position, prev, joins = first.p_from - 1, first.prev, Joins.up_to(first, cut.inputs)
    for manifest in history.manifests(position + 1):
        what = manifest_flaw(manifest, position + 1, prev) or joins.flaw(manifest)
        what = what or signed.flaw_of(manifest)
        if what:
            return count, Flaw(position + 1, what)
        count, position, prev = count + 1, manifest.p_to, manifest.head
    checkpoint = history.checkpoint()
    if checkpoint is not None and (checkpoint.position, checkpoint.head) != (position, prev):
        return count, Flaw(position, "the checkpoint does not match the last manifest")
    end = joins.end_flaw(checkpoint.inputs) if checkpoint is not None else ""
    if what := end or signed.flaw_behind(position):
        return count, Flaw(position, what)
    return count, None


def manifest_flaw(manifest: Manifest, expected: int, prev: bytes) -> str:
    if manifest.p_from != expected:
        return f"positions {expected} to {manifest.p_from - 1} are missing"
    positions = manifest.p_to - manifest.p_from + 1
    if sum(place.count for place in manifest.ranges) != positions:
        return f"the ranges of the manifest at {expected} do not match its positions"
    if manifest.prev != prev or manifest.head != head_after(manifest):
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
