"""What became of an answer: how the node that a pod was bound to had ranked. Pure."""

import msgspec
import numpy as np

from joulie_bus.errors import OutOfBounds, Undecodable
from joulie_bus.events import OutcomeSeen, PrioritizeDecided, codec
from joulie_bus.events.codec import Envelope
from joulie_bus.streams.records import Message
from joulie_bus.streams.subjects import Subjects
from joulie_projections.fold.commit import FirstBinding

ROW_REASSIGNED = -2  # in place of an ordinal: since the answer, rows may have passed to other nodes
REPLICA = "projector"  # whose answer it is, among those that the decision stream carries


def message_of(bound: FirstBinding, answer: bytes | None, subjects: Subjects) -> Message:
    """The same message whenever it is made: what is told twice is an entry once."""
    event = outcome_of(bound, answer)
    try:
        data = codec.encode(event)
    except OutOfBounds:  # the answer is of a time without bounds
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
    """Without an answer it says so: `decision` is empty, and nothing is claimed about a rank."""
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
    seen = msgspec.structs.replace(seen, decision=envelope.id)
    return _ranked(seen, given, bound)


def _ranked(seen: OutcomeSeen, given: PrioritizeDecided, bound: FirstBinding) -> OutcomeSeen:
    scores = _numbers("<i2", given.scores)
    at = _place_of(bound, given)
    if at is None or at >= len(scores):
        return seen  # bound to a node that was no candidate, as far as we can tell
    mine = scores[at]
    better = sum(score > mine for score in scores)
    return msgspec.structs.replace(seen, rank=better + 1, score=mine, regret=max(scores) - mine)


def _place_of(bound: FirstBinding, given: PrioritizeDecided) -> int | None:
    """Nodes that were known are named by their ordinals, the others by name, in their order."""
    if bound.ordinal == ROW_REASSIGNED:
        return _place_by_name(bound.node, given)
    ordinals = _numbers("<i4", given.candidates.ordinals)
    if bound.ordinal >= 0 and bound.ordinal in ordinals:
        return ordinals.index(bound.ordinal)
    strangers = iter(given.candidates.strangers)
    for at, ordinal in enumerate(ordinals):
        if ordinal == -1 and next(strangers, "") == bound.node:
            return at
    return None


def _place_by_name(node: str, given: PrioritizeDecided) -> int | None:
    """Only the best are named; the first of them has the highest score, and so on down."""
    named = [terms.node for terms in given.top]
    if node not in named:
        return None
    scores = _numbers("<i2", given.scores)
    from_the_best = sorted(range(len(scores)), key=lambda at: -scores[at])
    return dict(enumerate(from_the_best)).get(named.index(node))


def _numbers(kind: str, packed: bytes) -> list[int]:
    whole = len(packed) - len(packed) % np.dtype(kind).itemsize
    numbers: list[int] = np.frombuffer(packed[:whole], kind).tolist()
    return numbers
