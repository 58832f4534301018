"""Where a log may be cut: what stands in the archive, row by row, and what a head has signed."""

import contextlib
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import msgspec

from joulie_audit.archive.parts import ASIDE, Archive, Part, poison_of
from joulie_audit.verify.verify_archive import facts_fit, keys_known, log_fits
from joulie_bus.errors import NotTrimmed
from joulie_bus.streams.records import Record
from joulie_bus.streams.subjects import Stream
from joulie_projections.decision_log.keyring import Ring
from joulie_projections.decision_log.signed import Head, decode_any
from joulie_projections.fold.commit import Cut, Input, Inputs
from joulie_projections.fold.manifest import Manifest
from joulie_projections.history.history import History


def heads_of(records: Iterable[Record]) -> list[Head]:
    """Of their stream; what else was published there is no place to cut."""
    found: list[Head] = []
    for record in records:
        with contextlib.suppress(msgspec.DecodeError):
            said = decode_any(record.data)
            found += [said] if isinstance(said, Head) else []
    return found


class Wish(NamedTuple):
    """How far to cut, when, and in whose name."""

    before: int  # nothing that was signed or committed later is cut
    now: int
    by: str


class Grounds(NamedTuple):
    """What a cut rests on, beside the log itself."""

    archive: Archive
    anchored: Sequence[Head]  # kept outside the database
    public: Ring
    due: int | None  # the entry of the oldest answer that an outcome is still to name


class _Found(NamedTuple):
    """What a cut would name."""

    head: Head
    manifest: Manifest


def next_cut(history: History, on: Grounds, wish: Wish) -> Cut | None:
    """The farthest one that is allowed, after the archive was read again; None: nothing to cut."""
    before, archive = history.cut(), on.archive
    found = _place(history, on, wish.before)
    if found is None or (before and _is_reached(before, found)):
        return None
    log = _log_holds(history, on, before.pos if before else 1, found.head.pos)
    facts, inputs = _facts_hold(history, archive, before, found.manifest.p_to)
    return Cut(
        number=before.number + 1 if before else 1,
        pos=found.head.pos,
        hash=found.head.hash,
        p_to=found.manifest.p_to,
        manifest_head=found.manifest.head,
        log_seal=log.seal,
        facts_seal=facts.seal,
        inputs=inputs,
        signed_at=found.head.signed_at,
        key_id=found.head.key_id,
        signature=found.head.signature,
        made_at=wish.now,
        made_by=wish.by,
    )


def _is_reached(cut: Cut, found: _Found) -> bool:
    return (cut.pos, cut.p_to) == (found.head.pos, found.manifest.p_to)


def _place(history: History, on: Grounds, before: int) -> _Found | None:
    archive = on.archive
    log_to = archive.log[-1][1].last if archive.log else 0
    facts_to = archive.facts[-1][1].last if archive.facts else 0
    anchored = {(head.pos, head.hash) for head in on.anchored}
    allowed = (
        head
        for head in reversed(history.heads())
        if head.pos <= log_to
        and head.signed_at <= before
        and (on.due is None or head.pos < on.due)
        and (head.pos, head.hash) in anchored
        and on.public.stands_alone(head)
    )
    head = next(allowed, None)
    manifest = _manifest_at(history, min(facts_to, history.position_by(before)))
    held = history.cut()
    if head is None or manifest is None:
        return None
    is_back = held is not None and (head.pos < held.pos or manifest.p_to < held.p_to)
    return None if is_back else _Found(head, manifest)


def _manifest_at(history: History, position: int) -> Manifest | None:
    """The last one up to there, and never beyond the newest snapshot: the rest starts at one.

    At a snapshot if there is one up to there, so that the rest can be folded without the archive.
    """
    starts = history.starts()
    at = max((start for start in starts if start <= position), default=0)
    if not at:
        at = min(position, starts[-1] if starts else 0)
    whole = (each for each in history.manifests_back(at) if each.p_to <= at)
    return next(whole, None)


# --- what the archive holds -------------------------------------------------------------------


def _log_holds(history: History, on: Grounds, first: int, last: int) -> Part:
    """Entry by entry, and head by head; the part that holds the last one."""
    archive, holder, signed = on.archive, None, history.heads()
    for place, part in archive.log:
        if part.last < first or part.first > last:
            continue
        found, holder = archive.read_log(place, part), part
        ring = keys_known(str(place), found, on.public)
        log_fits(str(place), found, found.entries[0].prev, ring)
        low, high = max(first, part.first), min(last, part.last)
        kept = found.entries[low - part.first : high - part.first + 1]
        inside = {head for head in signed if low <= head.pos <= high}
        if list(history.entries(low, high)) != kept or not inside <= set(found.heads):
            raise _differs(str(place), f"entries {low} to {high}")
    if holder is None:
        raise NotTrimmed(f"{archive.path} has no part with entry {last}. Nothing was deleted.")
    return holder


def _facts_hold(
    history: History, archive: Archive, cut: Cut | None, last: int
) -> tuple[Part, Inputs]:
    """Manifest by manifest, the facts of each by its root; and how far they read each stream."""
    first = cut.p_to if cut else 1
    inputs, holder = dict(cut.inputs) if cut else {}, None
    for place, part in archive.facts:
        if part.last < first or part.first > last:
            continue
        found, holder = archive.read_facts(place, part), part
        facts_fit(str(place), found, part.first - 1, found.manifests[0].prev)
        kept = [each for each in found.manifests if first <= each.p_to <= last]
        here = list(history.manifests(kept[0].p_from, kept[-1].p_to)) if kept else []
        if here != kept:
            raise _differs(str(place), f"positions {part.first} to {min(last, part.last)}")
        created = {Stream(name): value for name, value in part.created.items()}
        for each in (each for manifest in kept for each in manifest.ranges):
            inputs[each.stream] = Input(created.get(each.stream, ""), each.last)
    if holder is None:
        raise NotTrimmed(f"{archive.path} has no part with position {last}. Nothing was deleted.")
    return holder, inputs


def set_aside_in(archive: Archive, last: int) -> list[int]:
    """Positions up to there at which the archive, too, holds what was set aside."""
    parts = (each for each in archive.facts if each[1].first <= last)
    found = (poison_of(archive.read_table(place, part, ASIDE)) for place, part in parts)
    return [poison.position for some in found for poison in some if poison.position <= last]


def _differs(place: str, what: str) -> NotTrimmed:
    return NotTrimmed(
        f"{place} and the database differ at {what}. Nothing was deleted. "
        "`joulie verify --archive` says which of the two is not what was written."
    )
