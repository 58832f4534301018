"""Checks the signed checkpoints of the Merkle tree against the result of a chain walk."""

from collections.abc import Sequence

from joulie_audit.chain.entries import Flaw, WalkResult
from joulie_projections.chain.keyring import Key, Ring
from joulie_projections.chain.note import (
    LOG_KEY,
    LogCheckpoint,
    NotANote,
    VerifierKey,
    parse_checkpoint,
)
from joulie_projections.history.history import TreeRow


def checkpoints_flaw(rows: Sequence[TreeRow], walked: WalkResult, ring: Ring) -> Flaw | None:
    if at := walked.tree.wrong_tile:
        return Flaw(at, f"the tile of the tree up to entry {at} does not fit the entries")
    for row in rows:
        if what := _flaw_of(row, walked, ring):
            return Flaw(row.pos, f"the checkpoint at entry {row.pos} {what}")
    return None


def _flaw_of(row: TreeRow, walked: WalkResult, ring: Ring) -> str:
    try:
        found = parse_checkpoint(row.note)
    except NotANote as error:
        return f"is none: {error}"
    if signer_of(found, row.pos, ring) is None:
        return "is not signed by a key of this log"
    if row.pos > walked.last:
        return f"covers more than the log, which ends at {walked.last}"
    if found.size != row.pos - row.base or walked.tree.at.get(row.pos) != found.root:
        return "does not fit the entries"
    return ""


def signer_of(checkpoint: LogCheckpoint, pos: int, ring: Ring) -> Key | None:
    """The key of the log that signed the checkpoint, and may sign at this entry."""
    for key in ring.keys:
        is_in_range = key.after < pos <= key.until
        if key.raw and is_in_range and checkpoint.is_signed_by(log_key(checkpoint.origin, key)):
            return key
    return None


def log_key(origin: str, key: Key) -> VerifierKey:
    return VerifierKey(origin, LOG_KEY, key.raw)
