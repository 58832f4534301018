"""Names the first place of the log that is not what it was.

Entries are hashed again along their chain, signatures are checked, heads kept outside the database
must still fit, and so must manifests and snapshots.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from joulie_audit.chain.entries import Flaw, Part, Sharing, walking
from joulie_audit.chain.heads import end_flaw, handover_flaw, heads_flaw, lost_flaw
from joulie_audit.chain.log_start import behind, cut_flaw, first_manifest, unseen
from joulie_audit.chain.sequence_gaps import Hole
from joulie_audit.replay.fold_start import opened
from joulie_bus.errors import StateDamaged
from joulie_migrations import decision_table
from joulie_projections.decision_log.keyring import Ring
from joulie_projections.decision_log.signed import Head
from joulie_projections.fold.commit import Cut
from joulie_projections.fold.manifest import Manifest, chained
from joulie_projections.history.history import History


class Report(NamedTuple):
    entries: int
    heads: int
    batches: int
    snapshots: int
    holes: Sequence[Hole]  # numbers that a replica used and that never came
    flaw: Flaw | None
    cut: Cut | None = None  # what is asked about begins in front of it: that was not looked at


EVERYTHING = Part()


def verify(
    history: History,
    public: Ring,
    anchored: Sequence[Head],
    part: Part = EVERYTHING,
    sharing: Sharing | None = None,
) -> Report:
    """`anchored` are heads from outside the database; they show what was cut off or replaced.

    By `sharing` several processes share the entries.
    """
    inside, cut, is_whole = history.heads(), history.cut(), part == EVERYTHING
    hidden, part = unseen(part, cut), behind(part, cut)
    heads = [head for head in (*inside, *anchored) if part.holds(head.pos)]
    handovers = [said for said in public.handovers if part.holds(said.pos)]
    wanted = {head.pos for head in heads} | {said.pos for said in handovers}
    with walking(history, part, wanted, sharing) as entries:
        batches, batch_flaw = _check_manifests(history) if is_whole else (0, None)
        snapshots, snapshot_flaw = _check_snapshots(history) if is_whole else (0, None)
        walked = entries()
    count = walked.last - part.first + 1
    flaw = (
        _check_columns(history)
        or (cut_flaw(history, cut, public, (*inside, *anchored)) if cut else None)
        or walked.flaw
        or heads_flaw(heads, walked, public)
        or handover_flaw(handovers, walked)
        or lost_flaw(inside, [head for head in anchored if part.holds(head.pos)])
        or (end_flaw(history.recorded_end(), walked) if is_whole else None)
        or batch_flaw
        or snapshot_flaw
    )
    return Report(count, len(inside), batches, snapshots, walked.counters.holes(), flaw, hidden)


def _check_columns(history: History) -> Flaw | None:
    """What entries are found by must be made of them as we made it, or lie there to be compared."""
    if history.generated_columns() in (None, decision_table.TABLE):
        return None
    return Flaw(0, "the table of decisions was redefined: its columns are not what bodies say")


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
        return count, Flaw(position, "the checkpoint and the last manifest do not fit together")
    return count, None


def manifest_flaw(manifest: Manifest, expected: int, prev: bytes) -> str:
    if manifest.p_from != expected:
        return f"positions {expected} to {manifest.p_from - 1} are missing"
    span = (manifest.p_from, manifest.p_to)
    if sum(r.last - r.first + 1 for r in manifest.ranges) != span[1] - span[0] + 1:
        return f"the manifest at {expected} does not count right"
    again = chained(prev, span, manifest.ranges, manifest.merkle_root, manifest.state_digest)
    if (manifest.prev, manifest.head) != (prev, again):
        return f"the manifest at {expected} is not the one that was chained"
    return ""


def _check_snapshots(history: History) -> tuple[int, Flaw | None]:
    count = 0
    for found in history.snapshots():
        try:
            opened(history, found)
        except StateDamaged:
            at = found.position
            return count, Flaw(at, f"the snapshot at position {at} is not the one that was kept")
        count += 1
    return count, None


# --- what a replica said and the log does not hold --------------------------------------------


def unlogged(holes: Sequence[Hole], said: Mapping[str, int]) -> Flaw | None:
    """A hole is a drop, unless the stream still holds what was said: then it was taken out here.

    `said` are the ids that the stream of decisions holds, and where.
    """
    for hole in holes:
        for event_id in hole.ids():
            if event_id in said:
                what = f"{event_id} is #{said[event_id]} of the stream and not in the log"
                return Flaw(0, what)
    return None
