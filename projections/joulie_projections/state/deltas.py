"""What the projector tells its readers after a commit; live, never stored."""

import msgspec

from joulie_projections.state.rows import VIEWED, Digests, Row


class Delta(msgspec.Struct, frozen=True, array_like=True):
    """The rows that one commit changed. `rows` is None if they are too many to send: read them."""

    p_from: int
    p_to: int
    digests: dict[str, bytes]
    rows: list[tuple[str, str, bytes | None]] | None


class Heartbeat(msgspec.Struct, frozen=True, array_like=True):
    """Four times a second: tells silence from loss, and one database from another."""

    position: int
    digests: dict[str, bytes]
    incarnation: str
    epoch: int
    lag: int  # events stored and not yet committed
    lag_ms: int  # of the oldest event in the newest commit: from the broker's disk to ours
    decisions: int


encode = msgspec.msgpack.Encoder().encode
decode_delta = msgspec.msgpack.Decoder(Delta).decode
decode_heartbeat = msgspec.msgpack.Decoder(Heartbeat).decode


def pack_digests(digests: Digests) -> dict[str, bytes]:
    return {table: digests[table].to_bytes(32) for table in VIEWED}


def unpack_digests(digests: dict[str, bytes]) -> Digests:
    return {table: int.from_bytes(value) for table, value in digests.items()}


def encode_delta(p_from: int, p_to: int, digests: Digests, rows: list[Row], limit: int) -> bytes:
    """At most `limit` bytes: what is larger says so instead of failing."""
    seen = [tuple(row) for row in rows if row.table in VIEWED]
    data = encode(Delta(p_from, p_to, pack_digests(digests), seen))  # type: ignore[arg-type]
    if len(data) <= limit:
        return data
    return encode(Delta(p_from, p_to, pack_digests(digests), None))
