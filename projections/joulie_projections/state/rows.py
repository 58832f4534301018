"""The world as rows, and a digest of them that does not depend on any order.

A table's digest is the sum of the sha256 of its rows modulo 2^256: a changed row costs two hashes,
and any two places that hold the same rows at a position hold the same digest.
"""

import hashlib
from collections.abc import Iterable, Mapping
from typing import NamedTuple

import msgspec

from joulie_projections.state import unchecked
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
# What readers follow. Producers matter to the projector alone, and change with every message.
VIEWED = ("node", "pod", "gpu", "facility", "cluster")
# Rows that change with every message. Of the others there are too many that hardly ever do.
CACHED_TABLES = frozenset({"node", "producer"})

Digests = dict[str, int]
Fingerprints = dict[
    tuple[str, str], tuple[State, int]
]  # by table and key: a state, and its fingerprint
_encode = msgspec.msgpack.Encoder(order="deterministic").encode
_DECODERS = {table: msgspec.msgpack.Decoder(state) for table, state in STATES.items()}


class Row(NamedTuple):
    table: str
    key: str
    body: bytes | None  # None: the row is gone


def encode(state: State) -> bytes:
    return _encode(state)


def decode(table: str, body: bytes) -> State:
    try:
        return _DECODERS[table].decode(body)
    except msgspec.ValidationError:  # of an older code, whose facts had other bounds
        return unchecked.decode(body, STATES[table])


def empty_digests() -> Digests:
    return dict.fromkeys(STATES, 0)


def fingerprint(table: str, key: str, body: bytes) -> int:
    return int.from_bytes(hashlib.sha256(b"\0".join((table.encode(), key.encode(), body))).digest())


def changed_rows(
    changes: Iterable[Change], digests: Digests, fingerprints: Fingerprints | None = None
) -> tuple[list[Row], Digests]:
    """The rows to write, and the digests once they are.

    With `fingerprints` kept between calls, the rows before the change are not encoded again.
    """
    rows, after = [], dict(digests)
    known = fingerprints if fingerprints is not None else {}
    for table, key, before, state in changes:
        old = _print_of(table, key, before, known)
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


def _print_of(table: str, key: str, state: State | None, fingerprints: Fingerprints) -> int:
    """0 for what is not there, which no hash is."""
    if state is None:
        return 0
    held = fingerprints.get((table, key))
    # States are frozen: this very one gives what it gave. A draft may have been thrown away.
    if held is not None and held[0] is state:
        return held[1]
    return fingerprint(table, key, encode(state))


def state_digest(digests: Digests) -> bytes:
    """One value for all tables, as the batch manifest holds it."""
    parts = (f"{table}={digests[table]:064x}" for table in STATES)
    return hashlib.sha256("\n".join(parts).encode()).digest()


def digests_of(rows: Iterable[Row]) -> Digests:
    """From scratch: what any incremental digest must be equal to."""
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
    """Rows that are already true (read from the database, or committed by the projector)."""
    for table, key, body in rows:
        held = tables_of(cluster_state)[table]
        if body is None:
            held.pop(key, None)
        else:
            state = held[key] = decode(table, body)
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
