"""Marks a database as a restored copy, whose projector asks no witness and keeps no heads outside.

Witnesses and the place of HEADS_TO follow one log. With the key of the original, a copy would be
the log that they saw last, and the original would be the fork.
"""

from sqlalchemy import Connection, Engine, insert, select

from joulie_projections.store.tables import checkpoint

NAME = "copy"  # of a row of the table of positions
WHY = (
    "this database was restored as a copy: witnesses and HEADS_TO follow the original. If the "
    "original has ended, restore it with --continue"
)


def mark_copy(engine: Engine, entries: int) -> None:
    """The copy has so many entries of the original."""
    nothing = dict.fromkeys(("inputs", "digests", "head"), b"")
    numbers = dict.fromkeys(("epoch", "until", "generation"), 0)
    row = {"name": NAME, "position": entries, "owner": "", "incarnation": "", **nothing, **numbers}
    with engine.begin() as db:
        db.execute(insert(checkpoint).values(row))


def is_copy(db: Connection) -> bool:
    return db.scalar(select(checkpoint.c.name).where(checkpoint.c.name == NAME)) is not None
