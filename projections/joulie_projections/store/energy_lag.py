"""How far the ledger of energy is behind the log. Loads nothing that computes energy."""

import time

from sqlalchemy import Connection, select
from sqlalchemy.exc import SQLAlchemyError

from joulie_projections.store import database
from joulie_projections.store.database import Place
from joulie_projections.store.tables import batch, energy_state

NAME = "energy"  # of the ledger's row


def seconds_behind(place: Place) -> float | None:
    """None if the ledger cannot be read."""
    engine = database.ledger_reader(place)
    try:
        with engine.connect() as db, db.begin():
            return behind_s(db)
    except SQLAlchemyError:
        return None
    finally:
        engine.dispose()


def behind_s(db: Connection) -> float:
    """How long ago the oldest fact was committed that the ledger lacks; 0 if it lacks none."""
    mine = select(energy_state.c.position).where(energy_state.c.name == NAME)
    return behind_s_of(db, db.scalar(mine) or 0)


def behind_s_of(db: Connection, position: int) -> float:
    later = select(batch.c.committed_at).where(batch.c.p_to > position)
    oldest = db.scalar(later.order_by(batch.c.p_to).limit(1))
    return max(0, time.time_ns() - oldest) / 1e9 if oldest else 0.0
