"""Reads the newest answers about pods from the decision log: which pods were refused every node."""

from collections.abc import Sequence
from typing import Any, NamedTuple

from sqlalchemy import Connection, Engine, Select, case, func, select

from joulie_bus.errors import Undecodable
from joulie_bus.events import (
    BindDecided,
    FallbackAnswered,
    FilterDecided,
    OutcomeSeen,
    PrioritizeDecided,
    codec,
)
from joulie_projections.chain.entry import message_in
from joulie_projections.decision_log.position import recorded_end
from joulie_projections.pods.refusal import Refusal, refused_nodes
from joulie_projections.store.tables import decision

# An entry of one of these kinds replaces a refusal.
_LATER = (
    FilterDecided.TYPE,
    PrioritizeDecided.TYPE,
    FallbackAnswered.TYPE,
    BindDecided.TYPE,
    OutcomeSeen.TYPE,
)


class NewestAnswer(NamedTuple):
    """The newest answer about a pod."""

    uid: str
    pos: int
    since: int  # nanoseconds; when the extender first filtered nodes for this pod; 0: never


def read_refusals(engine: Engine, uids: Sequence[str]) -> list[Refusal]:
    with engine.connect() as db, db.begin():
        return refusals_in(db, uids, recorded_end(db))


def refusals_in(db: Connection, uids: Sequence[str], last: int) -> list[Refusal]:
    """The refusals among these pods, up to an entry. The caller bounds the number of pods."""
    newest = _newest(uids, last).subquery()
    query = (
        select(decision.c.pod_uid, decision.c.pos, newest.c.since, decision.c.body)
        .join(newest, decision.c.pos == newest.c.pos)
        .where(decision.c.kind == FilterDecided.TYPE)
        .order_by(decision.c.pos)
    )
    found = [
        Refusal(uid, pos, since, refused_in(body)) for uid, pos, since, body in db.execute(query)
    ]
    return [refusal for refusal in found if refusal.candidates]


def newest_answers_in(db: Connection, uids: Sequence[str], last: int) -> list[NewestAnswer]:
    """The newest answers about these pods, up to an entry. The caller bounds their number."""
    return [NewestAnswer(row[0], row[1], row[2] or 0) for row in db.execute(_newest(uids, last))]


def _newest(uids: Sequence[str], last: int) -> Select[Any, Any, Any]:
    first = func.min(case((decision.c.kind == FilterDecided.TYPE, decision.c.decided_at)))
    return (
        select(decision.c.pod_uid, func.max(decision.c.pos).label("pos"), first.label("since"))
        .where(decision.c.pod_uid.in_(uids), decision.c.kind.in_(_LATER), decision.c.pos <= last)
        .group_by(decision.c.pod_uid)
    )


def refused_in(body: bytes) -> int:
    try:
        answer = codec.decoded(message_in(body), "a decision")
    except Undecodable:  # an entry of a newer version
        return 0
    return refused_nodes(answer.verdicts) if isinstance(answer, FilterDecided) else 0
