"""The end of the log, and how far its stream was read. Apart from it: a status loads no more."""

import msgspec
from sqlalchemy import Connection, select

from joulie_bus.core.undecodable import UNDECODABLE
from joulie_bus.errors import RecordDamaged
from joulie_bus.streams.subjects import Stream
from joulie_projections.fold.commit import Input
from joulie_projections.store.tables import checkpoint

NAME = "decisions"  # a row of `checkpoint`


def recorded_end(db: Connection) -> int:
    """The last entry that the writer of the log announced: readers show none behind it."""
    return db.scalar(select(checkpoint.c.position).where(checkpoint.c.name == NAME)) or 0


def decision_input(db: Connection) -> Input:
    """Raises RecordDamaged if another process wrote what is no record."""
    inputs = db.scalar(select(checkpoint.c.inputs).where(checkpoint.c.name == NAME))
    try:
        read = msgspec.msgpack.decode(inputs or b"\x80", type=dict[Stream, Input])
    except UNDECODABLE as error:
        raise RecordDamaged(str(error)) from error
    return read.get(Stream.DEC, Input("", 0))
