"""Proves that an entry is in the log, and that one head extends another.

The proof of an entry is its path in the Merkle tree up to the root of a signed checkpoint, in the
form of C2SP (`tlog-proof`): it discloses no other entry. `docs/check_proof.py` checks a proof
without any Joulie code, and so does any program that knows the form.
"""

from collections.abc import Sequence
from typing import NamedTuple

from joulie_audit.chain.heads import unconfirmed
from joulie_audit.chain.log_start import trimmed_hint
from joulie_bus.errors import NotInTheLog
from joulie_projections.chain.entry import FIRST_PREV, chain_hash
from joulie_projections.chain.head import Head, head_in
from joulie_projections.chain.keyring import Ring
from joulie_projections.chain.merkle import is_included, leaf_of
from joulie_projections.chain.note import InclusionProof, LogCheckpoint
from joulie_projections.history.history import History
from joulie_projections.history.stored_tree import StoredTree, newest_head


def prove(history: History, position: int, ring: Ring) -> InclusionProof:
    """Leads to the head with the most cosignatures, of those that need no other head."""
    require_entry(history, position)
    heads = _heads(history, ring)
    covering = [each for each in heads if position <= each.size]
    entry = next(history.entries(position, position), None)
    if not covering or entry is None:
        raise NotInTheLog(_no_proof(position, heads))
    best = max(covering, key=lambda each: (len(each.signatures), each.size))
    proof = InclusionProof(
        at=position - 1,
        extra=entry.prev + entry.body,
        path=StoredTree(history).inclusion(position, best.size),
        checkpoint=best,
    )
    if not leads_to_checkpoint(proof):
        raise NotInTheLog(
            f"Entry {position} cannot be proved: its path does not lead to the checkpoint of "
            f"{best.size} entries. `joulie verify` reports what was changed."
        )
    return proof


def leads_to_checkpoint(proof: InclusionProof) -> bool:
    """Whether the path leads to the root. Signatures are not checked here."""
    checkpoint, leaf = proof.checkpoint, leaf_of(chain_hash(b"", proof.extra))
    return is_included(leaf, proof.at, checkpoint.size, proof.path, checkpoint.root)


def _heads(history: History, ring: Ring) -> list[LogCheckpoint]:
    """The newest head, and those that witnesses cosigned, with all their cosignatures."""
    found = dict[bytes, LogCheckpoint]()
    cosigned = (head for head in map(head_in, history.cosigned()) if head is not None)
    for head in (newest_head(history, ring), *cosigned):
        each = head.checkpoint
        if ring.stands_alone(head):
            found[each.text] = found.get(each.text, each).with_signatures(each.signatures)
    return list(found.values())


def require_entry(history: History, position: int) -> None:
    last = history.tip()
    if not last:
        raise NotInTheLog("Nothing can be proved: the log has no entries yet.")
    if not 1 <= position <= last:
        raise NotInTheLog(
            f"There is no entry {position}: the log goes from 1 to {last}. "
            "Nothing was proved. Give one of these entries."
        )
    cut = history.cut()
    if cut is not None and position < cut.pos:
        raise NotInTheLog(f"Entry {position} cannot be proved: {trimmed_hint(cut)}")


def _no_proof(position: int, heads: Sequence[LogCheckpoint]) -> str:
    signed = max((each.size for each in heads), default=0)
    return (
        f"Entry {position} is not signed yet: the newest head is at {signed}. "
        "One is signed every 10 s and at shutdown; try again then."
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
