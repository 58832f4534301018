import asyncio

import pytest
from structlog.testing import capture_logs

from bare_stream import STREAM, fill, make_stream, read_to
from bus_kit import connected, power, producer, until
from joulie_bus.broker.embedded import Embedded
from joulie_bus.errors import BrokerRefused, StreamGap, StreamReplaced
from joulie_bus.jetstream import ordered
from joulie_bus.jetstream.connection import Connection, MinuteLines
from joulie_bus.jetstream.direct import DirectReader
from joulie_bus.jetstream.nats_internals import JoulieClient
from joulie_bus.jetstream.ordered import PULL
from joulie_bus.jetstream.publisher import Publisher
from joulie_bus.jetstream.reader import ConsumerReader, parse_ticket
from joulie_bus.jetstream.streams import state_of
from joulie_bus.log.answered import NO_LEADER
from joulie_bus.runtime.tasks import wait_and_clear
from joulie_bus.streams.records import StreamState
from joulie_bus.streams.subjects import Stream

pytestmark = pytest.mark.anyio


Kind = type[ConsumerReader] | type[DirectReader]


@pytest.fixture(params=[ConsumerReader, DirectReader])
def kind(request: pytest.FixtureRequest) -> Kind:
    """By a consumer, and by direct gets."""
    made: Kind = request.param
    return made


async def test_a_stream_is_read_in_order_from_its_beginning(
    kind: Kind, connection: Connection
) -> None:
    await fill(connection, 700)  # more than one pull
    wakeup = asyncio.Event()
    async with kind.on(connection, STREAM, 0, wakeup=wakeup) as reader:
        assert await read_to(reader, wakeup, 700) == list(range(1, 701))


@pytest.mark.parametrize("after", [0, 1, 42, 99])
async def test_reading_resumes_exactly_behind_its_position(
    kind: Kind, connection: Connection, after: int
) -> None:
    await fill(connection, 100)
    wakeup = asyncio.Event()
    async with kind.on(connection, STREAM, after, wakeup=wakeup) as reader:
        assert await read_to(reader, wakeup, 100) == list(range(after + 1, 101))


async def test_a_record_is_what_was_stored_and_when(kind: Kind, connection: Connection) -> None:
    message = producer().stamp(power("n1", 100))
    async with Publisher.on(connection) as publisher:
        await publisher.publish([message])
    wakeup = asyncio.Event()
    async with kind.on(connection, STREAM, 0, wakeup=wakeup) as reader, asyncio.timeout(60):
        await wakeup.wait()
        [record] = reader.take(10)

    assert (record.stream, record.sequence, record.data) == (STREAM, 1, message.data)
    assert record.subject == message.subject
    assert record.at > 1_500_000_000 * 10**9


async def test_a_later_message_sets_the_event(kind: Kind, connection: Connection) -> None:
    wakeup = asyncio.Event()
    async with kind.on(connection, STREAM, 0, wakeup=wakeup) as reader, asyncio.timeout(60):
        assert reader.take(10) == []
        await fill(connection, 1)
        await wakeup.wait()

        assert [record.sequence for record in reader.take(10)] == [1]


async def test_slow_taking_loses_nothing_and_buffers_little(
    kind: Kind, connection: Connection
) -> None:
    await fill(connection, 2000)
    wakeup, most, found = asyncio.Event(), 0, list[int]()
    async with kind.on(connection, STREAM, 0, wakeup=wakeup) as reader, asyncio.timeout(60):
        while len(found) < 2000:
            await wait_and_clear(wakeup, 0.01)
            most = max(most, len(reader))
            found += [record.sequence for record in reader.take(50)]

    assert found == list(range(1, 2001))
    assert most <= 3 * PULL


async def test_the_reader_knows_how_much_there_is_behind_what_it_got(
    kind: Kind, connection: Connection
) -> None:
    await fill(connection, 10)
    wakeup = asyncio.Event()
    async with kind.on(connection, STREAM, 0, wakeup=wakeup) as reader:
        await read_to(reader, wakeup, 10)

        assert (reader.position, reader.pending, len(reader)) == (10, 0, 0)


async def test_reading_lives_through_a_power_cut_of_the_broker(
    kind: Kind, broker: Embedded, connection: Connection
) -> None:
    await fill(connection, 50)
    wakeup = asyncio.Event()
    async with kind.on(connection, STREAM, 0, wakeup=wakeup) as reader:
        before = await read_to(reader, wakeup, 50)
        broker.kill()
        await broker.wait()
        await broker.start()
        async with connected(broker) as anew:
            await fill(anew, 50, boot="b2")
        after = await read_to(reader, wakeup, 100)

    assert before + after == list(range(1, 101))


async def test_two_readers_read_the_same(kind: Kind, connection: Connection) -> None:
    await fill(connection, 100)
    first, second = asyncio.Event(), asyncio.Event()
    async with (
        kind.on(connection, STREAM, 0, wakeup=first) as one,
        kind.on(connection, STREAM, 0, wakeup=second) as other,
    ):
        assert await read_to(one, first, 100) == await read_to(other, second, 100)


async def test_a_stream_trimmed_before_it_was_read_is_a_gap(kind: Kind, bare: Connection) -> None:
    await fill(bare, 20)
    await bare.api(f"STREAM.PURGE.{STREAM}", {"seq": 11})
    with pytest.raises(StreamGap, match="4 fact") as caught:
        async with kind.on(bare, STREAM, 6):
            pass

    assert (caught.value.stream, caught.value.wanted, caught.value.first) == (STREAM, 7, 11)


async def test_a_stream_trimmed_up_to_the_position_is_no_gap(kind: Kind, bare: Connection) -> None:
    await fill(bare, 20)
    await bare.api(f"STREAM.PURGE.{STREAM}", {"seq": 11})
    wakeup = asyncio.Event()
    async with kind.on(bare, STREAM, 10, wakeup=wakeup) as reader:
        assert await read_to(reader, wakeup, 20) == list(range(11, 21))


async def test_a_message_that_was_trimmed_at_our_position_is_not_compared(
    kind: Kind, bare: Connection
) -> None:
    await fill(bare, 20)
    await bare.api(f"STREAM.PURGE.{STREAM}", {"seq": 11})
    wakeup = asyncio.Event()
    async with kind.on(bare, STREAM, 10, wakeup=wakeup, digest=b"of the message 10") as reader:
        assert await read_to(reader, wakeup, 20) == list(range(11, 21))


async def test_a_hole_within_the_stream_is_a_gap_and_never_skipped(
    kind: Kind, bare: Connection
) -> None:
    await fill(bare, 20)
    await bare.api(f"STREAM.MSG.DELETE.{STREAM}", {"seq": 7})
    wakeup = asyncio.Event()
    async with kind.on(bare, STREAM, 2, wakeup=wakeup) as reader:
        with pytest.raises(StreamGap) as caught:
            await read_to(reader, wakeup, 20)

    assert (caught.value.wanted, caught.value.first) == (7, 8)


async def test_a_position_beyond_the_end_belongs_to_another_stream(
    kind: Kind, bare: Connection
) -> None:
    await fill(bare, 20)
    with pytest.raises(StreamReplaced, match=r"is at sequence 20 .* belongs to sequence 21"):
        async with kind.on(bare, STREAM, 21):
            pass


async def test_a_late_copy_that_answers_for_a_moment_is_not_another_stream(
    kind: Kind, bare: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a server does that was cut from the two others."""
    await fill(bare, 20)
    ends = [7, 7]

    async def late(connection: Connection, stream: Stream) -> StreamState:
        state = await state_of(connection, stream)
        return state._replace(servers=("a", "b", "c"), last=ends.pop() if ends else state.last)

    monkeypatch.setattr(ordered, "state_of", late)
    wakeup = asyncio.Event()
    async with kind.on(bare, STREAM, 19, wakeup=wakeup) as reader:
        assert await read_to(reader, wakeup, 20) == [20]


async def test_a_reader_that_starts_during_an_election_reads_after_it(
    kind: Kind, bare: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    await fill(bare, 5)
    created = (await state_of(bare, STREAM)).created
    refusals = [BrokerRefused("info", NO_LEADER, "no leader")]

    async def state_later(connection: Connection, stream: Stream) -> StreamState:
        if refusals:
            raise refusals.pop()
        return await state_of(connection, stream)

    monkeypatch.setattr(ordered, "state_of", state_later)
    async with kind.on(bare, STREAM, 2, created, wakeup := asyncio.Event()) as reader:
        assert await read_to(reader, wakeup, 5) == [3, 4, 5]


async def test_a_refusal_that_stays_ends_the_start_of_a_reader(
    kind: Kind, bare: Connection
) -> None:
    created = (await state_of(bare, STREAM)).created
    await bare.api(f"STREAM.DELETE.{STREAM}")

    with pytest.raises(BrokerRefused, match="not found"):
        async with kind.on(bare, STREAM, 2, created):
            pass


async def test_a_stream_made_anew_is_another_stream(kind: Kind, bare: Connection) -> None:
    known = (await state_of(bare, STREAM)).created
    await bare.api(f"STREAM.DELETE.{STREAM}")
    await make_stream(bare)
    with pytest.raises(StreamReplaced, match=f"belongs to one created at {known}"):
        async with kind.on(bare, STREAM, 0, known):
            pass


async def test_a_stream_made_anew_under_a_reader_is_noticed(kind: Kind, bare: Connection) -> None:
    await fill(bare, 20)
    wakeup = asyncio.Event()
    async with kind.on(bare, STREAM, 0, wakeup=wakeup) as reader:
        await read_to(reader, wakeup, 20)
        await bare.api(f"STREAM.DELETE.{STREAM}")
        await make_stream(bare)
        await fill(bare, 40, boot="b2")

        with pytest.raises(StreamReplaced):
            await read_to(reader, wakeup, 40)


async def test_all_messages_arrive_without_the_short_path_in_the_client(
    connection: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Acknowledgements, messages of a stream, and live messages."""
    monkeypatch.setattr(JoulieClient, "dispatch", lambda *_: None)
    await fill(connection, 100)
    wakeup, heard = asyncio.Event(), asyncio.Queue[bytes]()
    async with (
        ConsumerReader.on(connection, STREAM, 0, wakeup=wakeup) as reader,
        connection.listening("news", heard.put_nowait),
    ):
        assert await read_to(reader, wakeup, 100) == list(range(1, 101))
        await connection.send("news", b"live")
        assert await asyncio.wait_for(heard.get(), 60) == b"live"


async def test_what_falls_over_a_message_ends_neither_the_connection_nor_the_listening(
    connection: Connection,
) -> None:
    heard: asyncio.Queue[bytes] = asyncio.Queue()

    def hear(data: bytes) -> None:
        if data == b"bad":
            raise ValueError("unreadable")
        heard.put_nowait(data)

    async with connection.listening("news", hear):
        await connection.send("news", b"bad")
        await connection.send("news", b"good")

        assert await asyncio.wait_for(heard.get(), 60) == b"good"


async def test_messages_that_a_listener_cannot_use_are_one_log_line_a_minute(
    connection: Connection,
) -> None:
    seen: list[bytes] = []

    def hear(data: bytes) -> None:
        seen.append(data)
        raise ValueError("unreadable")

    with capture_logs() as lines:
        async with connection.listening("news", hear):
            for _ in range(100):
                await connection.send("news", b"bad")
            await until(lambda: len(seen) == 100)

    assert [line["error"] for line in lines if line["event"] == "broker_error"] == ["unreadable"]


def test_the_next_line_counts_those_that_were_not_logged() -> None:
    lines = MinuteLines()

    due = [lines.due("ValueError", now) for now in (0.0, 1.0, 59.0, 60.0)]

    assert (due, lines.due("TypeError", 1.0)) == ([0, None, None, 2], 0)


@pytest.mark.parametrize(
    "subject",
    [
        "$JS.ACK.JOULIE_TEL.joulie-1.1.42.7.1900000000000000000.3",
        "$JS.ACK.hub.ACCOUNT.JOULIE_TEL.joulie-1.1.42.7.1900000000000000000.3",
        "$JS.ACK._.ACCOUNT.JOULIE_TEL.joulie-1.1.42.7.1900000000000000000.3.r4nd0m",
    ],
    ids=["old", "with domain and account", "with a token more"],
)
def test_both_spellings_of_a_ticket_are_read(subject: str) -> None:
    assert parse_ticket(subject.encode()) == (b"joulie-1", 42, 7, 1900000000000000000, 3)
