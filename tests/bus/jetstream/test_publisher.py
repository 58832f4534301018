import asyncio
import base64
import contextlib
import os
import signal
from collections import Counter
from collections.abc import AsyncGenerator, Generator
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from bus_kit import bare_broker, connected, eco, performance, power, producer, stored
from joulie_bus.broker.embedded import Embedded
from joulie_bus.errors import BrokerRefused
from joulie_bus.events.codec import open_envelope
from joulie_bus.jetstream import batch, in_flight
from joulie_bus.jetstream import publisher as publishing
from joulie_bus.jetstream.connection import MAX_PAYLOAD, Connection
from joulie_bus.jetstream.publisher import Publisher, _Ack
from joulie_bus.jetstream.streams import state_of
from joulie_bus.runtime import metrics
from joulie_bus.streams.batch_limits import MAX_OPEN
from joulie_bus.streams.records import Message
from joulie_bus.streams.subjects import Stream

pytestmark = pytest.mark.anyio


@pytest.fixture
async def bare(tmp_path: Path) -> AsyncGenerator[Connection, None]:
    """A broker without a stream."""
    async with bare_broker(tmp_path / "broker") as broker, connected(broker) as opened:
        yield opened


def samples(count: int) -> list[Message]:
    says = producer()
    return [says.stamp(power(f"n{number}", number)) for number in range(count)]


async def ids(connection: Connection, stream: Stream = Stream.TEL) -> Counter[str]:
    return Counter(
        open_envelope(record.data, "here").id for record in await stored(connection, stream)
    )


async def until_stored(connection: Connection, count: int) -> None:
    async with asyncio.timeout(60):
        while (await state_of(connection, Stream.TEL)).last < count:
            await asyncio.sleep(0)


async def make_stream(connection: Connection, subject: str, **limits: object) -> None:
    config = {"name": "JOULIE_TEL", "subjects": [subject], "storage": "file", **limits}
    await connection.api("STREAM.CREATE.JOULIE_TEL", config)


async def test_published_is_stored_once_and_in_order(connection: Connection) -> None:
    messages = samples(1500)  # more than may be on their way at once
    async with Publisher.on(connection) as publisher, asyncio.timeout(60):
        await publisher.publish(messages)
    records = await stored(connection, Stream.TEL)

    assert [record.data for record in records] == [message.data for message in messages]


async def test_publishing_nothing_is_done_at_once(connection: Connection) -> None:
    async with Publisher.on(connection) as publisher, asyncio.timeout(60):
        await publisher.publish([])


async def test_many_callers_share_a_publisher(connection: Connection) -> None:
    messages = samples(2000)
    async with Publisher.on(connection) as publisher, asyncio.timeout(60):
        await asyncio.gather(
            *(publisher.publish(messages[at : at + 100]) for at in range(0, 2000, 100))
        )

    assert await ids(connection) == Counter(message.id for message in messages)


async def batches(connection: Connection, count: int) -> list[int]:
    """How many messages lie together, batch by batch; one that came alone is a 1."""
    found = Counter[str]()
    for number in range(1, count + 1):
        answer = await connection.api("STREAM.MSG.GET.JOULIE_TEL", {"seq": number})
        head = base64.b64decode(answer["message"]["hdrs"]).decode()
        found[head.partition("Nats-Batch-Id: ")[2][:16] or f"alone-{number}"] += 1
    return list(found.values())


@pytest.mark.parametrize(
    ("count", "expected"),
    [(19, [1] * 19), (20, [20]), (525, [250, 250, 25]), (253, [250, 1, 1, 1])],
)
async def test_many_messages_share_a_sync_of_the_disk_and_few_go_alone(
    count: int, expected: list[int], connection: Connection
) -> None:
    async with Publisher.on(connection) as publisher, asyncio.timeout(60):
        await publisher.publish(samples(count))

    assert await batches(connection, count) == expected


async def test_no_message_overtakes_a_batch_that_was_published_before_it(
    connection: Connection,
) -> None:
    messages = samples(1220)
    parts = [messages[20:520], messages[520:521], messages[521:1021], messages[1021:]]
    async with Publisher.on(connection) as publisher, asyncio.timeout(60):
        await asyncio.gather(
            publisher.publish(messages[:20]), *(publisher.publish(part) for part in parts)
        )
    records = await stored(connection, Stream.TEL)

    assert [record.data for record in records] == [message.data for message in messages]


async def test_a_stream_that_takes_no_batches_gets_each_for_itself(bare: Connection) -> None:
    await make_stream(bare, "joulie.tel.>")
    messages = samples(60)
    async with Publisher.on(bare) as publisher, asyncio.timeout(60):
        await publisher.publish(messages[:30])
        await publisher.publish(messages[30:])
    records = await stored(bare, Stream.TEL)

    assert [record.data for record in records] == [message.data for message in messages]


async def test_where_the_broker_takes_no_more_batches_each_goes_alone_and_the_log_names_it(
    connection: Connection,
) -> None:
    for number in range(MAX_OPEN):
        head = {"Nats-Batch-Id": f"open-{number}", "Nats-Batch-Sequence": "1"}
        await connection.request("joulie.tel.test.hostile", b"never committed", head)
    messages = samples(60)
    with capture_logs() as lines:
        async with (
            Publisher.on(connection) as publisher,
            asyncio.timeout(60),
        ):
            await publisher.publish(messages[:20])
            await publisher.publish(messages[20:40])
            await publisher.publish(messages[40:])

    assert await ids(connection) == Counter(message.id for message in messages)
    assert await batches(connection, 60) == [1] * 60
    [line] = [line for line in lines if line["event"] == "batch_refused"]
    assert "too many inflight" in line["why"]
    assert line["meanwhile"] == "messages are sent one by one for a minute"


async def test_many_of_which_one_is_refused_are_refused(bare: Connection) -> None:
    await make_stream(bare, "joulie.tel.>", allow_atomic=True, max_msgs=10, discard="new")
    async with Publisher.on(bare) as publisher, asyncio.timeout(60):
        with pytest.raises(BrokerRefused, match="maximum messages exceeded"):
            await publisher.publish(samples(30))

    assert await ids(bare) == Counter(message.id for message in samples(10))


async def test_messages_of_several_streams_are_stored_in_the_order_of_each(
    connection: Connection,
) -> None:
    says = producer()
    messages = [says.stamp(make(f"n{at}")) for at in range(15) for make in (eco, performance)]
    messages += samples(15)
    async with Publisher.on(connection) as publisher, asyncio.timeout(60):
        await publisher.publish(messages)
    records = await stored(connection, Stream.PLAN) + await stored(connection, Stream.TEL)

    assert [record.data for record in records] == [message.data for message in messages]


async def test_the_same_event_twice_is_stored_once(connection: Connection) -> None:
    messages = samples(50)
    async with Publisher.on(connection) as publisher:
        await asyncio.gather(publisher.publish(messages), publisher.publish(messages))
        await publisher.publish(messages)

    assert await ids(connection) == Counter(message.id for message in messages)


@pytest.mark.parametrize("end", ["kill -9", "stop"])
@pytest.mark.long
async def test_publishing_lives_through_a_restart_of_the_broker(
    broker: Embedded, connection: Connection, end: str
) -> None:
    messages = samples(20_000)
    async with Publisher.on(connection) as publisher, asyncio.timeout(60):
        publishing_all = asyncio.create_task(publisher.publish(messages))
        await until_stored(connection, 300)
        if end == "kill -9":
            broker.kill()
        else:
            await broker.stop()
        await broker.wait()
        assert not publishing_all.done()
        await broker.start()
        await publishing_all

    async with connected(broker) as anew:
        assert await ids(anew) == Counter(message.id for message in messages)


async def test_what_was_published_while_the_broker_was_away_is_stored_once_it_is_back(
    broker: Embedded, connection: Connection
) -> None:
    messages = samples(100)
    async with Publisher.on(connection) as publisher, asyncio.timeout(60):
        broker.kill()
        await broker.wait()
        waiting = asyncio.create_task(publisher.publish(messages))
        await broker.start()
        await waiting

    async with connected(broker) as anew:
        assert await ids(anew) == Counter(message.id for message in messages)


@contextlib.contextmanager
def halted(broker: Embedded) -> Generator[None, None, None]:
    """The broker gets no CPU within the block, and its connections stay."""
    os.kill(broker.pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(broker.pid, signal.SIGCONT)


async def until_resent(more: int) -> None:
    goal = metrics.RESENT._value.get() + more
    async with asyncio.timeout(60):
        while metrics.RESENT._value.get() < goal:
            await asyncio.sleep(0.01)


async def test_a_broker_without_cpu_gets_one_message_again_and_the_log_has_one_line(
    broker: Embedded, connection: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(in_flight, "ACK_DEADLINE_S", 0.1)
    messages, before = samples(19), metrics.RESENT._value.get()
    with capture_logs() as lines:
        async with Publisher.on(connection) as publisher, asyncio.timeout(60):
            with halted(broker):
                publishing_all = asyncio.create_task(publisher.publish(messages))
                await until_resent(3)
                later = asyncio.create_task(publisher.publish(samples(1)))
            await publishing_all
            await later

    assert await ids(connection) == Counter(message.id for message in messages)
    assert metrics.RESENT._value.get() - before < 19, "not all of them again and again"
    events = [line["event"] for line in lines]
    assert events.count("unacknowledged") == events.count("acknowledged_again") == 1


async def test_a_batch_that_a_slow_broker_stored_meanwhile_is_stored_once(
    broker: Embedded, connection: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(publishing, "ACK_DEADLINE_S", 0.1)
    monkeypatch.setattr(batch, "ANSWER_S", 0.2)
    messages = samples(200)
    async with Publisher.on(connection) as publisher, asyncio.timeout(60):
        with halted(broker):
            publishing_all = asyncio.create_task(publisher.publish(messages))
            await until_resent(400)
        await publishing_all
        await publisher.publish(more := samples(240)[200:])

    assert await ids(connection) == Counter(message.id for message in [*messages, *more])
    assert (await batches(connection, 240))[-1] == 40, "and the next ones are a batch again"


async def test_a_subject_that_no_stream_takes_is_refused_by_name(
    bare: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(in_flight, "ACK_DEADLINE_S", 0.1)
    async with Publisher.on(bare) as publisher, asyncio.timeout(60):
        with pytest.raises(BrokerRefused, match="no stream takes this subject") as caught:
            await publisher.publish(samples(3))

    assert (caught.value.subject, caught.value.code) == ("joulie.tel.test.n0", 10059)


async def test_a_full_stream_refuses_at_once_and_with_its_code(bare: Connection) -> None:
    await make_stream(bare, "joulie.tel.>", max_bytes=2000, discard="new")
    async with Publisher.on(bare) as publisher, asyncio.timeout(60):
        with pytest.raises(BrokerRefused, match="maximum bytes exceeded") as caught:
            await publisher.publish(samples(100))

    assert caught.value.code == 10077


async def test_what_is_refused_makes_room_for_what_comes_next(
    bare: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(publishing, "WINDOW", 4)
    monkeypatch.setattr(in_flight, "ACK_DEADLINE_S", 0.1)
    await make_stream(bare, "joulie.tel.test.n0")
    messages = samples(20)
    async with Publisher.on(bare) as publisher, asyncio.timeout(60):
        with pytest.raises(BrokerRefused):
            await publisher.publish(messages)
        await publisher.publish(messages[:1])

    assert await ids(bare) == Counter(["tester:b1:1"])


async def test_what_is_larger_than_the_broker_takes_is_refused_before_anything_is_sent(
    connection: Connection,
) -> None:
    small, large = samples(2)
    large = large._replace(data=bytes(MAX_PAYLOAD))
    async with Publisher.on(connection) as publisher, asyncio.timeout(60):
        with pytest.raises(BrokerRefused, match="8388608 that it takes") as caught:
            await publisher.publish([small, large])
        assert caught.value.code == 10054
        await publisher.publish([small])

    assert await ids(connection) == Counter([small.id])


async def test_a_cancelled_publish_cancels_no_other(
    broker: Embedded, connection: Connection
) -> None:
    messages = samples(20)
    async with Publisher.on(connection) as publisher, asyncio.timeout(60):
        broker.kill()
        await broker.wait()
        impatient = asyncio.create_task(publisher.publish(messages[:10]))
        patient = asyncio.create_task(publisher.publish(messages[10:]))
        await asyncio.sleep(0)
        impatient.cancel()
        await broker.start()
        await patient

    assert impatient.cancelled()


@pytest.mark.parametrize(
    ("code", "number", "description", "passes"),
    [
        (503, 10008, "jetstream system temporarily unavailable", True),
        (409, 10158, "duplicate message id is in process", True),
        (503, 0, "no responders", True),
        (503, 10077, "store is closed", True),
        (503, 10077, "maximum bytes exceeded", False),
        (503, 10077, "maximum messages exceeded", False),
        (400, 10071, "wrong last sequence: 7", False),
        (400, 0, "bad request", False),
    ],
)
def test_only_what_passes_by_itself_is_sent_again(
    code: int, number: int, description: str, passes: bool
) -> None:
    assert _Ack.ApiError(code, number, description).passes is passes
