"""The world as rows, and a digest of them that does not depend on any order.

A table's digest is the sum of the sha256 of its rows modulo 2^256: a changed row costs two hashes,
and any two places that hold the same rows at a position hold the same digest.
"""

import hashlib
from collections.abc import Iterable, Mapping
from typing import NamedTuple

import msgspec

from joulie_projections.cards import CardState
from joulie_projections.draft import Change
from joulie_projections.sharing import told_once
from joulie_projections.world import (
    ClusterState,
    FacilityState,
    NodeState,
    PodState,
    ProducerState,
    State,
    World,
)

MODULUS = 1 << 256
STATES: Mapping[str, type[State]] = {
    "node": NodeState,
    "pod": PodState,
    "gpu": CardState,
    "facility": FacilityState,
    "producer": ProducerState,
    "cluster": ClusterState,
}
# What readers follow. Producers matter to the projector alone, and change with every message.
VIEWED = ("node", "pod", "gpu", "facility", "cluster")

Digests = dict[str, int]
_encode = msgspec.msgpack.Encoder(order="deterministic").encode
_DECODERS = {table: msgspec.msgpack.Decoder(state) for table, state in STATES.items()}


class Row(NamedTuple):
    table: str
    key: str
    body: bytes | None  # None: the row is gone


def encode(state: State) -> bytes:
    return _encode(state)


def decode(table: str, body: bytes) -> State:
    return _DECODERS[table].decode(body)


def no_rows() -> Digests:
    return dict.fromkeys(STATES, 0)


def fingerprint(table: str, key: str, body: bytes) -> int:
    return int.from_bytes(hashlib.sha256(b"\0".join((table.encode(), key.encode(), body))).digest())


def changed_rows(changes: Iterable[Change], digests: Digests) -> tuple[list[Row], Digests]:
    """The rows to write, and the digests once they are."""
    rows, after = [], dict(digests)
    for change in changes:
        before_body = encode(change.before) if change.before is not None else None
        after_body = encode(change.after) if change.after is not None else None
        if before_body == after_body:
            continue
        for body, sign in ((before_body, -1), (after_body, +1)):
            if body is not None:
                delta = sign * fingerprint(change.table, change.key, body)
                after[change.table] = (after[change.table] + delta) % MODULUS
        rows.append(Row(change.table, change.key, after_body))
    return rows, after


def state_digest(digests: Digests) -> bytes:
    """One value for all tables, as the batch manifest holds it."""
    parts = (f"{table}={digests[table]:064x}" for table in STATES)
    return hashlib.sha256("\n".join(parts).encode()).digest()


def digests_of(rows: Iterable[Row]) -> Digests:
    """From scratch: what any incremental digest must be equal to."""
    digests = no_rows()
    for table, key, body in rows:
        if body is not None:
            digests[table] = (digests[table] + fingerprint(table, key, body)) % MODULUS
    return digests


def world_of(rows: Iterable[Row]) -> World:
    world = World()
    put(world, rows)
    return world


def put(world: World, rows: Iterable[Row]) -> None:
    """Rows that are already true (read from the database, or committed by the projector)."""
    for table, key, body in rows:
        held = tables_of(world)[table]
        if body is None:
            held.pop(key, None)
        else:
            state = held[key] = decode(table, body)
            told_once(key, state)


def tables_of(world: World) -> dict[str, dict[str, State]]:
    tables: dict[str, dict[str, State]] = {
        "node": world.nodes,  # type: ignore[dict-item]
        "pod": world.pods,  # type: ignore[dict-item]
        "gpu": world.gpus,  # type: ignore[dict-item]
        "facility": world.facilities,  # type: ignore[dict-item]
        "producer": world.producers,  # type: ignore[dict-item]
        "cluster": world.cluster,  # type: ignore[dict-item]
    }
    return tables
