"""Where the fold goes on: behind the manifests that follow the newest signed head.

The row of `checkpoint` says it too, and any process that may write there can change that row: a
position or a sequence that was set forward would pass over messages.
"""

import itertools
from collections.abc import Iterator
from typing import NamedTuple

import msgspec
from sqlalchemy import Connection, Engine, select

from joulie_bus.errors import StateDamaged
from joulie_bus.streams.subjects import MERGE_ORDER
from joulie_projections.chain.head import Head
from joulie_projections.decision_log import foreign
from joulie_projections.decision_log.anchored import Anchored
from joulie_projections.decision_log.beginning import newest_head
from joulie_projections.fold.commit import Checkpoint, Input, Inputs
from joulie_projections.fold.joins import Joins
from joulie_projections.fold.manifest import Manifest, Range, rechained
from joulie_projections.store.database import read_committed
from joulie_projections.store.store import read_cut, require_epoch
from joulie_projections.store.tables import batch

AT_ONCE = 1000  # manifests in memory


class _Start(NamedTuple):
    """A position whose manifest is known, with the sequences up to which the streams were read."""

    position: int
    manifest: bytes
    read: Inputs


def facts_end(engine: Engine, known: Anchored, held: Checkpoint) -> Checkpoint:
    """`held`, with the position and the sequences to which the manifests lead.

    Raises StateDamaged if they do not join and `held` is behind that place: nothing says which of
    the two is true.
    """
    with engine.connect() as db, db.begin():
        start = _start(db, known)
        position, manifest, read = start.position, start.manifest, Joins(start.read)
        for each in _manifests_behind(db, position):
            if (position, manifest) == (held.position, held.head):
                break  # a manifest behind the record is none of a projector
            if not _follows(each, position, manifest) or read.flaw(each):
                if held.position > position:
                    raise StateDamaged("The chain of manifests", position)
                break
            position, manifest = each.p_to, each.head
    sequences = {stream: read.read[stream] for stream in read.read if read.read[stream]}
    recorded = {stream: at.sequence for stream, at in held.inputs.items() if at.sequence}
    if (position, manifest, sequences) == (held.position, held.head, recorded):
        return held
    inputs = {
        stream: _input(held.inputs.get(stream), start.read.get(stream), sequence)
        for stream, sequence in sequences.items()
    }
    return held._replace(position=position, head=manifest, inputs=inputs)


def move_manifests(engine: Engine, epoch: int, position: int) -> int:
    """Moves the manifests behind the last one of this projector; returns how many there are."""
    with read_committed(engine).begin() as db:
        require_epoch(db, epoch)
        return foreign.move_manifests(db, position)


def _input(recorded: Input | None, signed: Input | None, sequence: int) -> Input:
    for each in (recorded, signed):
        if each is not None and each.sequence == sequence:
            return each
    known = recorded or signed
    return Input(known.created if known else "", sequence)


def _start(db: Connection, known: Anchored) -> _Start:
    """At the newest signed head whose manifest the database has."""
    if (found := newest_head(db, known, _has_manifest_of)) is not None:
        said = found.commitment
        facts = {stream: read for stream, read in said.read.items() if stream in MERGE_ORDER}
        return _Start(said.position, said.manifest, facts)
    if (cut := read_cut(db)) is not None:
        return _Start(cut.p_to, cut.manifest_head, cut.inputs)
    return _Start(0, b"", {})


def _has_manifest_of(db: Connection, found: Head) -> bool:
    said = found.commitment
    here = select(batch.c.head).where(batch.c.p_to == said.position)
    return said.position > 0 and db.scalar(here) == said.manifest


def _manifests_behind(db: Connection, position: int) -> Iterator[Manifest]:
    behind = select(batch).where(batch.c.p_to > position).order_by(batch.c.p_to)
    with db.execute(behind.execution_options(yield_per=AT_ONCE)) as rows:
        for row in itertools.chain.from_iterable(rows.partitions()):
            ranges = msgspec.msgpack.decode(row.ranges, type=tuple[Range, ...])
            yield Manifest(**row._mapping)._replace(ranges=ranges)


def _follows(each: Manifest, position: int, manifest: bytes) -> bool:
    is_next = (each.p_from, each.prev) == (position + 1, manifest)
    return is_next and each == rechained(each)
