"""The declarations of all streams: missing streams are created, existing ones checked."""

import calendar
import time
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import msgspec

from joulie_bus.errors import (
    BrokerRefused,
    StreamsDiffer,
    StreamsForeign,
    StreamsInUse,
    StreamsMissing,
)
from joulie_bus.jetstream.connection import MAX_PAYLOAD, Address, Connection
from joulie_bus.runtime.logging import get_logger
from joulie_bus.streams.records import (
    Record,
    Stored,
    StreamSize,
    StreamState,
    StreamTip,
    digest_of,
)
from joulie_bus.streams.subjects import Stream, Subjects

log = get_logger("streams")
STREAM_NOT_FOUND = 10059
MESSAGE_NOT_FOUND = 10037
_NEVER = 2**62  # ns
_SECOND = 1_000_000_000
_KIB, _MIB, _GIB = 1024, 1024**2, 1024**3

# The broker never drops facts, plans, decisions or heads: a full stream refuses messages at once
# with code 10077. Only telemetry may age out, as its sums are in the twins. All streams accept
# batches: plans and claims must be atomic; facts and decisions need one disk sync per batch. The
# projector and the administrator may purge archived messages (`roles`); a purge denied in the
# declaration of a stream could never be allowed again.
_KEPT: dict[str, Any] = {
    "discard": "new",
    "deny_delete": True,
    "allow_atomic": True,
}
# The largest message of each stream. What agents send is small, and a fact is about one object of
# Kubernetes. A plan and a decision name all nodes; a decision may be as large as any message.
_MESSAGE: dict[Stream, int] = {
    Stream.TEL: 512 * _KIB,
    Stream.OBS: 2 * _MIB,
    Stream.PLAN: 4 * _MIB,
    Stream.CLAIM: 64 * _KIB,
    Stream.DEC: MAX_PAYLOAD,
    Stream.HEADS: 16 * _KIB,
}
# Only the core creates consumers: one for each reader of a projector, for 30 s after its last
# request. Any other one, a durable one too, ends after five minutes without a request.
_CONSUMERS: dict[str, Any] = {
    "max_consumers": 256,
    "consumer_limits": {"inactive_threshold": 300 * _SECOND},
}
_LIMITS: dict[Stream, dict[str, Any]] = {
    Stream.TEL: {
        **_KEPT,
        "discard": "old",
        "max_bytes": 8 * _GIB,
        "max_age": 24 * 3600 * _SECOND,
    },
    Stream.OBS: {**_KEPT, "max_bytes": 4 * _GIB},
    Stream.PLAN: {**_KEPT, "max_bytes": 1 * _GIB},
    Stream.CLAIM: {**_KEPT, "max_bytes": 1 * _GIB},
    Stream.DEC: {**_KEPT, "max_bytes": 8 * _GIB},
    Stream.HEADS: {**_KEPT, "max_bytes": 2 * _GIB},  # never purged; enough for ten months
}


def declaration(stream: Stream, subjects: Subjects, replicas: int = 1) -> dict[str, Any]:
    return {
        "name": str(stream),
        "subjects": subjects.patterns(stream),
        "storage": "file",
        "retention": "limits",
        "num_replicas": replicas,
        "duplicate_window": 120 * _SECOND,
        "allow_direct": True,
        "max_msg_size": _MESSAGE[stream],
        **_CONSUMERS,
        **_LIMITS[stream],
    }


async def prepare_streams(address: Address, subjects: Subjects, replicas: int = 1) -> None:
    """`ensure` with a connection of its own, which is that of the broker's administrator."""
    connection = await Connection.open(address, "joulie-admin")
    try:
        await ensure(connection, subjects, replicas)
    finally:
        await connection.close()


async def ensure(connection: Connection, subjects: Subjects, replicas: int = 1) -> None:
    """Creates missing streams. An existing stream keeps the limits that its operator configured.

    Subjects and limits that this version adds are added to streams of older versions. A stream with
    fewer copies than `replicas` gets more, while it is read and written; none is taken away.
    """
    for stream, config in (await _configs(connection)).items():
        wanted = declaration(stream, subjects, replicas)
        if config is None:
            await connection.api(f"STREAM.CREATE.{stream}", wanted)
            continue
        if changes := _changes(config, stream, subjects, replicas):
            config |= changes
            await connection.api(f"STREAM.UPDATE.{stream}", config)
        if limits := _missing_limits(config, wanted):
            await _limit(connection, stream, config | limits)


async def _limit(connection: Connection, stream: Stream, config: dict[str, Any]) -> None:
    """A broker that refuses, of an older version or for what the stream has, is used without."""
    try:
        await connection.api(f"STREAM.UPDATE.{stream}", config)
    except BrokerRefused as refusal:
        log.warning("stream_not_limited", stream=str(stream), why=str(refusal))


def _missing_limits(config: Mapping[str, Any], wanted: Mapping[str, Any]) -> dict[str, Any]:
    """The limits that neither a version of Joulie nor an operator has set."""
    names = [name for name in ("max_msg_size", "max_consumers") if config.get(name, -1) <= 0]
    if not config.get("consumer_limits"):
        names.append("consumer_limits")
    return {name: wanted[name] for name in names}


async def require(connection: Connection, subjects: Subjects) -> None:
    """Checks the streams, for roles that may not create them. During an election, too: the other
    copies have the same configuration.
    """
    configs = await _configs(connection, of_any_copy=True)
    if missing := [stream for stream, config in configs.items() if config is None]:
        raise StreamsMissing(connection.address.safe_url, missing)
    for stream, config in configs.items():
        found: list[str] = (config or {}).get("subjects", [])
        wanted = subjects.patterns(stream)
        if not all(map(subjects.owns, found)) or not set(wanted) <= set(found):
            raise StreamsForeign(connection.address.safe_url, stream, found, wanted)


async def _configs(
    connection: Connection, *, of_any_copy: bool = False
) -> dict[Stream, dict[str, Any] | None]:
    """The configuration of each stream; None for a missing stream."""
    found: dict[Stream, dict[str, Any] | None] = {}
    for stream in Stream:
        try:
            answer = await connection.api(f"STREAM.INFO.{stream}", of_any_copy=of_any_copy)
            found[stream] = answer["config"]
        except BrokerRefused as refusal:
            if refusal.code != STREAM_NOT_FOUND:
                raise
            found[stream] = None
    return found


def _changes(
    config: dict[str, Any], stream: Stream, subjects: Subjects, replicas: int
) -> dict[str, Any]:
    changes: dict[str, Any] = {}
    if lacking := _lacking(config, stream, subjects):
        changes["subjects"] = [*config.get("subjects", ()), *lacking]
    if config.get("num_replicas", 1) < replicas:
        changes["num_replicas"] = replicas
    return changes


def _lacking(config: dict[str, Any], stream: Stream, subjects: Subjects) -> list[str]:
    return [each for each in subjects.patterns(stream) if each not in config.get("subjects", ())]


async def state_of(connection: Connection, stream: Stream) -> StreamState:
    answer = await connection.api(f"STREAM.INFO.{stream}")
    state, cluster = answer["state"], answer.get("cluster") or {}
    replicas = cluster.get("replicas") or ()
    peers = sorted(each["name"] for each in replicas)
    return StreamState(
        stream,
        answer["created"],
        state["first_seq"],
        state["last_seq"],
        (cluster.get("leader", ""), *peers) if peers else (),
        state.get("num_deleted", 0),
        tuple(each["name"] for each in replicas if not each.get("current", True)),
    )


async def tip_of(connection: Connection, stream: Stream) -> StreamTip:
    answer = await connection.api(f"STREAM.INFO.{stream}")
    return StreamTip(
        stream,
        answer["created"],
        answer["state"]["last_seq"],
        nanoseconds(answer["ts"]),
        unconfirmed_ns(answer.get("cluster") or {}),
    )


def unconfirmed_ns(cluster: Mapping[str, Any]) -> int:
    """The time since a majority of the replicas answered the leader; 0 for a single replica.

    A leader that lost its majority continues to answer requests for up to 20 s.
    """
    silent = sorted(map(_silent_ns, cluster.get("replicas") or ()))
    needed = (len(silent) + 1) // 2  # besides the leader
    return max(0, silent[needed - 1]) if needed else 0


async def size_of(connection: Connection, stream: Stream) -> StreamSize:
    answer = await connection.api(f"STREAM.INFO.{stream}")
    config, state = answer["config"], answer["state"]
    return StreamSize(
        stream,
        bytes=state["bytes"],
        max_bytes=max(0, config.get("max_bytes", 0)),
        drops_old=config.get("discard", "old") == "old",
        first=state["first_seq"],
        first_at=nanoseconds(state["first_ts"]),
        last_at=nanoseconds(state["last_ts"]),
        last=state["last_seq"],
        silent_ns=_servers(answer.get("cluster") or {}),
    )


def _servers(cluster: Mapping[str, Any]) -> dict[str, int]:
    """The time since each server with a copy answered the leader, by its name."""
    replicas, leader = cluster.get("replicas") or (), cluster.get("leader")
    silent = {each["name"]: _silent_ns(each) for each in replicas}
    return {leader: 0, **silent} if silent and leader else silent


def _silent_ns(replica: Mapping[str, Any]) -> int:
    """A replica that never answered this leader has 0 ns, and is not current."""
    active: int = replica.get("active", 0)
    return active if active > 0 or replica.get("current") else _NEVER


async def time_of(connection: Connection, stream: Stream) -> int:
    """The clock of the broker, in ns since 1970."""
    answer = await connection.api(f"STREAM.INFO.{stream}")
    return nanoseconds(answer["ts"])


async def last_on(connection: Connection, stream: Stream, subject: str) -> Stored | None:
    """The newest message of one subject."""
    message = await _message(connection, stream, {"last_by_subj": subject})
    return None if message is None else Stored(message["seq"], _bytes(message))


async def message_at(connection: Connection, stream: Stream, sequence: int) -> Record | None:
    message = await _message(connection, stream, {"seq": sequence})
    if message is None:
        return None
    at = nanoseconds(message["time"])
    return Record(stream, message["seq"], at, _bytes(message), message["subject"])


async def _message(
    connection: Connection, stream: Stream, which: dict[str, Any]
) -> dict[str, Any] | None:
    try:
        answer = await connection.api(f"STREAM.MSG.GET.{stream}", which)
    except BrokerRefused as refusal:
        if refusal.code == MESSAGE_NOT_FOUND:
            return None
        raise
    found: dict[str, Any] = answer["message"]
    return found


def _bytes(message: dict[str, Any]) -> bytes:
    return msgspec.convert(message.get("data", ""), bytes, strict=False)


def nanoseconds(moment: str) -> int:
    """Parses RFC 3339 with up to nine decimals; the broker omits trailing zeros."""
    seconds, _, fraction = moment.removesuffix("Z").partition(".")
    return _second(seconds) * _SECOND + int(fraction.ljust(9, "0"))


@lru_cache(maxsize=64)  # many messages are of one second
def _second(moment: str) -> int:
    return calendar.timegm(time.strptime(moment, "%Y-%m-%dT%H:%M:%S"))


async def continue_after(connection: Connection, ends: Mapping[Stream, int]) -> dict[Stream, str]:
    """Makes each stream continue after the sequence in `ends`; returns their identities.

    Raises StreamsInUse, without a change, unless the streams are empty and not beyond `ends`.
    """
    states = [await state_of(connection, stream) for stream in ends]
    used = {
        str(state.stream): f"messages {state.first} to {state.last}"
        if state.holds_messages
        else f"empty, but its next sequence is {state.last + 1}, after {ends[state.stream]}"
        for state in states
        if state.holds_messages or state.last > ends[state.stream]
    }
    if used:
        raise StreamsInUse(connection.address.safe_url, used)
    for state in states:
        if state.last < ends[state.stream]:
            await purge(connection, state.stream, ends[state.stream] + 1)
    return {state.stream: state.created for state in states}


async def identities(
    connection: Connection, read: Mapping[Stream, tuple[int, bytes]]
) -> dict[Stream, str]:
    """The identities of streams that hold what was read: by stream a sequence, and the digest of
    its message, if that is known. Raises StreamsDiffer for others."""
    found, differ = dict[Stream, str](), dict[str, str]()
    for stream, (sequence, digest) in read.items():
        state = await state_of(connection, stream)
        found[stream] = state.created
        if why := await _difference(connection, state, sequence, digest):
            differ[str(stream)] = why
    if differ:
        raise StreamsDiffer(connection.address.safe_url, differ)
    return found


async def _difference(
    connection: Connection, state: StreamState, sequence: int, digest: bytes
) -> str:
    if state.last < sequence:
        return f"it ends at {state.last}, and {sequence} was read"
    if state.first > sequence + 1:
        return f"it begins at {state.first}, and only {sequence} was read"
    record = await message_at(connection, state.stream, sequence) if sequence else None
    if digest and record is not None and digest_of(record) != digest:
        return f"its message {sequence} is another one"
    return ""


async def purge(connection: Connection, stream: Stream, before: int) -> None:
    """Deletes the messages below a sequence; the others keep their sequence."""
    await connection.api(f"STREAM.PURGE.{stream}", {"seq": before})
