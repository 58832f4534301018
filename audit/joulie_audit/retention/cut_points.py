"""Where a log may be cut: at an entry that is archived row by row and covered by a signed head."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from joulie_audit.archive.parts import ASIDE, Archive, Part, poison_of
from joulie_audit.verify.verify_archive import require_facts_fit, require_log_fits, ring_with_keys
from joulie_bus.errors import NotTrimmed
from joulie_bus.streams.records import Record
from joulie_bus.streams.subjects import Stream
from joulie_projections.chain.keyring import Ring
from joulie_projections.chain.signed import Head, statement_in
from joulie_projections.fold.commit import Cut, Input, Inputs
from joulie_projections.fold.manifest import Manifest
from joulie_projections.history.history import History


def heads_of(records: Iterable[Record]) -> list[Head]:
    """The heads among the records of their stream; other messages are skipped."""
    statements = (statement_in(record.data) for record in records)
    return [each for each in statements if isinstance(each, Head)]


class CutOptions(NamedTuple):
    """How far to cut, the current time, and the name to record."""

    before: int  # data signed or committed later stays
    now: int
    by: str


class CutEvidence(NamedTuple):
    """What a cut requires besides the log itself."""

    archive: Archive
    anchored: Sequence[Head]  # kept outside the database
    public: Ring
    due: int | None  # the entry of the oldest decision whose outcome is pending


class _CutPoint(NamedTuple):
    """The head and the manifest that a cut would name."""

    head: Head
    manifest: Manifest


def next_cut(history: History, evidence: CutEvidence, options: CutOptions) -> Cut | None:
    """The newest cut that is allowed, after the archive was read again; None: nothing to cut."""
    before, archive = history.cut(), evidence.archive
    found = _newest_cut_point(history, evidence, options.before)
    if found is None or (before and _is_same_point(before, found)):
        return None
    log = _require_log_archived(history, evidence, before.pos if before else 1, found.head.pos)
    facts, inputs = _require_facts_archived(history, archive, before, found.manifest.p_to)
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
        made_at=options.now,
        made_by=options.by,
    )


def _is_same_point(cut: Cut, found: _CutPoint) -> bool:
    return (cut.pos, cut.p_to) == (found.head.pos, found.manifest.p_to)


def _newest_cut_point(history: History, evidence: CutEvidence, before: int) -> _CutPoint | None:
    archive = evidence.archive
    log_to = archive.log[-1][1].last if archive.log else 0
    facts_to = archive.facts[-1][1].last if archive.facts else 0
    anchored = set(evidence.anchored)
    allowed = (
        head
        for head in reversed(history.heads())
        if head.pos <= log_to
        and head.signed_at <= before
        and (evidence.due is None or head.pos < evidence.due)
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
    archive, holder, signed = evidence.archive, None, history.heads()
    for place, part in archive.log:
        if part.last < first or part.first > last:
            continue
        found, holder = archive.read_log(place, part), part
        ring = ring_with_keys(str(place), found, evidence.public)
        require_log_fits(str(place), found, found.entries[0].prev, ring)
        low, high = max(first, part.first), min(last, part.last)
        kept = found.entries[low - part.first : high - part.first + 1]
        inside = {head for head in signed if low <= head.pos <= high}
        if list(history.entries(low, high)) != kept or not inside <= set(found.heads):
            raise _differs(str(place), f"entries {low} to {high}")
    if holder is None:
        raise NotTrimmed(f"{archive.path} has no part with entry {last}. Nothing was deleted.")
    return holder


def _require_facts_archived(
    history: History, archive: Archive, cut: Cut | None, last: int
) -> tuple[Part, Inputs]:
    """Compares manifests and Merkle roots; returns the last part and the stream positions."""
    first = cut.p_to if cut else 1
    inputs, holder = dict(cut.inputs) if cut else {}, None
    for place, part in archive.facts:
        if part.last < first or part.first > last:
            continue
        found, holder = archive.read_facts(place, part), part
        require_facts_fit(str(place), found, (part.first - 1, part.last), found.manifests[0].prev)
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
    """Quarantined positions up to `last` that the archive holds too."""
    parts = (each for each in archive.facts if each[1].first <= last)
    found = (poison_of(archive.read_table(place, part, ASIDE)) for place, part in parts)
    return [poison.position for some in found for poison in some if poison.position <= last]


def _differs(place: str, what: str) -> NotTrimmed:
    return NotTrimmed(
        f"{place} and the database differ at {what}. Nothing was deleted. "
        "`joulie verify --archive` reports which of the two was changed."
    )
