"""Test kit: heads as a key signs them, true or not."""

from typing import Any

from joulie_projections.chain.head import Commitment, Head
from joulie_projections.chain.keyring import Ring
from joulie_projections.decision_log.anchored import Anchored
from joulie_projections.decision_log.heads import Signer
from joulie_projections.decision_log.log import DecisionLog, Signature
from joulie_projections.store.database import Place
from projections_kit import tamper

BESIDE = Signature("", 0, b"", {}, 1)


def head_at(signer: Signer, pos: int, entry_hash: bytes, now: int = 1, **more: Any) -> Head:
    """A head that the key signs of an entry; its root is of no tree unless it is given."""
    commitment = Commitment(size=pos, root=bytes(32), hash=entry_hash, signed_at=now)
    return signer.sign(commitment._replace(**more))


def with_other_signature(head: Head) -> Head:
    """The same claims, with a signature that the key did not make."""
    checkpoint = head.checkpoint
    [made] = checkpoint.signatures
    forged = checkpoint._replace(signatures=(made._replace(content=bytes(64)),))
    return Head(note=forged.note.decode())


def begun(log: DecisionLog, ring: Ring, epoch: int = 1) -> DecisionLog:
    """The log of a projector that begins in this epoch, with the heads of the database alone."""
    known = Anchored(ring)
    log.begin(epoch, log.beginning(known), known)
    return log


def insert_head(place: Place, head: Head) -> None:
    """As any process that may insert can."""
    said = head.commitment
    row = (head.id, head.pos, said.position, head.hash, head.note.encode(), b"")
    into = "INSERT INTO head (id, pos, p_to, hash, note, quota)"
    tamper(place, f"{into} VALUES (?, ?, ?, ?, ?, ?)", *row)
