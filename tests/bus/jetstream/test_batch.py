import asyncio
from collections import Counter

import pytest

from bus_kit import CLUSTER, claim, connected, eco, plan_made, power, producer, stored
from joulie_bus.broker.embedded import Embedded
from joulie_bus.errors import BrokerRefused, ExpectationFailed
from joulie_bus.events import AnyEvent
from joulie_bus.jetstream import batch
from joulie_bus.jetstream.connection import Connection
from joulie_bus.jetstream.streams import state_of
from joulie_bus.log.producer import Producer
from joulie_bus.streams.batch_limits import MAX_BATCH, MAX_OPEN
from joulie_bus.streams.records import Message
from joulie_bus.streams.subjects import Stream

pytestmark = pytest.mark.anyio
FIRST = {CLUSTER.plan_meta: 0}  # no plan was stored before


def plan(says: Producer, nodes: int = 2) -> list[Message]:
    events: list[AnyEvent] = [plan_made(), *(eco(f"n{number}") for number in range(nodes))]
    return [says.stamp(event) for event in events]


async def last(connection: Connection) -> int:
    return (await state_of(connection, Stream.PLAN)).last


@pytest.mark.parametrize("nodes", [0, 1, 2, MAX_BATCH - 1])
async def test_a_batch_is_stored_whole_and_in_its_order(connection: Connection, nodes: int) -> None:
    messages = plan(producer(), nodes)
    await batch.append(connection, Stream.PLAN, messages, FIRST)
    records = await stored(connection, Stream.PLAN)

    assert [record.data for record in records] == [message.data for message in messages]


@pytest.mark.parametrize("nodes", [0, 2])
async def test_the_second_writer_stores_nothing(connection: Connection, nodes: int) -> None:
    await batch.append(connection, Stream.PLAN, plan(producer(boot="b1")), FIRST)
    with pytest.raises(ExpectationFailed, match="Another writer came first") as caught:
        await batch.append(connection, Stream.PLAN, plan(producer(boot="b2"), nodes), FIRST)

    assert caught.value.expected == {CLUSTER.plan_meta: 0}
    assert await last(connection) == 3


async def test_one_of_two_claims_on_a_card_succeeds(connection: Connection) -> None:
    says = producer()
    first, second = says.stamp(claim("g1", "pod-a")), says.stamp(claim("g1", "pod-b"))
    other = says.stamp(claim("g2", "pod-b"))
    await batch.append(connection, Stream.CLAIM, [first], {first.subject: 0})
    with pytest.raises(ExpectationFailed):
        await batch.append(connection, Stream.CLAIM, [second], {second.subject: 0})
    await batch.append(connection, Stream.CLAIM, [other], {other.subject: 0})

    assert [record.data for record in await stored(connection, Stream.CLAIM)] == [
        first.data,
        other.data,
    ]


async def test_the_writer_with_the_newest_plan_writes_the_next(connection: Connection) -> None:
    says = producer()
    await batch.append(connection, Stream.PLAN, plan(says), FIRST)
    await batch.append(connection, Stream.PLAN, plan(says), {CLUSTER.plan_meta: 1})

    assert await last(connection) == 6


@pytest.mark.parametrize("nodes", [0, 2])
async def test_a_retry_of_what_was_stored_counts_as_stored(
    connection: Connection, nodes: int
) -> None:
    messages = plan(producer(), nodes)
    await batch.append(connection, Stream.PLAN, messages, FIRST)
    await batch.append(connection, Stream.PLAN, messages, FIRST)

    assert await last(connection) == len(messages)


@pytest.mark.parametrize("nodes", [0, 2])
async def test_a_retry_counts_as_stored_when_the_broker_forgot_the_ids(
    connection: Connection, nodes: int
) -> None:
    messages = plan(producer(), nodes)
    for message in messages:
        await connection.request(message.subject, message.data)  # without an id to remember
    await batch.append(connection, Stream.PLAN, messages, FIRST)

    assert await last(connection) == len(messages)


async def test_one_event_that_no_stream_takes_keeps_the_whole_batch_out(
    connection: Connection,
) -> None:
    says = producer()
    messages = [*plan(says), says.stamp(power("n1", 100)), says.stamp(eco("n9"))]
    with pytest.raises(BrokerRefused):
        await batch.append(connection, Stream.PLAN, messages, FIRST)

    assert await last(connection) == 0


@pytest.mark.parametrize("count", [0, MAX_BATCH + 1])
async def test_a_batch_that_the_broker_never_takes_is_not_even_sent(
    connection: Connection, count: int
) -> None:
    messages = plan(producer(), MAX_BATCH)[:count]
    with pytest.raises(ValueError, match=f"1 to {MAX_BATCH} messages, not {count}"):
        await batch.append(connection, Stream.PLAN, messages, FIRST)

    assert await last(connection) == 0


async def test_more_batches_at_once_than_the_broker_takes_wait_for_each_other(
    connection: Connection,
) -> None:
    says = producer()
    pairs = [
        [says.stamp(claim(f"g{number}-{card}", f"pod-{number}")) for card in range(2)]
        for number in range(6 * MAX_OPEN)
    ]
    await asyncio.gather(
        *(
            batch.append(connection, Stream.CLAIM, pair, {each.subject: 0 for each in pair})
            for pair in pairs
        )
    )

    found = Counter(record.data for record in await stored(connection, Stream.CLAIM))
    assert found == Counter(message.data for pair in pairs for message in pair)


async def test_a_batch_that_finds_no_room_for_long_is_refused(
    connection: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batch, "ROOM_S", 0.0)
    for number in range(MAX_OPEN):
        head = {"Nats-Batch-Id": f"open-{number}", "Nats-Batch-Sequence": "1"}
        await connection.request(CLUSTER.plan_meta, b"never committed", head)
    with pytest.raises(BrokerRefused, match="too many inflight") as caught:
        await batch.append(connection, Stream.PLAN, plan(producer()), FIRST)

    assert caught.value.code == batch.TOO_MANY_BATCHES
    assert await last(connection) == 0


async def test_what_was_appended_lives_through_a_power_cut(
    broker: Embedded, connection: Connection
) -> None:
    messages = plan(producer(), 50)
    await batch.append(connection, Stream.PLAN, messages, FIRST)
    broker.kill()
    await broker.wait()
    await broker.start()
    async with connected(broker) as anew:
        records = await stored(anew, Stream.PLAN)

    assert [record.data for record in records] == [message.data for message in messages]
