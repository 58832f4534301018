"""Where a log may be cut: at an entry that is archived row by row and covered by a signed head."""

from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from joulie_audit.archive.part_tables import ASIDE, poison_of
from joulie_audit.archive.parts import Archive, Part
from joulie_audit.verify.archive_parts import (
    linked_hashes,
    require_facts_fit,
    require_heads_fit,
    ring_with_keys,
)
from joulie_bus.errors import NotTrimmed
from joulie_bus.streams.cut_requests import MOST_SET_ASIDE, CutRequest
from joulie_projections.chain.head import Head
from joulie_projections.chain.keyring import Ring
from joulie_projections.fold.commit import Cut
from joulie_projections.fold.manifest import Manifest
from joulie_projections.history.asked_cut import is_at
from joulie_projections.history.history import History


class CutOptions(NamedTuple):
    """How far to cut, and the name to record."""

    before: int  # data signed or committed later stays
    by: str
    for_room: bool = False  # less than was asked for is kept


class CutEvidence(NamedTuple):
    """What a cut requires besides the log itself."""

    archive: Archive
    anchored: Sequence[Head]  # kept outside the database
    public: Ring


class _CutPoint(NamedTuple):
    """The head and the manifest that a cut would name."""

    head: Head
    manifest: Manifest


def next_cut(history: History, evidence: CutEvidence, options: CutOptions) -> CutRequest | None:
    """The newest cut that is allowed, after the archive was read again; None: nothing to cut."""
    before, archive = history.cut(), evidence.archive
    found = _newest_cut_point(history, evidence, options.before)
    if found is None or (before and _is_same_point(before, found)):
        return None
    log = _require_log_archived(history, evidence, before.pos if before else 1, found.head.pos)
    facts = _require_facts_archived(history, archive, before, found.manifest.p_to)
    return CutRequest(
        pos=found.head.pos,
        hash=found.head.hash,
        p_to=found.manifest.p_to,
        manifest_head=found.manifest.head,
        log_seal=log.seal,
        facts_seal=facts.seal,
        by=options.by,
        for_room=options.for_room,
    )


def _is_same_point(cut: Cut, found: _CutPoint) -> bool:
    return (cut.pos, cut.p_to) == (found.head.pos, found.manifest.p_to)


def _newest_cut_point(history: History, evidence: CutEvidence, before: int) -> _CutPoint | None:
    archive = evidence.archive
    log_to = archive.log[-1][1].last if archive.log else 0
    facts_to = archive.facts[-1][1].last if archive.facts else 0
    anchored, due = set(evidence.anchored), history.oldest_due()
    allowed = (
        head
        for head in reversed(history.heads())
        if head.pos <= log_to
        and head.signed_at <= before
        and (due is None or head.pos < due)
        and head in anchored
        and evidence.public.stands_alone(head)
    )
    head = next(allowed, None)
    manifest = _manifest_at(history, min(facts_to, history.position_by(before)))
    previous = history.cut()
    if head is None or manifest is None:
        return None
    is_backwards = previous is not None and (
        head.pos < previous.pos or manifest.p_to < previous.p_to
    )
    return None if is_backwards else _CutPoint(head, manifest)


def _manifest_at(history: History, position: int) -> Manifest | None:
    """The last manifest up to there, and never beyond the newest snapshot.

    At a snapshot if one exists, so that the rest of the log folds without the archive.
    """
    starts = history.starts()
    at = max((start for start in starts if start <= position), default=0)
    if not at:
        at = min(position, starts[-1] if starts else 0)
    whole = (each for each in history.manifests_back(at) if each.p_to <= at)
    return next(whole, None)


# --- comparing with the archive ---------------------------------------------------------------


def _require_log_archived(history: History, evidence: CutEvidence, first: int, last: int) -> Part:
    """Compares entry by entry and head by head; returns the part with the last entry."""
    archive, holder = evidence.archive, None
    signed = evidence.public.valid(history.heads())
    for place, part in archive.log:
        if part.last < first or part.first > last:
            continue
        found, holder = archive.read_log(place, part), part
        ring = ring_with_keys(str(place), found.keys, evidence.public)
        hashes = linked_hashes(str(place), found, found.entries[0].prev)
        require_heads_fit(str(place), found.heads, hashes, ring)
        low, high = max(first, part.first), min(last, part.last)
        kept = found.entries[low - part.first : high - part.first + 1]
        inside = {head for head in signed if low <= head.pos <= high}
        if list(history.entries(low, high)) != kept or not inside <= set(found.heads):
            raise _differs(str(place), f"entries {low} to {high}")
    if holder is None:
        raise NotTrimmed(f"{archive.path} has no part with entry {last}. Nothing was deleted.")
    return holder


def _require_facts_archived(history: History, archive: Archive, cut: Cut | None, last: int) -> Part:
    """Compares manifests and Merkle roots; returns the last part."""
    first, holder = cut.p_to if cut else 1, None
    for place, part in archive.facts:
        if part.last < first or part.first > last:
            continue
        found, holder = archive.read_facts(place, part), part
        require_facts_fit(str(place), found, (part.first - 1, part.last), found.manifests[0].prev)
        kept = [each for each in found.manifests if first <= each.p_to <= last]
        here = list(history.manifests(kept[0].p_from, kept[-1].p_to)) if kept else []
        if here != kept:
            raise _differs(str(place), f"positions {part.first} to {min(last, part.last)}")
    if holder is None:
        raise NotTrimmed(f"{archive.path} has no part with position {last}. Nothing was deleted.")
    return holder


def asked_cut(history: History, evidence: CutEvidence, options: CutOptions) -> CutRequest | None:
    """The next cut, with the quarantined messages before it that the archive holds, too. Without a
    next one, the newest one again if it left some of them."""
    found = next_cut(history, evidence, options) or _cut_again(history, options)
    if found is None:
        return None
    aside = _set_aside(history, evidence.archive, found.p_to)
    is_again = is_at(history.cut(), found)
    return None if is_again and not aside else msgspec.structs.replace(found, aside=aside)


def _cut_again(history: History, options: CutOptions) -> CutRequest | None:
    if (cut := history.cut()) is None:
        return None
    return CutRequest(
        pos=cut.pos,
        hash=cut.hash,
        p_to=cut.p_to,
        manifest_head=cut.manifest_head,
        log_seal=cut.log_seal,
        facts_seal=cut.facts_seal,
        by=options.by,
    )


def _set_aside(history: History, archive: Archive, last: int) -> list[int]:
    """Quarantined positions up to `last` that database and archive hold."""
    held = {each.position for each in history.quarantined() if each.position <= last}
    if not held:
        return []
    parts = (each for each in archive.facts if each[1].first <= last)
    found = (poison_of(archive.read_table(place, part, ASIDE)) for place, part in parts)
    archived = {poison.position for some in found for poison in some}
    return sorted(held & archived)[:MOST_SET_ASIDE]


def _differs(place: str, what: str) -> NotTrimmed:
    return NotTrimmed(
        f"{place} and the database differ at {what}. Nothing was deleted. "
        "`joulie verify --archive` reports which of the two was changed."
    )
