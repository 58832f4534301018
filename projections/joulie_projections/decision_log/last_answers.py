"""The last answer that scored a bound pod, for its outcome."""

from collections.abc import Sequence
from typing import NamedTuple

from sqlalchemy import Connection, func, select

from joulie_bus.events import PrioritizeDecided
from joulie_projections.chain.entry import message_in
from joulie_projections.chain.outcomes import ROW_REASSIGNED
from joulie_projections.fold.commit import FirstBinding
from joulie_projections.store.row_name_table import had_row
from joulie_projections.store.tables import decision


class LastAnswer(NamedTuple):
    message: bytes
    view_position: int


def last_answers(db: Connection, due: Sequence[FirstBinding], last: int) -> dict[str, LastAnswer]:
    """The last answer that scored each pod, by its uid."""
    theirs = decision.c.pod_uid.in_([bound.pod_uid for bound in due]), decision.c.pos <= last
    scored = select(func.max(decision.c.pos)).where(
        *theirs, decision.c.kind == PrioritizeDecided.TYPE
    )
    newest = decision.c.pos.in_(scored.group_by(decision.c.pod_uid))
    found = db.execute(
        select(decision.c.pod_uid, decision.c.body, decision.c.view_position).where(newest)
    )
    return {uid: LastAnswer(message_in(body), view) for uid, body, view in found}


def with_answer(
    db: Connection, bound: FirstBinding, answer: LastAnswer | None, moved_at: int
) -> tuple[FirstBinding, bytes | None]:
    """Marks the ordinal as reassigned if the node did not have that row in the answer's view."""
    if answer is None:
        return bound, None
    view = answer.view_position
    is_same = bound.ordinal < 0 or view >= moved_at or had_row(db, bound, view)
    return bound if is_same else bound._replace(ordinal=ROW_REASSIGNED), answer.message
