"""Outcomes of answers: the rank of the node that a pod was bound to."""

import msgspec
import numpy as np

from joulie_bus.errors import OutOfBounds, Undecodable
from joulie_bus.events import OutcomeSeen, PrioritizeDecided, codec
from joulie_bus.events.codec import Envelope
from joulie_bus.streams.records import Message
from joulie_bus.streams.subjects import Subjects
from joulie_projections.fold.commit import FirstBinding
from joulie_projections.twin.arrays import Ints

ROW_REASSIGNED = -2  # instead of an ordinal: rows may have passed to other nodes since the answer
REPLICA = "projector"  # the sender of outcomes in the stream of decisions


def message_of(bound: FirstBinding, answer: bytes | None, subjects: Subjects) -> Message:
    """The outcome as a message. It is deterministic, so that publishing twice gives one entry."""
    event = outcome_of(bound, answer)
    try:
        data = codec.encode(event)
    except OutOfBounds:  # the answer was given before events had bounds
        event = outcome_of(bound, None)
        data = codec.encode(event)
    event_id = f"outcome:{bound.pod_uid}:1"
    envelope = Envelope(
        id=event_id,
        type=event.TYPE,
        v=event.VERSION,
        key=event.key,
        ts=bound.at,
        cause=event.decision,
        corr=bound.pod_uid,
        data=msgspec.Raw(data),
    )
    return Message(subjects.of(event, REPLICA), event_id, codec.seal(envelope))


def outcome_of(bound: FirstBinding, answer: bytes | None) -> OutcomeSeen:
    """The outcome. Without a readable answer, `decision` and the rank are empty."""
    seen = OutcomeSeen(
        pod_uid=bound.pod_uid, namespace=bound.namespace, name=bound.name, node=bound.node
    )
    if answer is None:
        return seen
    where = f"the last score of pod {bound.pod_uid}"
    try:
        envelope = codec.open_envelope(answer, where)
        given = codec.read(envelope, where)
    except Undecodable:
        return seen
    if not isinstance(given, PrioritizeDecided):
        return seen
    without_view = given.basis.view == 0
    seen = msgspec.structs.replace(seen, decision=envelope.id, without_view=without_view)
    return _ranked(seen, given, bound)


def _ranked(seen: OutcomeSeen, given: PrioritizeDecided, bound: FirstBinding) -> OutcomeSeen:
    scores = _numbers("<i2", given.scores)
    at = _place_of(bound, given)
    if at is None:
        return seen  # the node was not among the candidates
    mine = int(scores[at])
    better = int(np.count_nonzero(scores > mine))
    regret = int(scores.max()) - mine
    return msgspec.structs.replace(seen, rank=better + 1, score=mine, regret=regret)


def _place_of(bound: FirstBinding, given: PrioritizeDecided) -> int | None:
    """The index of the node among the candidates: by ordinal if known, otherwise by name."""
    if bound.ordinal == ROW_REASSIGNED:
        return _place_by_name(bound.node, given)
    ordinals = _numbers("<i4", given.candidates.ordinals)
    if bound.ordinal >= 0 and len(found := np.flatnonzero(ordinals == bound.ordinal)):
        return int(found[0])
    strangers = zip(np.flatnonzero(ordinals == -1), given.candidates.strangers, strict=True)
    return next((int(at) for at, name in strangers if name == bound.node), None)


def _place_by_name(node: str, given: PrioritizeDecided) -> int | None:
    """The index of the node among the top ones, which are named in descending order of score."""
    named = [terms.node for terms in given.top]
    if node not in named:
        return None
    scores = _numbers("<i2", given.scores)
    from_the_best = np.argsort(-scores, kind="stable")
    return int(from_the_best[named.index(node)])


def _numbers(kind: str, packed: bytes) -> Ints:
    return np.frombuffer(packed, kind).astype(np.int64)
