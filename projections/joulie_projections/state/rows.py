"""The cluster state as rows, and a digest of the rows that does not depend on their order.

A table's digest is the sum of the sha256 of its rows modulo 2^256: a changed row costs two hashes,
and any two components with the same rows at a position have the same digest.
"""

import hashlib
from collections.abc import Iterable, Mapping
from typing import NamedTuple

import msgspec

from joulie_projections.state.cards import CardState
from joulie_projections.state.interning import intern_state
from joulie_projections.state.state import (
    ClusterRow,
    ClusterState,
    FacilityState,
    NodeState,
    PodState,
    ProducerState,
    State,
)
from joulie_projections.state.state_changes import Change

MODULUS = 1 << 256
STATES: Mapping[str, type[State]] = {
    "node": NodeState,
    "pod": PodState,
    "gpu": CardState,
    "facility": FacilityState,
    "producer": ProducerState,
    "cluster": ClusterRow,
}
# The tables that readers follow. Producers concern only the projector and change every message.
VIEWED = ("node", "pod", "gpu", "facility", "cluster")
# Tables whose rows change with every message; the others are large and rarely change.
CACHED_TABLES = frozenset({"node", "producer"})

Digests = dict[str, int]
# By table and key: a state, and its fingerprint.
Fingerprints = dict[tuple[str, str], tuple[State, int]]
_encode = msgspec.msgpack.Encoder(order="deterministic").encode
_DECODERS = {table: msgspec.msgpack.Decoder(state) for table, state in STATES.items()}


class Row(NamedTuple):
    table: str
    key: str
    body: bytes | None  # None: the row was deleted


def encode(state: State) -> bytes:
    return _encode(state)


def decode(table: str, body: bytes) -> State:
    return _DECODERS[table].decode(body)


def empty_digests() -> Digests:
    return dict.fromkeys(STATES, 0)


def fingerprint(table: str, key: str, body: bytes) -> int:
    return int.from_bytes(hashlib.sha256(b"\0".join((table.encode(), key.encode(), body))).digest())


def changed_rows(
    changes: Iterable[Change], digests: Digests, fingerprints: Fingerprints | None = None
) -> tuple[list[Row], Digests]:
    """The rows to write, and the digests after that.

    With `fingerprints` kept between calls, the rows before the change are not encoded again.
    """
    rows, after = [], dict(digests)
    known = fingerprints if fingerprints is not None else {}
    for table, key, before, state in changes:
        old = _fingerprint_of(table, key, before, known)
        body = encode(state) if state is not None else None
        new = fingerprint(table, key, body) if body is not None else 0
        if new == old:
            continue
        after[table] = (after[table] + new - old) % MODULUS
        rows.append(Row(table, key, body))
        if state is None:
            known.pop((table, key), None)
        elif table in CACHED_TABLES:
            known[table, key] = state, new
    return rows, after


def _fingerprint_of(table: str, key: str, state: State | None, fingerprints: Fingerprints) -> int:
    """The fingerprint of a row; 0 if there is none."""
    if state is None:
        return 0
    cached = fingerprints.get((table, key))
    # Compare by identity: the entry may come from a draft that was discarded.
    if cached is not None and cached[0] is state:
        return cached[1]
    return fingerprint(table, key, encode(state))


def state_digest(digests: Digests) -> bytes:
    """One digest over all tables, as stored in the batch manifest."""
    parts = (f"{table}={digests[table]:064x}" for table in STATES)
    return hashlib.sha256("\n".join(parts).encode()).digest()


def digests_of(rows: Iterable[Row]) -> Digests:
    """Computes the digests from all rows; incremental digests must equal them."""
    digests = empty_digests()
    for table, key, body in rows:
        if body is not None:
            digests[table] = (digests[table] + fingerprint(table, key, body)) % MODULUS
    return digests


def cluster_state_of(rows: Iterable[Row]) -> ClusterState:
    cluster_state = ClusterState()
    apply_rows(cluster_state, rows)
    return cluster_state


def apply_rows(cluster_state: ClusterState, rows: Iterable[Row]) -> None:
    """Applies rows that are already committed: read from the database or sent by the projector."""
    for table, key, body in rows:
        states = tables_of(cluster_state)[table]
        if body is None:
            states.pop(key, None)
        else:
            state = states[key] = decode(table, body)
            intern_state(key, state)


def tables_of(cluster_state: ClusterState) -> dict[str, dict[str, State]]:
    tables: dict[str, dict[str, State]] = {
        "node": cluster_state.nodes,  # type: ignore[dict-item]
        "pod": cluster_state.pods,  # type: ignore[dict-item]
        "gpu": cluster_state.gpus,  # type: ignore[dict-item]
        "facility": cluster_state.facilities,  # type: ignore[dict-item]
        "producer": cluster_state.producers,  # type: ignore[dict-item]
        "cluster": cluster_state.cluster,  # type: ignore[dict-item]
    }
    return tables
