"""Where folding starts: at the newest intact snapshot, or at the first position."""

from collections.abc import Sequence

from joulie_audit.chain.log_start import trimmed_hint
from joulie_audit.recompute.fold import FoldedState
from joulie_bus.errors import NotInTheLog, StateDamaged
from joulie_bus.runtime.logging import get_logger
from joulie_projections.fold.commit import Snapshot
from joulie_projections.fold.sequence import FoldCursor
from joulie_projections.fold.snapshots import unpack
from joulie_projections.history.history import History
from joulie_projections.state.rows import Row, cluster_state_of, state_digest

log = get_logger("audit")


def start_before(history: History, position: int) -> FoldedState:
    """Starts at that position or before it. A damaged snapshot is logged and skipped."""
    set_aside, latest = history.set_aside(), position
    while (found := history.snapshot_before(latest)) is not None:
        try:
            cursor, rows = opened(history, found)
        except StateDamaged:
            log.warning("snapshot_damaged", position=found.position, use="an earlier one")
            latest = found.position - 1
        else:
            return FoldedState(cluster_state_of(rows), cursor, set_aside)
    if (cut := history.cut()) is not None:
        first = min((at for at in history.starts() if at >= cut.p_to), default=None)
        hint = f" Positions after {first} can be read without it." if first else ""
        raise NotInTheLog(
            f"Position {position} cannot be reached: {trimmed_hint(cut)}{hint} "
            "Nothing was computed."
        )
    return FoldedState(set_aside=set_aside)


def newest_start(history: History, positions: Sequence[int]) -> Snapshot | None:
    """The newest of the snapshots at these positions that is intact."""
    for position in sorted(positions, reverse=True):
        found = history.snapshot_before(position)
        if found is not None and found.position == position and _is_intact(history, found):
            return found
    return None


def _is_intact(history: History, snapshot: Snapshot) -> bool:
    try:
        opened(history, snapshot)
    except StateDamaged:
        log.warning("snapshot_damaged", position=snapshot.position, use="an earlier one")
        return False
    return True


def opened(history: History, snapshot: Snapshot) -> tuple[FoldCursor, list[Row]]:
    """Raises StateDamaged unless its bytes, its rows and the manifest there agree."""
    cursor, rows = unpack(snapshot)
    at = snapshot.position
    manifest = next(history.manifests(at, at), None)
    recorded = manifest and (manifest.p_to, manifest.head, manifest.state_digest)
    if recorded != (at, cursor.head, state_digest(cursor.digests)):
        raise StateDamaged("The snapshot", at)
    return cursor, rows
