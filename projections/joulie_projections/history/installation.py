"""What the database knows of components that run on other machines."""

import math
import time
from collections.abc import Iterator
from itertools import groupby
from operator import itemgetter
from typing import NamedTuple

from sqlalchemy import Connection, select

from joulie_projections.decision_log.position import recorded_end
from joulie_projections.history.history import ANSWERS
from joulie_projections.store.lease_owner import is_gone
from joulie_projections.store.store import NAME, clock_of
from joulie_projections.store.tables import checkpoint, decision

NEWEST_ANSWERS = 1000  # of which the senders are read
NS = 10**9


class Leader(NamedTuple):
    """The projector that holds the lease."""

    owner: str
    epoch: int
    lease_s: float  # left of the lease; the projector renews it while the broker answers
    behind_s: float  # since when the rows lack facts of the streams; infinite if not known


class Replica(NamedTuple):
    """An extender, by its newest answers in the log."""

    name: str
    answers: int  # of the newest ones
    age_s: float  # of the last one


def leader_in(db: Connection) -> Leader | None:
    """None if no projector has a lease in force."""
    found = db.execute(select(checkpoint).where(checkpoint.c.name == NAME)).first()
    now = clock_of(db)
    if found is None or found.until <= now or is_gone(found.owner):
        return None
    behind_s = (now - found.complete_at) / NS if found.complete_at else math.inf
    return Leader(found.owner, found.epoch, (found.until - now) / NS, max(0.0, behind_s))


def leaderless_s_in(db: Connection) -> float | None:
    """Since when no projector holds a lease, if the last one did not release its own."""
    found = db.scalar(select(checkpoint.c.until).where(checkpoint.c.name == NAME))
    now = clock_of(db)
    return (now - found) / NS if found and found <= now else None


def replicas_in(db: Connection) -> list[Replica]:
    """By name. Their ages compare the clocks of the extenders with the one of this machine."""
    newest = select(decision.c.event_id, decision.c.decided_at).where(
        decision.c.kind.in_(ANSWERS), decision.c.pos <= recorded_end(db)
    )
    found = db.execute(newest.order_by(decision.c.pos.desc()).limit(NEWEST_ANSWERS))
    sent = sorted((event_id.split(":", 1)[0], at) for event_id, at in found)
    return list(_replicas(sent, time.time_ns()))


def _replicas(sent: list[tuple[str, int]], now: int) -> Iterator[Replica]:
    for name, group in groupby(sent, itemgetter(0)):
        times = [at for _, at in group]
        yield Replica(name, len(times), max(0, now - max(times)) / NS)
