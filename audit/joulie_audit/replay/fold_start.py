"""Where folding starts: at the newest intact snapshot, or at the first position."""

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
            return FoldedState(cluster_state_of(rows), cursor.position, cursor.digests, set_aside)
    if (cut := history.cut()) is not None:
        first = min((at for at in history.starts() if at >= cut.p_to), default=None)
        hint = f" Positions after {first} can be read without it." if first else ""
        raise NotInTheLog(
            f"Position {position} cannot be reached: {trimmed_hint(cut)}{hint} "
            "Nothing was computed."
        )
    return FoldedState(set_aside=set_aside)


def opened(history: History, snapshot: Snapshot) -> tuple[FoldCursor, list[Row]]:
    """Raises StateDamaged unless its bytes, its rows and the manifest there agree.

    Rows of another fold version than the manifest's have another digest: only the position in the
    chain is compared.
    """
    cursor, rows = unpack(snapshot)
    at = snapshot.position
    manifest = next(history.manifests(at, at), None)
    if manifest is None or (manifest.p_to, manifest.head) != (at, cursor.head):
        raise StateDamaged("The snapshot", at)
    is_comparable = manifest.fold_version == snapshot.fold_version
    if is_comparable and manifest.state_digest != state_digest(cursor.digests):
        raise StateDamaged("The snapshot", at)
    return cursor, rows
