import asyncio
import contextlib
from collections.abc import AsyncGenerator, Awaitable, Callable

import pytest

from bus_kit import (
    CLUSTER,
    connected,
    eco,
    node_seen,
    power,
    producer,
    running_broker,
    stored,
)
from joulie_bus.broker.embedded import Embedded
from joulie_bus.errors import BrokerRefused, Unreachable
from joulie_bus.events import AnyEvent
from joulie_bus.jetstream import publisher as publishing
from joulie_bus.jetstream.connection import Connection
from joulie_bus.jetstream.publisher import Publisher
from joulie_bus.jetstream.streams import last_on
from joulie_bus.runtime import metrics
from joulie_bus.streams.records import Message
from joulie_bus.streams.roles import GRANTS, Role, inbox
from joulie_bus.streams.subjects import PATTERNS, PROJECTOR, Stream, agent_name
from one_broker import anyio_backend

__all__ = ["anyio_backend"]  # a fixture
pytestmark = pytest.mark.anyio

Verb = Callable[[Connection], Awaitable[object]]


@pytest.fixture(scope="module")
async def broker(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[Embedded, None]:
    """With one message in each stream."""
    async with running_broker(tmp_path_factory.mktemp("broker")) as running:
        async with connected(running) as connection, Publisher.on(connection) as publisher:
            filled = [pattern.format(cluster="test") for pattern in PATTERNS.values()]
            subjects = [pattern.replace("*", "first") for pattern in filled]
            await publisher.publish([Message(subject, subject, b"") for subject in subjects])
        yield running


def publishes(subject: str) -> Verb:
    async def verb(connection: Connection) -> None:
        async with Publisher.on(connection) as publisher:
            await publisher.publish([Message(subject, subject, b"")])

    return verb


def tells(subject: str) -> Verb:
    """The subject has no responders, which the broker reports only to roles that may publish."""
    return lambda connection: connection.request(subject, b"")


def listens(subject: str) -> Verb:
    def hear(_: bytes) -> None: ...

    async def verb(connection: Connection) -> None:
        async with connection.listening(subject, hear):
            pass

    return verb


def asks(api: str) -> Verb:
    """What is asked is wrong, and what it is about is not there; but may it be asked?"""
    return lambda connection: connection.api(api, {"nonsense": True})


def asks_for_silence(api: str) -> Verb:
    """The broker sends this reply only to roles without the permission."""

    async def verb(connection: Connection) -> None:
        with contextlib.suppress(Unreachable):
            await connection.request(f"$JS.API.{api}", b"", timeout_s=0.2)

    return verb


def reads(stream: Stream) -> Verb:
    return lambda connection: stored(connection, stream)


def subject_of(event: AnyEvent) -> str:
    return CLUSTER.of(event)


VERBS: dict[str, Verb] = {
    "publish telemetry": publishes(subject_of(power("n1", 100))),
    "publish telemetry as an agent": publishes(CLUSTER.of(power("n1", 100), agent_name("n1"))),
    "publish observations": publishes(subject_of(node_seen("n1"))),
    "publish plans": publishes(subject_of(eco("n1"))),
    "publish decisions": publishes(CLUSTER.decisions("r1")),
    "publish outcomes": publishes(CLUSTER.decisions(PROJECTOR)),
    "publish claims": publishes("joulie.claim.test.gpu-1"),
    "publish heads": publishes(CLUSTER.heads),
    "tell the view": tells(CLUSTER.beat),
    "tell of a spool": tells(CLUSTER.spool("r1")),
    "tell a stranger": tells("elsewhere"),
    "ask for a cut": tells(CLUSTER.cuts),
    "hear requests for cuts": listens(CLUSTER.cuts),
    "see the view": listens(CLUSTER.delta),
    "hear decisions": listens("joulie.dec.test.*"),
    "hear of spools": listens(CLUSTER.spools),
    "hear plans": listens("joulie.plan.test.*"),
    "listen to everything": listens(">"),
    "listen to facts": listens("joulie.tel.>"),
    "listen to the administrator": listens(f"{inbox(Role.ADMIN)}.>"),
    "read plans": reads(Stream.HEADS),
    "get the newest plan": lambda c: last_on(c, Stream.PLAN, CLUSTER.plan_meta),
    "get the newest claim": lambda c: last_on(c, Stream.CLAIM, "joulie.claim.test.gpu-1"),
    "get any message": lambda c: last_on(c, Stream.DEC, CLUSTER.decisions("r1")),
    "ask for a stream": asks("STREAM.INFO.NOPE"),
    "ask for names": asks("STREAM.NAMES"),
    "create a stream": asks("STREAM.CREATE.NOPE"),
    "change a stream": asks("STREAM.UPDATE.NOPE"),
    "delete a stream": asks("STREAM.DELETE.NOPE"),
    "purge a stream": asks("STREAM.PURGE.NOPE"),
    "purge a stream of ours": lambda c: c.api(f"STREAM.PURGE.{Stream.DEC}", {"seq": 1}),
    "purge the heads": lambda c: c.api(f"STREAM.PURGE.{Stream.HEADS}", {"seq": 1}),
    "snapshot a stream": asks("STREAM.SNAPSHOT.NOPE"),
    "restore a stream": asks("STREAM.RESTORE.NOPE"),
    "delete a message": asks("STREAM.MSG.DELETE.NOPE"),
    "make a lasting consumer": asks("CONSUMER.DURABLE.CREATE.NOPE.c"),
    "delete a consumer": asks("CONSUMER.DELETE.NOPE.c"),
    "reset a consumer": asks_for_silence("CONSUMER.RESET.NOPE.c"),
}
EVERYBODY = {"ask for a stream", "ask for names"}
MAY: dict[Role, set[str]] = {
    Role.ADMIN: set(VERBS),
    Role.PROJECTOR: EVERYBODY
    | {"read plans", "publish heads", "publish outcomes", "tell the view"}
    | {"get the newest plan", "purge a stream of ours", "hear requests for cuts"},
    Role.OPERATOR: EVERYBODY
    | {"publish telemetry", "publish observations", "publish plans"}
    | {"get the newest plan", "see the view"},
    Role.EXTENDER: EVERYBODY
    | {"publish decisions", "publish claims", "get the newest claim", "see the view"}
    | {"tell of a spool"},
    Role.AGENT: EVERYBODY | {"publish telemetry as an agent"},
    Role.SIMULATOR: EVERYBODY | {"publish telemetry", "publish observations", "see the view"},
    Role.AUDITOR: EVERYBODY | {"read plans", "see the view"},
    Role.ARCHIVIST: EVERYBODY | {"read plans", "ask for a cut"},
    Role.CONSOLE: EVERYBODY | {"read plans", "see the view", "hear of spools"},
    Role.VIEWER: EVERYBODY | {"see the view", "hear decisions", "hear plans"},
}


def denials() -> float:
    return float(metrics.BROKER_ERRORS.labels(kind="permission")._value.get())


async def is_denied(connection: Connection, verb: Verb) -> bool:
    """Any other refusal comes from a responder that accepted the request."""
    try:
        async with asyncio.timeout(60):
            await verb(connection)
    except BrokerRefused as refusal:
        return refusal.code == 403
    return False


@pytest.mark.parametrize("role", Role)
async def test_a_role_may_do_what_it_may_and_every_other_attempt_is_counted(
    role: Role, broker: Embedded
) -> None:
    denied, counted = set(), set()
    async with connected(broker, role=role) as connection:
        for name, verb in VERBS.items():
            before = denials()
            if await is_denied(connection, verb):
                denied.add(name)
            if denials() > before:
                counted.add(name)

    assert set(VERBS) - denied == MAY[role]
    assert counted == denied


async def test_only_roles_that_read_streams_can_read_one(broker: Embedded) -> None:
    readers = set()
    for role in Role:
        async with connected(broker, role=role) as connection:
            verdicts = {await is_denied(connection, reads(stream)) for stream in Stream}
            assert len(verdicts) == 1
            if verdicts == {False}:
                readers.add(role)

    assert readers == {*(Role.ADMIN, Role.PROJECTOR, Role.AUDITOR, Role.ARCHIVIST, Role.CONSOLE)}


async def test_what_is_denied_leaves_room_for_what_is_not(
    broker: Embedded, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(publishing, "WINDOW", 4)
    says = producer(agent_name("n1"))
    forbidden = [says.stamp(eco(f"n{number}")) for number in range(20)]
    async with (
        asyncio.timeout(60),
        connected(broker, role=Role.AGENT) as connection,
        Publisher.on(connection) as publisher,
    ):
        with pytest.raises(BrokerRefused, match="may not publish there") as caught:
            await publisher.publish(forbidden)
        await publisher.publish([says.stamp(power("n1", 100))])

    assert (caught.value.subject, caught.value.code) == (forbidden[0].subject, 403)


async def test_what_is_denied_to_one_caller_hurts_no_other(broker: Embedded) -> None:
    says = producer(agent_name("N1"))
    async with (
        asyncio.timeout(60),
        connected(broker, role=Role.AGENT) as connection,
        Publisher.on(connection) as publisher,
    ):
        ends = await asyncio.gather(
            publisher.publish([says.stamp(power("N1", 100))]),
            publisher.publish([says.stamp(eco("N1"))]),
            return_exceptions=True,
        )

    assert [type(end) for end in ends] == [type(None), BrokerRefused]


async def test_a_client_without_permission_for_replies_gets_an_error(broker: Embedded) -> None:
    address = broker.address_of(Role.AGENT)
    stranger = type(address)(url=address.url, user=address.user, password=address.password)
    connection = await Connection.open(stranger, "test")
    async with contextlib.AsyncExitStack() as stack:
        stack.push_async_callback(connection.close)

        with pytest.raises(BrokerRefused, match="code 403"):
            async with asyncio.timeout(60):
                await connection.api("STREAM.NAMES")


def test_every_family_of_subjects_has_one_role_that_fills_it_beside_the_simulator() -> None:
    writers = {
        family: {
            role for role, grant in GRANTS.items() if pattern.format(cluster="*") in grant.publish
        }
        for family, pattern in PATTERNS.items()
    }

    assert all(len(roles - {Role.SIMULATOR}) == 1 for roles in writers.values()), writers
