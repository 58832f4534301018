"""What a client with the credential of one role can try at the broker.

Every call of the API of JetStream, reply subjects on every stream and on the live view, consumers
of every kind, headers by which a message makes the broker do something. None of the answers
matters: what counts is what the broker holds afterwards.
"""

import asyncio
import contextlib
import itertools
from collections.abc import AsyncGenerator, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any, NamedTuple

import msgspec

from bus_kit import CLUSTER
from joulie_bus.jetstream.connection import Connection
from joulie_bus.streams.roles import Grant
from joulie_bus.streams.subjects import PATTERNS, Stream

CALLS = (
    *("INFO", "ACCOUNT.PURGE.JOULIE", "SERVER.REMOVE", "META.LEADER.STEPDOWN", "STREAM.NAMES"),
    *("STREAM.LIST", "STREAM.TEMPLATE.NAMES"),
)
CALLS_OF_A_STREAM = (
    *("STREAM.CREATE.{0}", "STREAM.UPDATE.{0}", "STREAM.INFO.{0}", "STREAM.DELETE.{0}"),
    *("STREAM.MSG.DELETE.{0}", "STREAM.MSG.GET.{0}", "STREAM.SNAPSHOT.{0}", "STREAM.RESTORE.{0}"),
    *("STREAM.PEER.REMOVE.{0}", "STREAM.LEADER.STEPDOWN.{0}", "CONSUMER.NAMES.{0}"),
    *("DIRECT.GET.{0}", "CONSUMER.LIST.{0}", "CONSUMER.INFO.{0}.evil", "CONSUMER.DELETE.{0}.evil"),
    *("CONSUMER.MSG.NEXT.{0}.evil", "CONSUMER.RESET.{0}.evil", "CONSUMER.PAUSE.{0}.evil"),
    *("CONSUMER.UNPIN.{0}.evil", "CONSUMER.LEADER.STEPDOWN.{0}.evil", "STREAM.CREATE.{0}_EVIL"),
)
BODIES: tuple[dict[str, Any], ...] = (
    {},
    {"subjects_filter": ">", "deleted_details": True},
    {"seq": 1, "batch": 1000},
    {"batch": 1000, "expires": 10**9},
    {"name": "EVIL", "subjects": ["evil.>"], "storage": "file"},
)


class Shot(NamedTuple):
    """One message, with a reply subject of the attacker's choice."""

    subject: str
    data: bytes
    reply: str
    headers: dict[str, str] | None = None


# The broker replaces this header of a request that an account imports: whose request it is.
FORGED = {"Nats-Request-Info": '{"acc":"JOULIE","svc":"JOULIE","user":"admin"}'}


def traces(grant: Grant, target: str) -> tuple[dict[str, str], ...]:
    """None to a subject on which the user may publish: a trace goes there as a message does."""
    if may_publish(grant, target):
        return ()
    return (
        {"Nats-Trace-Dest": target},
        {"Nats-Trace-Dest": target, "Nats-Trace-Only": "true"},
    )


def may_publish(grant: Grant, subject: str) -> bool:
    def is_one_of(patterns: Sequence[str]) -> bool:
        return any(fnmatchcase(subject, pattern) for pattern in patterns)

    return is_one_of(grant.publish) and not is_one_of(grant.deny)


def headers(target: str) -> tuple[dict[str, str] | None, ...]:
    """Schedules to another subject, and what changes or removes other messages."""
    return (
        None,
        FORGED,
        {"Nats-Schedule": "@every 1s", "Nats-Schedule-Target": target},
        {"Nats-Schedule": "@at 2020-01-01T00:00:00Z", "Nats-Schedule-Target": target},
        {"Nats-Rollup": "all"},
        {"Nats-Rollup": "sub"},
        {"Nats-TTL": "1s"},
        {"Nats-Incr": "+1"},
        {"Nats-Stream-Source": f"{Stream.HEADS} 1 > > {target}"},
    )


def targets() -> list[str]:
    """Subjects at which somebody stores or believes what arrives."""
    stored = [
        pattern.format(cluster=CLUSTER.cluster).replace("*", "evil")
        for pattern in PATTERNS.values()
    ]
    outcomes = CLUSTER.decisions("projector")
    return [*stored, outcomes, CLUSTER.plan_meta, CLUSTER.beat, CLUSTER.delta]


def calls(reply: str, turn: int) -> Iterator[Shot]:
    """Each call once; its body is another one at each turn."""
    verbs = [*CALLS, *(each.format(stream) for stream in Stream for each in CALLS_OF_A_STREAM)]
    for number, verb in enumerate(verbs):
        body = BODIES[(number + turn) % len(BODIES)]
        yield Shot(f"$JS.API.{verb}", msgspec.json.encode(body), reply, (None, FORGED)[turn % 2])


def consumers(reply: str) -> Iterator[Shot]:
    """Durable and ephemeral, pulled and pushed to the target, on every stream."""
    for number, stream in enumerate(Stream):
        for kind in ("pull", "push", "durable"):
            name = f"evil-{kind}-{number}"
            config: dict[str, Any] = {"name": name, "ack_policy": "none", "deliver_policy": "all"}
            if kind == "push":
                config |= {"deliver_subject": reply}
            if kind == "durable":
                config |= {"durable_name": name}
            body = msgspec.json.encode({"stream_name": str(stream), "config": config})
            for verb in ("CREATE.{0}.{1}", "CREATE.{0}", "DURABLE.CREATE.{0}.{1}"):
                subject = verb.format(stream, name)
                yield Shot(f"$JS.API.CONSUMER.{subject}", body, reply)
            pull = msgspec.json.encode({"batch": 100, "expires": 10**9})
            yield Shot(f"$JS.API.CONSUMER.MSG.NEXT.{stream}.{name}", pull, reply)


def own_messages(grant: Grant, reply: str) -> Iterator[Shot]:
    """What the user may publish, with the target as the reply subject and in headers."""
    for pattern in grant.publish:
        if pattern.startswith("joulie."):
            parts = [CLUSTER.cluster if n == 2 else t for n, t in enumerate(pattern.split("."))]
            subject = ".".join(parts).replace("*", "own")
            for each in (*headers(reply), *traces(grant, reply)):
                yield Shot(subject, b"", reply, each)


def round_of_shots(grant: Grant, first: int) -> list[Shot]:
    shots: list[Shot] = []
    for turn, target in enumerate(targets(), first):
        shots += [*own_messages(grant, target), *consumers(target), *calls(target, turn)]
    return shots


async def attack(connection: Connection, grant: Grant, seconds: float) -> int:
    """Sends everything once, and then again until the time has passed; returns how much."""
    clock = asyncio.get_running_loop().time
    ends_at, sent = clock() + seconds, 0
    for number in itertools.count():
        for shot in round_of_shots(grant, number):
            await connection.send(shot.subject, shot.data, shot.reply, shot.headers)
            sent += 1
        await connection.flush()
        if clock() >= ends_at:
            return sent
    raise AssertionError


class Holdings(NamedTuple):
    """What a broker holds: names of streams, and of each stream its messages and consumers."""

    streams: list[str]
    messages: dict[str, dict[str, int]]  # by stream, the number of each subject
    consumers: dict[str, int]


async def holdings(connection: Connection) -> Holdings:
    names = sorted((await connection.api("STREAM.NAMES"))["streams"])
    messages, consuming = {}, {}
    for name in names:
        info = await connection.api(f"STREAM.INFO.{name}", {"subjects_filter": ">"})
        messages[name] = info["state"].get("subjects", {})
        consuming[name] = info["state"]["consumer_count"]
    return Holdings(names, messages, consuming)


def grown(before: Holdings, after: Holdings, grant: Grant) -> dict[str, object]:
    """What is there beside what the user may write itself."""
    own = {shot.subject for shot in own_messages(grant, "")}
    found: dict[str, object] = {}
    if before.streams != after.streams:
        found["streams"] = after.streams
    for stream, counts in after.messages.items():
        more = _more(counts, before.messages.get(stream, {}), own)
        if more:
            found[stream] = more
    if before.consumers != after.consumers:
        found["consumers"] = after.consumers
    return found


def _more(now: Mapping[str, int], then: Mapping[str, int], own: set[str]) -> dict[str, int]:
    return {
        subject: count - then.get(subject, 0)
        for subject, count in now.items()
        if count != then.get(subject, 0) and subject not in own
    }


@contextlib.asynccontextmanager
async def overhearing(connection: Connection) -> AsyncGenerator[list[bytes], None]:
    """What arrives at the live view while the block runs."""
    heard: list[bytes] = []
    pattern = f"joulie.view.{CLUSTER.cluster}.*"
    async with connection.listening(pattern, heard.append):
        yield heard
