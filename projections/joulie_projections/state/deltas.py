"""Live messages from the projector to its readers; never stored."""

import msgspec

from joulie_bus.streams.records import IncompleteCopy
from joulie_projections.state.rows import VIEWED, Digests, Row


class Sent(msgspec.Struct, frozen=True, array_like=True):
    """When a message was sent, and how far the state was behind then."""

    incarnation: str  # of the database
    clock: str  # the identity of the monotonic clock
    sent_ms: int  # by that clock
    behind_ms: int  # since the moment until which the state includes everything stored


class Delta(msgspec.Struct, frozen=True, array_like=True):
    """The rows that one commit changed; `rows` is None if they exceed the message limit, and the
    reader then queries the database."""

    p_from: int
    p_to: int
    digests: dict[str, bytes]
    rows: list[tuple[str, str, bytes | None]] | None
    sent: Sent | None = None  # of older projectors: None


class Heartbeat(msgspec.Struct, frozen=True, array_like=True):
    """Sent four times a second, so that readers detect lost messages and a restored database."""

    position: int
    digests: dict[str, bytes]
    incarnation: str
    epoch: int
    lag: int  # events stored by the broker and not yet committed
    lag_ms: int  # from storage to commit, of the oldest event in the newest commit
    decisions: int
    # Of older projectors, which do not send the following: -1.
    behind_ms: int = -1  # since the moment until which the state includes everything stored
    broker_ms: int = -1  # since a majority of the broker confirmed the ends of the streams
    unwritten: int = 0  # entries of the decision log that the broker stored and the database lacks
    sent_ms: int = -1  # by the monotonic clock of the projector
    incomplete: list[IncompleteCopy] = []  # copies of the broker's servers that lack messages
    broker_ns: int = 0  # the broker's clock when this was sent; 0: not known yet
    clock: str = ""  # the identity of the monotonic clock; older projectors: empty


encode = msgspec.msgpack.Encoder().encode
decode_delta = msgspec.msgpack.Decoder(Delta).decode
decode_heartbeat = msgspec.msgpack.Decoder(Heartbeat).decode


def pack_digests(digests: Digests) -> dict[str, bytes]:
    return {table: digests[table].to_bytes(32) for table in VIEWED}


def unpack_digests(digests: dict[str, bytes]) -> Digests:
    return {table: int.from_bytes(value) for table, value in digests.items()}


def delta_of(p_from: int, p_to: int, digests: Digests, rows: list[Row], sent: Sent | None) -> Delta:
    viewed = [tuple(row) for row in rows if row.table in VIEWED]
    return Delta(p_from, p_to, pack_digests(digests), viewed, sent)  # type: ignore[arg-type]


def encode_delta(delta: Delta, limit: int) -> bytes:
    """Encodes a delta; without its rows if it would exceed `limit` bytes."""
    data = encode(delta)
    if len(data) <= limit:
        return data
    return encode(msgspec.structs.replace(delta, rows=None))
