"""The start of a trimmed log: an entry that a signed head covers, and a manifest.

The database holds nothing before the newest cut; an archive does. The cut names the entry and the
manifest and carries the signature of the head, so a cut without a valid signature is a flaw.
"""

from collections.abc import Sequence

from joulie_audit.chain.entries import EntryRange, Flaw
from joulie_audit.chain.heads import unconfirmed
from joulie_projections.chain.entry import chain_hash
from joulie_projections.chain.head import Head, head_in
from joulie_projections.chain.keyring import Ring
from joulie_projections.fold.commit import Cut
from joulie_projections.fold.manifest import Manifest
from joulie_projections.history.history import History


def signed_head_of(cut: Cut) -> Head | None:
    """None if the cut carries none of its entry."""
    found = head_in(cut.note)
    return found if found is not None and (found.pos, found.hash) == (cut.pos, cut.hash) else None


def trimmed_hint(cut: Cut) -> str:
    """For messages: where the log starts, and how to read what was trimmed."""
    return (
        f"the log was trimmed and starts at entry {cut.pos} and position {cut.p_to}. Give "
        "--archive DIR, or set ARCHIVE_DIR, to read the older part from an archive."
    )


def after_cut(entry_range: EntryRange, cut: Cut | None) -> EntryRange:
    """The part of `entry_range` that the database holds: it starts after the entry of the cut."""
    return (
        entry_range
        if cut is None or entry_range.first > cut.pos
        else entry_range._replace(first=cut.pos + 1)
    )


def hiding_cut(entry_range: EntryRange, cut: Cut | None) -> Cut | None:
    """The cut, if it hides a part of `entry_range`."""
    return cut if cut is not None and entry_range.first <= cut.pos else None


def cut_flaw(history: History, cut: Cut, ring: Ring, heads: Sequence[Head]) -> Flaw | None:
    """Checks the cut against the signature that it carries, and the entry and manifest it names.

    `heads` are all known heads: none may sign a different entry at the cut, and a later one
    confirms a cut that a compromised key signed.
    """
    at, signed = cut.pos, signed_head_of(cut)
    if any(head.pos == at and head.hash != cut.hash for head in heads):
        return Flaw(at, f"entry {at}, where the log was cut, does not match its signed head")
    if signed is None or ring.flaw_of(signed):
        return Flaw(at, f"the log was cut at entry {at}, but no key of this log signed its head")
    if ring.unconfirmed([signed, *heads], history.tip()) is signed:
        return Flaw(at, f"the log was cut at entry {at}, and {unconfirmed(signed, ring)}")
    entry = history.entry(at)
    if entry is None:
        return Flaw(at, f"entry {at}, where the log was cut, is missing")
    if entry.hash != cut.hash or chain_hash(entry.prev, entry.body) != cut.hash:
        return Flaw(at, f"entry {at}, where the log was cut, does not match its signed head")
    return _manifest_flaw(first_manifest(history, cut), cut)


def first_manifest(history: History, cut: Cut) -> Manifest | None:
    return next(history.manifests(cut.p_to, cut.p_to), None)


def _manifest_flaw(found: Manifest | None, cut: Cut) -> Flaw | None:
    if found is None or (found.p_to, found.head) != (cut.p_to, cut.manifest_head):
        what = f"the manifest at {cut.p_to}, where the log was cut, does not match the cut"
        return Flaw(cut.p_to, what)
    return None
