import asyncio
from pathlib import Path
from typing import Any

import pytest

from bus_kit import CLUSTER, bare_broker, connected, eco, performance, power, producer
from joulie_bus.errors import BrokerRefused, StreamsForeign, StreamsInUse
from joulie_bus.events.codec import open_envelope
from joulie_bus.jetstream import streams
from joulie_bus.jetstream.connection import Connection
from joulie_bus.jetstream.publisher import Publisher
from joulie_bus.jetstream.streams import (
    continue_after,
    declaration,
    ensure,
    last_on,
    nanoseconds,
    purge,
    require,
    state_of,
)
from joulie_bus.streams.records import Message, StreamState
from joulie_bus.streams.subjects import Stream, Subjects, agent_name

pytestmark = pytest.mark.anyio


async def config_of(connection: Connection, stream: Stream) -> dict[str, Any]:
    config: dict[str, Any] = (await connection.api(f"STREAM.INFO.{stream}"))["config"]
    return config


async def test_every_stream_is_made_as_it_is_declared(connection: Connection) -> None:
    wanted = [declaration(stream, CLUSTER) for stream in Stream]
    found = [await config_of(connection, stream) for stream in Stream]

    assert [
        {key: have.get(key) for key in want} for want, have in zip(wanted, found, strict=True)
    ] == wanted


async def test_a_purge_removes_what_lies_before_a_sequence_and_nothing_else(
    connection: Connection,
) -> None:
    says = producer()
    async with Publisher.on(connection) as publisher:
        await publisher.publish([says.stamp(eco(f"n{number}")) for number in range(5)])
    born = (await state_of(connection, Stream.PLAN)).created
    await purge(connection, Stream.PLAN, 4)
    await purge(connection, Stream.PLAN, 4)  # again, after a crash

    assert await state_of(connection, Stream.PLAN) == StreamState(Stream.PLAN, born, 4, 5)


ENDS = {Stream.PLAN: 700, Stream.OBS: 0}


async def test_an_empty_stream_continues_after_a_sequence_also_when_its_broker_is_killed(
    tmp_path: Path,
) -> None:
    async with bare_broker(tmp_path) as broker:
        async with connected(broker) as connection:
            await ensure(connection, CLUSTER)
            created = await continue_after(connection, ENDS)
            again = await continue_after(connection, ENDS)  # after a crash of the caller
        broker.kill()
        await broker.wait()
        await broker.start()
        async with connected(broker) as connection, Publisher.on(connection) as publisher:
            await publisher.publish([producer().stamp(eco("n1"))])
            plan, seen = [await state_of(connection, stream) for stream in ENDS]

    assert again == created
    assert plan == StreamState(Stream.PLAN, created[Stream.PLAN], 701, 701)
    assert (seen.created, seen.holds_messages) == (created[Stream.OBS], False)


async def test_a_stream_with_messages_continues_no_other_one(connection: Connection) -> None:
    async with Publisher.on(connection) as publisher:
        await publisher.publish([producer().stamp(eco("n1"))])

    with pytest.raises(StreamsInUse, match="JOULIE_PLAN: messages 1 to 1"):
        await continue_after(connection, {Stream.OBS: 5, Stream.PLAN: 700})
    assert (await state_of(connection, Stream.OBS)).last == 0
    await purge(connection, Stream.PLAN, 800)
    with pytest.raises(StreamsInUse, match="JOULIE_PLAN: empty, but its next sequence is 800"):
        await continue_after(connection, {Stream.PLAN: 700})


async def test_no_message_is_deleted_out_of_the_middle_of_a_stream(connection: Connection) -> None:
    says = producer()
    async with Publisher.on(connection) as publisher:
        await publisher.publish([says.stamp(eco("n1")), says.stamp(eco("n2"))])

    with pytest.raises(BrokerRefused, match="not permitted"):
        await connection.api(f"STREAM.MSG.DELETE.{Stream.PLAN}", {"seq": 1})


async def test_only_telemetry_may_age_out(connection: Connection) -> None:
    configs = {stream: await config_of(connection, stream) for stream in Stream}

    assert [s for s, config in configs.items() if config["discard"] == "old"] == [Stream.TEL]
    assert [s for s, config in configs.items() if config["max_age"]] == [Stream.TEL]


async def test_ensuring_again_changes_nothing(connection: Connection) -> None:
    before = [await state_of(connection, stream) for stream in Stream]
    await ensure(connection, CLUSTER)

    assert [await state_of(connection, stream) for stream in Stream] == before


async def test_limits_that_an_operator_changed_are_kept(connection: Connection) -> None:
    config = await config_of(connection, Stream.OBS) | {"max_bytes": 1_000_000}
    await connection.api(f"STREAM.UPDATE.{Stream.OBS}", config)
    await ensure(connection, CLUSTER)

    assert (await config_of(connection, Stream.OBS))["max_bytes"] == 1_000_000


NOT_LIMITED = {"max_msg_size": -1, "max_consumers": -1, "consumer_limits": {}}


@pytest.mark.parametrize("kept", [{}, {"max_msg_size": 9_000}, {"max_consumers": 9}], ids=str)
async def test_a_stream_of_an_older_version_gets_limits_that_its_operator_did_not_set(
    connection: Connection, kept: dict[str, Any]
) -> None:
    wanted = await config_of(connection, Stream.OBS)
    await connection.api(f"STREAM.UPDATE.{Stream.OBS}", wanted | NOT_LIMITED | kept)

    await ensure(connection, CLUSTER)

    assert await config_of(connection, Stream.OBS) == wanted | kept


async def test_a_stream_whose_consumers_exceed_the_limits_is_used_as_it_is(
    connection: Connection,
) -> None:
    found = await config_of(connection, Stream.OBS) | NOT_LIMITED
    await connection.api(f"STREAM.UPDATE.{Stream.OBS}", found)
    idle = {"durable_name": "mine", "ack_policy": "none", "inactive_threshold": 3600 * 10**9}
    body = {"stream_name": str(Stream.OBS), "config": idle}
    await connection.api(f"CONSUMER.DURABLE.CREATE.{Stream.OBS}.mine", body)

    await ensure(connection, CLUSTER)

    assert (await state_of(connection, Stream.OBS)).last == 0


async def test_a_stream_stores_no_message_beyond_its_limit(connection: Connection) -> None:
    limit = declaration(Stream.HEADS, CLUSTER)["max_msg_size"]
    async with Publisher.on(connection) as publisher:
        with pytest.raises(BrokerRefused, match="exceeds"):
            await publisher.publish([Message(CLUSTER.heads, "big", bytes(limit))])
        await publisher.publish([Message(CLUSTER.heads, "small", bytes(1000))])

    assert (await state_of(connection, Stream.HEADS)).last == 1


async def test_a_stream_has_at_most_as_many_consumers_as_it_declares(
    connection: Connection,
) -> None:
    most = declaration(Stream.PLAN, CLUSTER)["max_consumers"]

    async def create(number: int) -> None:
        config = {"name": f"c{number}", "ack_policy": "none"}
        body = {"stream_name": str(Stream.PLAN), "config": config}
        await connection.api(f"CONSUMER.CREATE.{Stream.PLAN}.c{number}", body)

    await asyncio.gather(*map(create, range(most)))
    with pytest.raises(BrokerRefused, match="maximum consumers limit reached"):
        await create(most)
    info = await connection.api(f"CONSUMER.INFO.{Stream.PLAN}.c0")
    assert info["config"]["inactive_threshold"] == 300 * 10**9


async def test_many_may_ensure_at_the_same_time(tmp_path: Path) -> None:
    async with bare_broker(tmp_path / "broker") as broker, connected(broker) as connection:
        await asyncio.gather(*(ensure(connection, CLUSTER) for _ in range(5)))
        states = [await state_of(connection, stream) for stream in Stream]

    assert [(state.stream, state.last) for state in states] == [(stream, 0) for stream in Stream]


async def test_a_stream_that_is_not_there_is_refused_with_its_code(tmp_path: Path) -> None:
    async with bare_broker(tmp_path / "broker") as broker, connected(broker) as connection:
        with pytest.raises(BrokerRefused) as caught:
            await state_of(connection, Stream.OBS)

    assert caught.value.code == streams.STREAM_NOT_FOUND


async def test_a_stream_state_has_first_last_and_creation_time(
    connection: Connection,
) -> None:
    born = (await state_of(connection, Stream.PLAN)).created
    says = producer()
    async with Publisher.on(connection) as publisher:
        await publisher.publish([says.stamp(eco(f"n{number}")) for number in range(3)])

    assert await state_of(connection, Stream.PLAN) == StreamState(Stream.PLAN, born, 1, 3)


async def test_the_newest_of_a_subject_is_found(connection: Connection) -> None:
    says = producer()
    messages = [says.stamp(event) for event in (eco("n1"), performance("n1"), eco("n2"))]
    async with Publisher.on(connection) as publisher:
        for message in messages:
            await publisher.publish([message])
    found = await last_on(connection, Stream.PLAN, CLUSTER.of(eco("n1")))

    assert found is not None
    assert (found.sequence, found.data) == (2, messages[1].data)
    assert open_envelope(found.data, "here").id == "tester:b1:2"


async def test_an_unused_subject_has_no_newest_message(connection: Connection) -> None:
    assert await last_on(connection, Stream.PLAN, CLUSTER.plan_meta) is None


@pytest.mark.parametrize(
    ("moment", "expected"),
    [
        ("1970-01-01T00:00:01Z", 1_000_000_000),
        ("1970-01-01T00:00:01.5Z", 1_500_000_000),
        ("2026-11-23T16:06:30.123456789Z", 1_795_449_990_123_456_789),
    ],
)
def test_a_brokers_time_is_read_to_the_nanosecond(moment: str, expected: int) -> None:
    assert nanoseconds(moment) == expected


async def test_a_stream_of_an_older_version_gets_the_subjects_of_this_one(
    connection: Connection,
) -> None:
    """And keeps its messages, and the limits that an administrator changed."""
    agent = producer(agent_name("n1")).stamp(power("n1", 1))
    older = await config_of(connection, Stream.TEL)
    changed = older | {"subjects": ["joulie.tel.test.*"], "max_bytes": 1_000_000}
    await connection.api(f"STREAM.UPDATE.{Stream.TEL}", changed)
    with pytest.raises(StreamsForeign, match=r"stores joulie.tel.test.\*, and this version writes"):
        await require(connection, CLUSTER)

    await ensure(connection, CLUSTER)

    await require(connection, CLUSTER)
    async with Publisher.on(connection) as publisher:
        await publisher.publish([agent])
    assert await config_of(connection, Stream.TEL) == older | {"max_bytes": 1_000_000}


async def test_a_stream_of_another_cluster_is_named_before_anything_is_read(
    connection: Connection,
) -> None:
    with pytest.raises(StreamsForeign, match="JOULIE_TEL"):
        await require(connection, Subjects("other"))
    foreign = await config_of(connection, Stream.OBS)
    foreign["subjects"] = [*foreign["subjects"], "joulie.obs.*.*"]
    await connection.api(f"STREAM.UPDATE.{Stream.OBS}", foreign)

    with pytest.raises(StreamsForeign, match="JOULIE_OBS"):
        await require(connection, CLUSTER)
