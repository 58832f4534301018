"""Snapshots: the packed state at a position, from which time travel and rebuilds start."""

import hashlib
import zlib
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import msgspec

from joulie_bus.core.inflating import inflated
from joulie_bus.errors import StateDamaged
from joulie_projections.fold.commit import Inputs, Snapshot
from joulie_projections.fold.manifest import CODE_VERSION
from joulie_projections.fold.sequence import FoldCursor
from joulie_projections.state.rows import Row, digests_of, encode, tables_of
from joulie_projections.state.state import ClusterState, State

LARGEST_BODY = 1 << 30  # inflated; 5,000 nodes and 100,000 pods have some ten MiB
LEVEL = 1  # of zlib; higher levels take three times as long for 10 % fewer bytes


class _Packed(msgspec.Struct, frozen=True, array_like=True):
    inputs: Inputs
    digests: dict[str, bytes]
    head: bytes
    rows: list[tuple[str, str, bytes]]


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(_Packed).decode


class FrozenState(NamedTuple):
    """A copy of the tables at a position. The states are immutable, so their tables suffice."""

    cursor: FoldCursor
    tables: Mapping[str, Mapping[str, State]]


def frozen_state_of(cluster_state: ClusterState, cursor: FoldCursor) -> FrozenState:
    """Copies the tables, so that the fold continues while another thread packs them."""
    return FrozenState(
        cursor, {table: dict(states) for table, states in tables_of(cluster_state).items()}
    )


def pack(frozen: FrozenState, now: int) -> Snapshot:
    rows = [
        (table, key, encode(state))
        for table, states in frozen.tables.items()
        for key, state in states.items()
    ]
    position, inputs, digests, head = frozen.cursor
    small = {table: value.to_bytes(32) for table, value in digests.items()}
    body = zlib.compress(_encode(_Packed(inputs, small, head, rows)), LEVEL)
    return Snapshot(position, CODE_VERSION, now, hashlib.sha256(body).digest(), body)


def unpack(snapshot: Snapshot) -> tuple[FoldCursor, list[Row]]:
    """Unpacks a snapshot. Raises StateDamaged if the body or the rows do not match a digest."""
    if hashlib.sha256(snapshot.body).digest() != snapshot.digest:
        raise StateDamaged("The snapshot", snapshot.position)
    try:
        packed = _decode(inflated(snapshot.body, LARGEST_BODY))
    except (zlib.error, msgspec.DecodeError) as error:
        raise StateDamaged("The snapshot", snapshot.position) from error
    digests = {table: int.from_bytes(value) for table, value in packed.digests.items()}
    rows = [Row(*row) for row in packed.rows]
    require_intact("The snapshot", rows, FoldCursor(snapshot.position, {}, digests, b""))
    return FoldCursor(snapshot.position, packed.inputs, digests, packed.head), rows


def require_intact(what: str, rows: Sequence[Row], cursor: FoldCursor) -> None:
    if digests_of(rows) != cursor.digests:
        raise StateDamaged(what, cursor.position)
