"""Where folding starts: at the newest snapshot that is what was kept, or at the beginning."""

from joulie_audit.chain.log_start import trimmed
from joulie_audit.replay.fold import Past
from joulie_bus.errors import NotInTheLog, StateDamaged
from joulie_bus.runtime.logging import get_logger
from joulie_projections.fold.sequence import FoldCursor
from joulie_projections.fold.snapshots import Snapshot, unpack
from joulie_projections.history.history import History
from joulie_projections.state.rows import Row, cluster_state_of, state_digest

log = get_logger("audit")


def start_before(history: History, position: int) -> Past:
    """At that position or before it. A snapshot that is not what it was is told and left out."""
    aside, latest = history.set_aside(), position
    while (found := history.snapshot_before(latest)) is not None:
        try:
            cursor, rows = opened(history, found)
        except StateDamaged:
            log.warning("snapshot_damaged", position=found.position, use="an earlier one")
            latest = found.position - 1
        else:
            return Past(cluster_state_of(rows), cursor.position, cursor.digests, aside)
    if (cut := history.cut()) is not None:
        first = min((at for at in history.starts() if at >= cut.p_to), default=None)
        hint = f" What lies behind position {first} can be asked without it." if first else ""
        raise NotInTheLog(
            f"Position {position} cannot be folded from here: {trimmed(cut)}{hint} "
            "Nothing was computed."
        )
    return Past(aside=aside)


def opened(history: History, snapshot: Snapshot) -> tuple[FoldCursor, list[Row]]:
    """Raises StateDamaged unless its bytes, its rows and the manifest there agree.

    Rows that other folds made than the manifest's have another digest: their place in the chain is
    compared, and no more.
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
