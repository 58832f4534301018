"""How far the stream of decisions was read. Apart from the log: a status loads nothing else."""

import msgspec
from sqlalchemy import Connection, select

from joulie_bus.streams.subjects import Stream
from joulie_projections.fold.commit import Input
from joulie_projections.store.tables import checkpoint

NAME = "decisions"  # a row of `checkpoint`


def decision_input(db: Connection) -> Input:
    inputs = db.scalar(select(checkpoint.c.inputs).where(checkpoint.c.name == NAME))
    read = msgspec.msgpack.decode(inputs or b"\x80", type=dict[Stream, Input])
    return read.get(Stream.DEC, Input("", 0))
