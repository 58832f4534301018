"""Checks signed heads against the result of a chain walk."""

from collections.abc import Iterable, Sequence

from joulie_audit.chain.entries import Flaw, WalkResult
from joulie_projections.chain.head import Head
from joulie_projections.chain.keyring import Ring
from joulie_projections.chain.signed import Handover

MAX_LISTED = 5  # missing heads that a message lists


def heads_flaw(heads: Sequence[Head], walked: WalkResult, ring: Ring) -> Flaw | None:
    """Checks heads from the database and heads that are kept outside it."""
    if at := walked.tree.wrong_tile:
        return Flaw(at, f"the tile of the tree up to entry {at} does not fit the entries")
    for found in heads:
        at = found.pos
        if what := ring.flaw_of(found):
            return Flaw(at, what)
        if flaw := _differs(f"a signed head covers entry {at}", at, found.hash, walked):
            return flaw
        if walked.tree.at.get(at) != found.checkpoint.root:
            return Flaw(at, f"the entries up to {at} do not lead to the root of their signed head")
    if (head := ring.unconfirmed(heads, walked.last)) is not None:
        return Flaw(head.pos, unconfirmed(head, ring))
    return None


def unconfirmed(head: Head, ring: Ring) -> str:
    key = ring.key(head.key_id)
    since = key.since if key else 0
    return (
        f"the head at {head.pos} is signed by key {head.key_id}, which is compromised since entry "
        f"{since}, and no head of another key covers it"
    )


def handover_flaw(handovers: Iterable[Handover], walked: WalkResult) -> Flaw | None:
    """Checks that each key handover names the hash of its entry."""
    for handover in handovers:
        what = f"a key handover covers entry {handover.pos}"
        if flaw := _differs(what, handover.pos, handover.hash, walked):
            return flaw
    return None


def _differs(what: str, at: int, signed: bytes, walked: WalkResult) -> Flaw | None:
    if at > walked.last:
        return Flaw(walked.last + 1, f"{what}, but the log ends at {walked.last}")
    if walked.hashes.get(at) != signed:
        return Flaw(at, f"entry {at} does not match its signed head")
    return None


def lost_flaw(inside: Sequence[Head], anchored: Sequence[Head]) -> Flaw | None:
    """The database keeps every head that it anchored: a missing one was removed."""
    known = {head.pos for head in inside}
    missing = sorted({head.pos for head in anchored} - known)
    if not missing:
        return None
    count = f"{len(missing)} signed head{'' if len(missing) == 1 else 's'}"
    what = f"the database lost {count} that {'is' if len(missing) == 1 else 'are'} kept elsewhere"
    return Flaw(missing[0], f"{what}: at entry {_listed(missing)}")


def unkept_flaw(inside: Sequence[Head], kept: Sequence[Head], named: str) -> Flaw | None:
    """`inside` are the heads that a place outside of the database ought to hold."""
    known = {head.pos for head in kept}
    missing = [head.pos for head in inside if head.pos < max(known) and head.pos not in known]
    if not missing:
        return None
    count = "1 signed head is" if len(missing) == 1 else f"{len(missing)} signed heads are"
    return Flaw(missing[0], f"{count} missing from {named}: at entry {_listed(missing)}")


def _listed(entries: Sequence[int]) -> str:
    more = len(entries) - MAX_LISTED
    return ", ".join(map(str, entries[:MAX_LISTED])) + (f" and {more} more" if more > 0 else "")


def end_flaw(logged_to: int, last: int) -> Flaw | None:
    """Compares the end of the log with the end that the writer recorded."""
    if logged_to == last:
        return None
    what = f"the log ends at {last}, but its writer recorded entry {logged_to} as the last"
    return Flaw(min(logged_to, last) + 1, what)
