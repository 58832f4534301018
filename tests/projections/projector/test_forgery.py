"""The limits of a leaked credential: real roles, a real broker, a real projector.

Each test sends the messages of an attacker, with the role of the leaked credential.
"""

import asyncio
import json
from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import NamedTuple

import pytest
from msgspec.structs import replace

from bus_kit import (
    CLUSTER,
    NOON,
    ask,
    bound,
    caps,
    card,
    claim,
    confirmed,
    connected,
    eco,
    node_seen,
    power,
    producer,
    released,
    stored,
    until,
)
from joulie_bus.broker.embedded import Embedded
from joulie_bus.events import AnyEvent, Basis, Candidates, FilterDecided, OutcomeSeen, codec
from joulie_bus.jetstream.connection import Connection
from joulie_bus.jetstream.log import JetStreamLog
from joulie_bus.log.producer import Producer
from joulie_bus.runtime import metrics
from joulie_bus.streams.records import Message
from joulie_bus.streams.roles import Role
from joulie_bus.streams.subjects import Stream, agent_name
from joulie_projections.chain.entry import UNREADABLE, message_in
from joulie_projections.fold.commit import Poison
from joulie_projections.history.history import History, StoredEntry
from joulie_projections.state.deltas import encode
from joulie_projections.store.database import Place
from joulie_projections.view.view import View

pytestmark = pytest.mark.anyio
Projecting = Callable[..., AbstractAsyncContextManager[asyncio.Task[None]]]
Viewing = Callable[[], AbstractAsyncContextManager[View]]

NODE: list[AnyEvent] = [node_seen("n1", cores=8, gpus=1), card("GPU-1"), power("n1", 300)]
CLAIMED: list[AnyEvent] = [claim("GPU-1", "train"), confirmed("GPU-1", "train")]


@pytest.fixture
def place(database_file: Path) -> Place:
    """SQLite alone: a forgery is refused by the fold, and what is quarantined is written to both
    databases in the tests of the quarantine and of attacks."""
    return database_file


@pytest.fixture
async def watched(
    broker: Embedded, projecting: Projecting, viewing: Viewing
) -> AsyncGenerator[View, None]:
    """A node with a card, and a pod that has claimed the card."""
    async with projecting(), viewing() as view:
        await send(broker, Role.SIMULATOR, *_stamped("sim", *NODE))
        await send(broker, Role.EXTENDER, *_stamped("extender-0-claims", *CLAIMED))
        await view.wait_for(len(NODE) + len(CLAIMED), 60)
        yield view


def _stamped(name: str, *events: AnyEvent) -> list[Message]:
    """Stamps events; each stream has its own producer."""
    by_stream: dict[str, Producer] = {}
    made = []
    for event in events:
        family = CLUSTER.of(event, name).split(".")[1]
        sender = by_stream.setdefault(family, producer(f"{name}-{family}"))
        made.append(sender.stamp(event))
    return made


def numbered(message: Message, event_id: str) -> Message:
    envelope = codec.open_envelope(message.data, "here")
    return Message(message.subject, event_id, codec.seal(replace(envelope, id=event_id)))


async def send(broker: Embedded, role: Role, *messages: Message) -> None:
    async with connected(broker, role=role) as connection, JetStreamLog.over(connection) as bus:
        await bus.publish(messages)


def quarantined(place: Place) -> list[Poison]:
    with History.of(place) as history:
        return history.quarantined()


def refused(stream: Stream) -> float:
    return float(metrics.REFUSED.labels(stream=stream)._value.get())


class Attacker(NamedTuple):
    """A credential, and a subject that it may publish to."""

    role: Role
    subject: str


AGENT = Attacker(Role.AGENT, "joulie.agent.test.evil")
METER = Attacker(Role.SIMULATOR, "joulie.tel.test.evil")
FORGERIES: dict[str, AnyEvent] = {
    "a claim released": released("GPU-1", "train"),
    "a claim made": claim("GPU-1", "thief"),
    "a node set to eco": eco("n1"),
    "a cap of 1 %": caps("n1", cpu=1),
    "a node invented": node_seen("ghost"),
    "the power of another node": power("n1", 0),
    "a pod bound": bound("p", "n1"),
}


@pytest.mark.parametrize("attacker", [AGENT, METER], ids=lambda each: str(each.role))
@pytest.mark.parametrize("forgery", FORGERIES)
async def test_a_telemetry_credential_can_forge_no_other_fact(
    attacker: Attacker, forgery: str, watched: View, broker: Embedded, place: Place
) -> None:
    before, counted = _cluster_state(watched), refused(Stream.TEL)
    forged = producer(agent_name("evil")).stamp(FORGERIES[forgery])

    await send(broker, attacker.role, forged._replace(subject=attacker.subject))
    await watched.wait_for(len(NODE) + len(CLAIMED) + 1, 60)

    [poison] = quarantined(place)
    assert _cluster_state(watched) == before
    assert "was refused, because its sender may not write it" in poison.why
    assert attacker.subject in poison.why
    assert "'agent-evil'" in poison.why
    assert refused(Stream.TEL) == counted + 1


def _cluster_state(view: View) -> tuple[object, ...]:
    cluster_state = view.cluster_state
    return dict(cluster_state.nodes), dict(cluster_state.gpus), dict(cluster_state.pods)


@pytest.mark.parametrize(
    ("name", "subject", "node"),
    [
        pytest.param("agent-n1", "joulie.agent.test.evil", "evil", id="another agent's name"),
        pytest.param("sim-tel", "joulie.agent.test.evil", "evil", id="the name of a meter"),
        pytest.param("agent-evil", "joulie.agent.test.evil", "n1", id="another agent's node"),
        pytest.param("agent-n=31", "joulie.agent.test.n=31", "n1", id="another spelling of a node"),
    ],
)
async def test_an_agent_can_write_only_under_its_own_name_about_its_own_node(
    name: str, subject: str, node: str, watched: View, broker: Embedded, place: Place
) -> None:
    before = _cluster_state(watched)
    huge = Producer(name, CLUSTER, lambda: NOON, "b1").stamp(power(node, 0))
    forged = numbered(huge, f"{name}:b1:{10**17}")._replace(subject=subject)

    await send(broker, Role.AGENT, forged)
    await watched.wait_for(len(NODE) + len(CLAIMED) + 1, 60)

    assert _cluster_state(watched) == before
    assert len(quarantined(place)) == 1


async def test_reports_of_an_agent_about_its_own_node_are_folded(
    watched: View, broker: Embedded, place: Place
) -> None:
    sender = producer(agent_name("n1"))
    messages = [sender.stamp(power("n1", watts)) for watts in (310, 320)]

    await send(broker, Role.AGENT, *messages)
    await watched.wait_for(len(NODE) + len(CLAIMED) + 2, 60)

    assert {message.subject for message in messages} == {"joulie.agent.test.n1"}
    assert watched.cluster_state.nodes["n1"].samples[-1].power_mw == 320_000
    assert quarantined(place) == []


@pytest.mark.parametrize(
    ("role", "forged", "following"),
    [
        pytest.param(
            Role.EXTENDER,
            claim("GPU-1", "other"),
            node_seen("n2"),
            id="an extender, with the name of the watcher",
        ),
        pytest.param(
            Role.SIMULATOR,
            power("n1", 300),
            claim("GPU-1", "next"),
            id="a meter, with the name of the extender",
        ),
    ],
)
async def test_a_huge_number_in_one_family_affects_no_counter_of_another(
    role: Role,
    forged: AnyEvent,
    following: AnyEvent,
    watched: View,
    broker: Embedded,
    place: Place,
) -> None:
    victim = producer("victim")
    fact = victim.stamp(following)
    bad = numbered(producer("victim").stamp(forged), f"victim:b1:{10**17}")

    await send(broker, role, bad)
    await watched.wait_for(len(NODE) + len(CLAIMED) + 1, 60)
    before = _cluster_state(watched)
    await send(broker, Role.ADMIN, fact)
    await watched.wait_for(len(NODE) + len(CLAIMED) + 2, 60)

    assert _cluster_state(watched) != before
    assert quarantined(place) == []


# --- decisions ------------------------------------------------------------------------------------


def entries(place: Place) -> list[StoredEntry]:
    with History.of(place) as history:
        return list(history.entries())


DECISION = FilterDecided(
    pod=ask("p"),
    basis=Basis(view=0, view_age_ms=0, now=NOON, settings="s"),
    candidates=Candidates(ordinals=b""),
    verdicts=b"",
)
OUTCOME = OutcomeSeen(pod_uid="p", namespace="team", name="p", node="n1")


@pytest.mark.parametrize(
    ("replica", "subject", "event"),
    [
        pytest.param("victim", "joulie.dec.test.evil", DECISION, id="another replica"),
        pytest.param("evil", "joulie.dec.test.evil", OUTCOME, id="an outcome"),
        pytest.param("evil", "joulie.dec.test.evil", node_seen("n1"), id="a fact"),
    ],
)
async def test_a_replica_can_write_only_its_own_decisions(
    replica: str,
    subject: str,
    event: AnyEvent,
    projecting: Projecting,
    broker: Embedded,
    place: Place,
) -> None:
    forged = producer(replica).stamp(event)._replace(subject=subject)
    async with projecting():
        await send(broker, Role.EXTENDER, forged)
        await until(lambda: len(entries(place)) == 1)

    [entry] = entries(place)
    assert (entry.kind, entry.pod_uid) == (UNREADABLE, "")
    assert message_in(entry.body) == forged.data


async def test_a_replica_that_calls_itself_projector_writes_no_decision(
    projecting: Projecting, bus: JetStreamLog, place: Place
) -> None:
    async with projecting():
        await bus.publish([producer("projector").stamp(DECISION)])
        await until(lambda: len(entries(place)) == 1)

    assert [entry.kind for entry in entries(place)] == [UNREADABLE]


# --- messages that the broker sends on behalf of a client -----------------------------------------


async def pull_to(broker: Embedded, stream: Stream, reply: str, count: int = 9) -> None:
    """As a reader in the account of the core: the broker sends old messages to any subject."""
    create = f"CONSUMER.CREATE.{stream}.evil"
    config = {"name": "evil", "deliver_policy": "all", "ack_policy": "none", "mem_storage": True}
    pull = json.dumps({"batch": count, "expires": 1_000_000_000}).encode()
    async with connected(broker, role=Role.PROJECTOR) as connection:
        await connection.api(create, {"stream_name": str(stream), "config": config})
        await connection.send(f"$JS.API.CONSUMER.MSG.NEXT.{stream}.evil", pull, reply)
        await connection.flush()


async def forget_ids(connection: Connection, stream: Stream) -> None:
    """Ends the window in which the broker drops repeats."""
    config = (await connection.api(f"STREAM.INFO.{stream}"))["config"]
    config |= {"duplicate_window": 100_000_000}
    await connection.api(f"STREAM.UPDATE.{stream}", config)
    await asyncio.sleep(0.3)


async def test_an_old_message_resent_into_its_stream_is_a_repeat(
    watched: View, broker: Embedded, connection: Connection, place: Place
) -> None:
    await send(broker, Role.EXTENDER, *_stamped("replica-2", released("GPU-1", "train")))
    await watched.wait_for(len(NODE) + len(CLAIMED) + 1, 60)
    await forget_ids(connection, Stream.CLAIM)
    before = _cluster_state(watched)

    await pull_to(broker, Stream.CLAIM, "joulie.claim.test.GPU-9", 2)
    await watched.wait_for(len(NODE) + len(CLAIMED) + 3, 60)

    again = await stored(connection, Stream.CLAIM)
    assert [record.subject for record in again] == ["joulie.claim.test.GPU-1"] * 5
    assert [record.data for record in again[3:]] == [record.data for record in again[:2]]
    assert _cluster_state(watched) == before
    assert quarantined(place) == []


async def test_an_old_message_resent_into_another_stream_is_refused(
    watched: View, broker: Embedded, connection: Connection, place: Place
) -> None:
    before = _cluster_state(watched)

    await pull_to(broker, Stream.CLAIM, "joulie.obs.test.node.n1", 2)
    await watched.wait_for(len(NODE) + len(CLAIMED) + 2, 60)

    assert (await stored(connection, Stream.OBS))[-1].subject == "joulie.claim.test.GPU-1"
    assert _cluster_state(watched) == before
    assert ["was refused" in poison.why for poison in quarantined(place)] == [True, True]


async def test_a_reply_of_the_broker_to_a_subject_of_facts_changes_nothing(
    watched: View, broker: Embedded, place: Place
) -> None:
    """A user in the account of the core may name any reply subject, whatever its permissions."""
    before = _cluster_state(watched)

    async with connected(broker, role=Role.PROJECTOR) as connection:
        await connection.send("$JS.API.INFO", b"", "joulie.plan.test._meta")
        await connection.send("$JS.API.INFO", b"", "joulie.claim.test.GPU-1")
        await connection.flush()
    await watched.wait_for(len(NODE) + len(CLAIMED) + 2, 60)

    assert _cluster_state(watched) == before
    assert {poison.stream for poison in quarantined(place)} == {Stream.PLAN, Stream.CLAIM}


async def test_a_reply_of_the_broker_into_the_live_view_stops_no_reader(
    watched: View, broker: Embedded
) -> None:
    async with connected(broker, role=Role.PROJECTOR) as connection:
        for subject in (CLUSTER.beat, CLUSTER.delta):
            await connection.send("$JS.API.INFO", b"", subject)
        await connection.flush()

    await send(broker, Role.SIMULATOR, producer("later").stamp(power("n1", 777)))
    await watched.wait_for(len(NODE) + len(CLAIMED) + 1, 60)

    assert watched.cluster_state.nodes["n1"].samples[-1].power_mw == 777_000


async def test_a_stored_message_resent_into_the_live_view_is_not_a_beat(
    watched: View, broker: Embedded, connection: Connection
) -> None:
    known = watched.last_beat
    assert known is not None
    forged = replace(known, position=10**9, incarnation="evil")
    beat = Message("joulie.tel.test.evil", "an id", encode(forged))
    await send(broker, Role.SIMULATOR, beat)
    received: list[bytes] = []
    async with connection.listening(CLUSTER.beat, received.append):
        await pull_to(broker, Stream.TEL, CLUSTER.beat)
        await asyncio.sleep(0.6)  # two beats

    assert beat.data not in received
    assert watched.last_beat is not None
    assert watched.last_beat.incarnation == known.incarnation
