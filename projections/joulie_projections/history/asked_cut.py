"""The cut that an archiver requested, or why it is refused: compared with the log alone.

The entry and the batch are those of the archive, a head that was anchored outside the database
signs the entry, a snapshot lies behind the batch, no answer before the entry waits for its
outcome, and no cut goes back.
"""

from collections.abc import Sequence
from typing import NamedTuple

from joulie_bus.errors import NotTrimmed
from joulie_bus.streams.cut_requests import CutRequest
from joulie_bus.streams.subjects import MERGE_ORDER
from joulie_projections.chain.head import Head
from joulie_projections.chain.keyring import Ring
from joulie_projections.fold.commit import Cut, Input, Inputs
from joulie_projections.fold.manifest import Manifest
from joulie_projections.history.history import History
from joulie_projections.history.stored_tree import StoredTree


class Held(NamedTuple):
    """What the projector holds besides the database."""

    anchored: Sequence[Head]  # outside the database
    public: Ring


class _Point(NamedTuple):
    head: Head
    manifest: Manifest


def cut_as_asked(history: History, asked: CutRequest, held: Held, now: int) -> Cut:
    before = history.cut()
    if before is not None and (asked.pos < before.pos or asked.p_to < before.p_to):
        raise _refused(asked, f"the log is cut at entry {before.pos} and position {before.p_to}")
    head, manifest = _head_at(history, asked, held), _manifest_at(history, asked)
    due = history.oldest_due()
    if due is not None and asked.pos >= due:
        raise _refused(asked, f"the answer {due} waits for its outcome")
    if asked.p_to > max(history.starts(), default=0):
        raise _refused(asked, f"no snapshot is at position {asked.p_to} or later")
    return Cut(
        number=before.number + 1 if before else 1,
        pos=head.pos,
        hash=head.hash,
        p_to=manifest.p_to,
        manifest_head=manifest.head,
        log_seal=asked.log_seal,
        facts_seal=asked.facts_seal,
        inputs=_inputs_at(history, _Point(head, manifest), before),
        note=head.note.encode(),
        edge=StoredTree(history).frontier_at(head.pos).edge,
        made_at=now,
        made_by=asked.by,
    )


def is_at(cut: Cut | None, asked: CutRequest) -> bool:
    return cut is not None and (cut.pos, cut.p_to) == (asked.pos, asked.p_to)


def _head_at(history: History, asked: CutRequest, held: Held) -> Head:
    anchored = set(held.anchored)
    found = next(history.heads_before(asked.pos + 1), None)
    if found is None or found.pos != asked.pos or found not in anchored:
        raise _refused(asked, f"no anchored head signs entry {asked.pos}")
    if not held.public.stands_alone(found):
        raise _refused(asked, f"the head of entry {asked.pos} is not valid by itself")
    if found.hash != asked.hash:
        raise _refused(asked, f"entry {asked.pos} of the archive is another one")
    return found


def _manifest_at(history: History, asked: CutRequest) -> Manifest:
    found = next(history.manifests_back(asked.p_to), None)
    if found is None or found.p_to != asked.p_to:
        raise _refused(asked, f"no batch ends at position {asked.p_to}")
    if found.head != asked.manifest_head:
        raise _refused(asked, f"the batch of the archive that ends at {asked.p_to} is another one")
    return found


def _inputs_at(history: History, at: _Point, before: Cut | None) -> Inputs:
    """How far each stream was read there: as the newest head that is not behind it says, and the
    manifests between. Identities are those of the head: a stream that was replaced since keeps its
    messages.
    """
    known, inputs = (before.p_to, dict(before.inputs)) if before else (0, {})
    said = (head.commitment for head in history.heads_before(at.head.pos + 1))
    newest = next((each for each in said if each.position <= at.manifest.p_to), None)
    if newest is not None and newest.position > known:
        known = newest.position
        inputs |= {stream: read for stream, read in newest.read.items() if stream in MERGE_ORDER}
    for each in (
        each for found in history.manifests(known + 1, at.manifest.p_to) for each in found.ranges
    ):
        created = inputs[each.stream].created if each.stream in inputs else ""
        inputs[each.stream] = Input(created, each.last)
    return inputs


def _refused(asked: CutRequest, why: str) -> NotTrimmed:
    return NotTrimmed(
        f"The projector refused a cut at entry {asked.pos} and position {asked.p_to}: {why}. "
        "Nothing was deleted."
    )
