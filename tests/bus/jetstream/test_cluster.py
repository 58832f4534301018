"""Three servers, and what the loss of one of them costs: nothing."""

import asyncio
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from bus_kit import CLUSTER, connected, node_seen, producer, running_cluster, stored
from joulie_bus.errors import BrokerRefused, Unreachable
from joulie_bus.events.codec import open_envelope
from joulie_bus.jetstream import connection as connections
from joulie_bus.jetstream.connection import Address, Connection
from joulie_bus.jetstream.publisher import Publisher
from joulie_bus.jetstream.reader import ConsumerReader
from joulie_bus.jetstream.streams import ensure, require, state_of, tip_of, unconfirmed_ns
from joulie_bus.runtime.tasks import wait_and_clear
from joulie_bus.streams.records import Record
from joulie_bus.streams.roles import Role
from joulie_bus.streams.subjects import Stream

pytestmark = pytest.mark.anyio
EVENTS = 3000


async def info(connection: Connection, stream: Stream) -> dict[str, Any]:
    return await connection.api(f"STREAM.INFO.{stream}")


async def until_stored(connection: Connection, count: int) -> None:
    while (await state_of(connection, Stream.OBS)).last < count:
        await asyncio.sleep(0)


async def until_refused(connection: Connection, stream: Stream, why: str) -> None:
    """The server waits for a leader, and for one of all streams, before it states its own end."""
    while True:
        try:
            found = await tip_of(connection, stream)
        except Unreachable:
            continue
        except BrokerRefused as refusal:
            if why in str(refusal):
                return
        else:
            raise AssertionError(found)


async def until_checked(connection: Connection) -> None:
    while True:
        try:
            return await require(connection, CLUSTER)
        except Unreachable:
            continue
        except BrokerRefused as refusal:
            if "knows no leader" in str(refusal):
                raise


async def read_to(reader: ConsumerReader, wakeup: asyncio.Event, last: int) -> list[Record]:
    found: list[Record] = []
    while not found or found[-1].sequence < last:
        await wait_and_clear(wakeup, 1)
        found += reader.take(1000)
    return found


@pytest.mark.slow
@pytest.mark.long
async def test_the_loss_of_a_streams_leader_loses_no_event_and_doubles_none(
    tmp_path: Path,
) -> None:
    says, wakeup = producer(), asyncio.Event()
    messages = [says.stamp(node_seen(f"n{number}")) for number in range(EVENTS)]
    async with asyncio.timeout(60), running_cluster(tmp_path) as servers:
        async with connected(servers["n0"]) as connection:
            await ensure(connection, CLUSTER, replicas=3)
            told = await info(connection, Stream.OBS)
        leader = servers[told["cluster"]["leader"]]
        async with (
            connected(leader) as connection,  # loses its connection and its stream's leader at once
            Publisher.on(connection) as publisher,
            ConsumerReader.on(connection, Stream.OBS, 0, wakeup=wakeup) as reader,
        ):
            publishing = asyncio.create_task(publisher.publish(messages))
            await until_stored(connection, EVENTS // 10)
            leader.kill()
            await leader.wait()
            assert not publishing.done()
            await publishing
            records = await read_to(reader, wakeup, EVENTS)
            kept = await stored(connection, Stream.OBS)

    assert told["config"]["num_replicas"] == 3
    assert Counter(open_envelope(record.data, "here").id for record in kept) == Counter(
        message.id for message in messages
    )
    assert records == kept


@pytest.mark.slow
async def test_a_leader_that_lost_its_majority_answers_since_when(tmp_path: Path) -> None:
    async with asyncio.timeout(60), running_cluster(tmp_path) as servers:
        async with connected(servers["n0"]) as connection:
            await ensure(connection, CLUSTER, replicas=3)
            leader = (await info(connection, Stream.OBS))["cluster"]["leader"]
        async with connected(servers[leader]) as connection:
            before = await tip_of(connection, Stream.OBS)
            for name, server in servers.items():
                if name != leader:
                    server.kill()
                    await server.wait()
            lost_at = time.monotonic()
            after = before
            while after.unconfirmed_ns < 3e9:
                await asyncio.sleep(0.1)
                after = await tip_of(connection, Stream.OBS)
            lasted_ns = (time.monotonic() - lost_at) * 1e9

    assert before.unconfirmed_ns < 2e9, "replicas answer the leader once a second"
    assert after.unconfirmed_ns <= lasted_ns + 2e9, "no longer than since the last answer"


def test_a_replica_that_never_answered_this_leader_confirms_nothing() -> None:
    """The server reports 0 ns for it, as for one that has just answered."""
    other = {"name": "n1", "active": 7_000_000_000, "current": True}
    never = {"name": "n2", "active": 0, "current": False}

    assert unconfirmed_ns({"leader": "n0", "replicas": [other, never]}) == 7_000_000_000


@pytest.mark.slow
@pytest.mark.long
async def test_a_server_that_knows_no_leader_states_no_end_of_a_stream(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "TEMPORARY_S", 0.0)
    async with asyncio.timeout(60), running_cluster(tmp_path) as servers:
        async with connected(servers["n0"]) as connection:
            await ensure(connection, CLUSTER, replicas=3)
            leader = (await info(connection, Stream.OBS))["cluster"]["leader"]
        [alone, other] = [name for name in servers if name != leader]
        async with connected(servers[alone]) as connection:
            for name in (leader, other):
                servers[name].kill()
                await servers[name].wait()
            await until_refused(connection, Stream.OBS, "knows no leader")
            await until_checked(connection)  # a component that starts now does not end


@pytest.mark.slow
async def test_streams_get_more_copies_while_they_are_read(tmp_path: Path) -> None:
    says, wakeup = producer(), asyncio.Event()
    async with (
        asyncio.timeout(60),
        running_cluster(tmp_path) as servers,
        connected(servers["n0"]) as connection,
        Publisher.on(connection) as publisher,
    ):
        await ensure(connection, CLUSTER, replicas=1)
        before = await state_of(connection, Stream.OBS)
        await publisher.publish([says.stamp(node_seen(f"n{n}")) for n in range(500)])
        async with ConsumerReader.on(connection, Stream.OBS, 0, before.created, wakeup) as reader:
            await ensure(connection, CLUSTER, replicas=3)
            await publisher.publish([says.stamp(node_seen(f"n{n}")) for n in range(500)])
            records = await read_to(reader, wakeup, 1000)
        while not all_current(await info(connection, Stream.OBS)):
            await asyncio.sleep(0.05)
        await ensure(connection, CLUSTER, replicas=1)  # takes none away
        after = await info(connection, Stream.OBS)

    assert [record.sequence for record in records] == list(range(1, 1001))
    assert (after["config"]["num_replicas"], after["created"]) == (3, before.created)


def all_current(found: dict[str, Any]) -> bool:
    copies = found["cluster"].get("replicas", [])
    return len(copies) == 2 and all(copy["current"] for copy in copies)


@pytest.mark.slow
async def test_of_several_addresses_one_that_lives_is_enough(tmp_path: Path) -> None:
    async with asyncio.timeout(60), running_cluster(tmp_path) as servers:
        gone, *others = servers.values()
        gone.kill()
        await gone.wait()
        one = gone.address_of(Role.ADMIN)
        urls = ",".join(server.url for server in (gone, *others))
        connection = await Connection.open(
            Address(url=urls, user=one.user, password=one.password, inbox=one.inbox), "test"
        )
        await connection.close()
