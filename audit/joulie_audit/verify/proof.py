"""Proves that an entry is in the log, and that one head extends another.

The log is one hash chain, so the proof that entry N comes before a signed head is the list of
bodies from N to that head. A head is signed at least every 1,000 entries, which bounds the length
of a proof. `docs/check_proof.py` checks a proof without any Joulie code.
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import msgspec

from joulie_audit.chain.heads import unconfirmed
from joulie_audit.chain.log_start import trimmed_hint
from joulie_bus.errors import NotInTheLog
from joulie_projections.chain.entry import FIRST_PREV, chain_hash
from joulie_projections.chain.keyring import Ring
from joulie_projections.chain.signed import Handover, Head
from joulie_projections.history.history import History

FORMAT = "joulie-proof/1"


class Proof(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Bytes are base64 in JSON. Handovers are present if the log has had several keys."""

    format: str
    position: int
    prev: bytes  # hash of the entry before it
    bodies: list[bytes]  # of the entry and all that follow, up to the head
    head: Head
    handovers: list[Handover] = []


def prove(
    history: History, position: int, ring: Ring | None = None, anchored: Sequence[Head] = ()
) -> Proof:
    """Leads to the first head from the entry on; with a ring, to one that needs no other head."""
    heads = sorted((*history.heads(), *anchored), key=lambda head: head.pos)
    if ring is not None:
        heads = [head for head in heads if ring.stands_alone(head)]
    head = next((head for head in heads if head.pos >= position), None)
    entries = list(history.entries(position, head.pos)) if head else []
    if head is None or not entries or entries[0].pos != position:
        raise NotInTheLog(_no_proof(history, position, heads))
    bodies = [entry.body for entry in entries]
    proof = Proof(
        format=FORMAT,
        position=position,
        prev=entries[0].prev,
        bodies=bodies,
        head=head,
        handovers=list(ring.handovers) if ring else [],
    )
    if not leads_to_head(proof):
        raise NotInTheLog(
            f"Entry {position} cannot be proved: the chain from it does not lead to the head at "
            f"{head.pos}. `joulie verify` reports what was changed."
        )
    return proof


def leads_to_head(proof: Proof) -> bool:
    """Whether the chain leads to the head. The signature is not checked here."""
    end = proof.position + len(proof.bodies) - 1
    return end == proof.head.pos and _end_of(proof.prev, proof.bodies) == proof.head.hash


def _end_of(prev: bytes, bodies: Iterable[bytes]) -> bytes:
    for body in bodies:
        prev = chain_hash(prev, body)
    return prev


def _no_proof(history: History, position: int, heads: Sequence[Head]) -> str:
    last = history.tip()
    if not last:
        return "Nothing can be proved: the log has no entries yet."
    if not 1 <= position <= last:
        return f"There is no entry {position}: the log goes from 1 to {last}."
    cut = history.cut()
    if cut is not None and position < cut.pos:
        return f"Entry {position} cannot be proved: {trimmed_hint(cut)}"
    signed = heads[-1].pos if heads else 0
    return (
        f"Entry {position} is not signed yet: the newest head is at {signed}. "
        "A head is signed every 10 s and at shutdown; try again then."
    )


class Difference(NamedTuple):
    """Two heads of a log; `flaw` is the reason why the later one does not extend the earlier."""

    first: Head
    last: Head
    flaw: str

    @property
    def entries(self) -> int:
        return self.last.pos - self.first.pos


def difference(history: History, public: Ring, one: Head, other: Head) -> Difference:
    """Checks whether the log of the later head extends the log of the earlier one."""
    first, last = sorted((one, other), key=lambda head: head.pos)
    return Difference(first, last, _flaw(history, public, first, last))


def _flaw(history: History, public: Ring, first: Head, last: Head) -> str:
    if what := _signature_flaw(public, first, last):
        return what
    if first.pos == last.pos:
        same = first.hash == last.hash
        return "" if same else f"two heads of entry {first.pos} that differ: the log was forked"
    if _hash_at(history, first.pos) != first.hash:
        return f"entry {first.pos} of this log does not match the first head"
    end, at = first.hash, first.pos
    for entry in history.entries(first.pos + 1, last.pos):
        end, at = chain_hash(end, entry.body), at + 1
        if entry.pos != at:
            return f"entry {at} is missing"
    if (end, at) != (last.hash, last.pos):
        return f"the entries from {first.pos + 1} on do not lead to the head at {last.pos}"
    return ""


def _signature_flaw(ring: Ring, *heads: Head) -> str:
    for head in heads:
        if ring.key(head.key_id) is None:
            return f"the head at {head.pos} is signed by another key ({head.key_id})"
        if what := ring.flaw_of(head):
            return what
    unconfirmed_head = ring.unconfirmed(heads, max(head.pos for head in heads))
    return unconfirmed(unconfirmed_head, ring) if unconfirmed_head is not None else ""


def _hash_at(history: History, position: int) -> bytes:
    if position == 0:
        return FIRST_PREV
    entry = next(history.entries(position, position), None)
    return chain_hash(entry.prev, entry.body) if entry else b""
