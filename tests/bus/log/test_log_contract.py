"""What every log has to do, whatever carries it: one suite for JetStream and for memory."""

import asyncio
import contextlib
import itertools
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path

import pytest

from bus_kit import (
    CLUSTER,
    NOON,
    Backup,
    claim,
    connected,
    eco,
    plan_made,
    power,
    producer,
    running_broker,
    until,
)
from bus_kit.memory_broker import MemoryBroker, MemoryLog
from joulie_bus.errors import BrokerRefused, ExpectationFailed, StreamGap, StreamReplaced
from joulie_bus.events import AnyEvent, PlanMade, codec
from joulie_bus.jetstream.log import JetStreamLog
from joulie_bus.jetstream.streams import declaration, ensure
from joulie_bus.log.protocol import Log, Reader
from joulie_bus.runtime.tasks import wait_and_clear
from joulie_bus.streams.batch_limits import MAX_BATCH
from joulie_bus.streams.records import Message, Record, digest_of
from joulie_bus.streams.subjects import Stream

pytestmark = pytest.mark.anyio
PATIENCE_S = 120
FIRST = {CLUSTER.plan_meta: 0}  # no plan was stored before


SetBack = Callable[[], Awaitable[None]]
Keep = Callable[[], Awaitable[SetBack]]


class Carrier:
    """A log, another client of the same broker, and what can go wrong behind their backs."""

    def __init__(
        self,
        log: Log,
        other: Log,
        recreate: Callable[[Stream, int], "asyncio.Future[None]"],
        keep: Keep,
    ) -> None:
        self.log = log
        self.other = other
        self.recreate = recreate
        self.keep = keep  # a copy of all streams; what it returns sets them back to it


@contextlib.asynccontextmanager
async def in_memory(_: Path) -> AsyncGenerator[Carrier, None]:
    broker = MemoryBroker(CLUSTER, lambda: NOON)

    async def recreate(stream: Stream, first: int) -> None:
        broker.recreate(stream)
        if first > 1:
            broker.trim(stream, first - 1)

    async def keep() -> SetBack:
        older = {stream: broker.stream(stream).copy() for stream in Stream}

        async def set_back() -> None:
            for stream, kept in older.items():
                broker.set_back(stream, kept)

        return set_back

    yield Carrier(
        MemoryLog(broker),
        MemoryLog(broker),
        lambda s, f: asyncio.ensure_future(recreate(s, f)),
        keep,
    )


@contextlib.asynccontextmanager
async def by_direct_gets(directory: Path) -> AsyncGenerator[Carrier, None]:
    async with on_jetstream(directory, direct=True) as carrier:
        yield carrier


@contextlib.asynccontextmanager
async def on_jetstream(directory: Path, direct: bool = False) -> AsyncGenerator[Carrier, None]:
    async with (
        running_broker(directory) as broker,
        connected(broker, direct=direct) as one,
        connected(broker) as two,
        JetStreamLog.over(one) as log,
        JetStreamLog.over(two) as other,
    ):

        async def recreate(stream: Stream, first: int) -> None:
            await one.api(f"STREAM.DELETE.{stream}")
            fresh = declaration(stream, CLUSTER) | {"first_seq": first}
            await one.api(f"STREAM.CREATE.{stream}", fresh)
            await ensure(one, CLUSTER)

        async def keep() -> SetBack:
            return (await Backup.of(broker, directory)).set_back

        yield Carrier(log, other, lambda s, f: asyncio.ensure_future(recreate(s, f)), keep)


KINDS: dict[str, Callable[[Path], AbstractAsyncContextManager[Carrier]]] = {
    "memory": in_memory,
    "jetstream": on_jetstream,
    "direct gets": by_direct_gets,
}


@pytest.fixture(params=list(KINDS))
async def carrier(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncGenerator[Carrier, None]:
    async with KINDS[request.param](tmp_path / "broker") as made:
        yield made


def stamped(*events: AnyEvent, boot: str = "b1") -> list[Message]:
    says = producer(boot=boot)
    return [says.stamp(event) for event in events]


async def taken(
    log: Log, stream: Stream, after: int, count: int, digest: bytes = b""
) -> list[Record]:
    wakeup, records = asyncio.Event(), list[Record]()
    reading = log.reading(stream, after, wakeup=wakeup, digest=digest)
    async with asyncio.timeout(PATIENCE_S), reading as reader:
        while len(records) < count:
            records += reader.take(count - len(records))
            if len(records) < count:
                await wait_and_clear(wakeup, 0.5)
    return records


async def test_a_subject_that_is_too_long_is_refused_and_the_connection_stays(
    carrier: Carrier,
) -> None:
    [fine] = stamped(power("a", 1))
    endless = fine._replace(subject=fine.subject + "x" * 100_000)

    with pytest.raises(BrokerRefused, match="characters are more than the 3500 of a subject"):
        await carrier.log.publish([endless])
    with pytest.raises(BrokerRefused):
        await carrier.log.append(Stream.TEL, [endless], {})
    await carrier.log.publish([fine])

    assert len(await taken(carrier.log, Stream.TEL, 0, 1)) == 1


async def test_what_is_published_is_read_in_order(carrier: Carrier) -> None:
    messages = stamped(*(power(f"n{number}", 100) for number in range(50)))
    await carrier.log.publish(messages)

    records = await taken(carrier.other, Stream.TEL, 0, 50)

    assert [record.data for record in records] == [message.data for message in messages]
    assert [record.subject for record in records] == [message.subject for message in messages]
    assert [record.sequence for record in records] == list(range(1, 51))
    assert {record.stream for record in records} == {Stream.TEL}


async def test_reading_goes_on_from_a_position(carrier: Carrier) -> None:
    messages = stamped(*(power("n", number) for number in range(10)))
    await carrier.log.publish(messages)

    [record] = await taken(carrier.log, Stream.TEL, 9, 1)

    assert (record.sequence, record.data) == (10, messages[-1].data)


async def test_the_event_is_set_for_later_work(carrier: Carrier) -> None:
    wakeup = asyncio.Event()
    async with carrier.log.reading(Stream.TEL, 0, wakeup=wakeup) as reader:
        assert (reader.take(1), len(reader)) == ([], 0)
        wakeup.clear()
        await carrier.other.publish(stamped(power("n", 1)))
        await asyncio.wait_for(wakeup.wait(), PATIENCE_S)

        assert [record.sequence for record in reader.take(9)] == [1]


async def test_the_same_id_is_stored_once(carrier: Carrier) -> None:
    messages = stamped(power("n", 1), power("n", 2))
    await carrier.log.publish(messages)
    await carrier.other.publish(messages)

    assert (await carrier.log.state(Stream.TEL)).last == 2


async def test_a_subject_that_no_stream_takes_is_refused_and_the_log_goes_on(
    carrier: Carrier,
) -> None:
    with pytest.raises(BrokerRefused) as refused:
        await asyncio.wait_for(carrier.log.publish([Message("nobody.home", "x", b"")]), PATIENCE_S)
    await carrier.log.publish(stamped(power("n", 1)))

    assert refused.value.subject == "nobody.home"
    assert (await carrier.log.state(Stream.TEL)).last == 1


async def test_a_batch_is_stored_if_its_expected_positions_hold(carrier: Carrier) -> None:
    await carrier.log.append(Stream.PLAN, stamped(plan_made("p1"), eco("a"), eco("b")), FIRST)

    newest = await carrier.other.last(Stream.PLAN, CLUSTER.plan_meta)
    assert newest is not None
    made = codec.decoded(newest.data, "")
    assert isinstance(made, PlanMade)
    assert (newest.sequence, made.plan) == (1, "p1")
    assert (await carrier.log.state(Stream.PLAN)).last == 3


@pytest.mark.parametrize("size", [1, 3])
async def test_of_two_writers_the_second_stores_nothing(carrier: Carrier, size: int) -> None:
    await carrier.log.append(Stream.PLAN, stamped(plan_made("p1")), FIRST)
    late = stamped(plan_made("p2"), eco("a"), eco("b"), boot="b2")[:size]

    with pytest.raises(ExpectationFailed):
        await carrier.other.append(Stream.PLAN, late, FIRST)

    assert (await carrier.log.state(Stream.PLAN)).last == 1


@pytest.mark.parametrize("size", [1, 3])
async def test_a_retry_of_what_was_stored_counts_as_stored(carrier: Carrier, size: int) -> None:
    batch = stamped(plan_made("p1"), eco("a"), eco("b"))[:size]
    await carrier.log.append(Stream.PLAN, batch, FIRST)
    await carrier.log.append(Stream.PLAN, batch, FIRST)

    assert (await carrier.log.state(Stream.PLAN)).last == size


def claims(*cards: str, boot: str = "b1") -> tuple[list[Message], dict[str, int]]:
    """Claims of free cards, and that they are free."""
    messages = stamped(*(claim(card, f"pod-{boot}") for card in cards), boot=boot)
    return messages, {message.subject: 0 for message in messages}


async def test_several_cards_are_claimed_together(carrier: Carrier) -> None:
    await carrier.log.append(Stream.CLAIM, *claims("g1", "g2", "g3"))

    assert (await carrier.log.state(Stream.CLAIM)).last == 3


@pytest.mark.parametrize("taken_card", ["g1", "g2", "g3"])
async def test_one_card_that_is_taken_keeps_all_of_them_out(
    carrier: Carrier, taken_card: str
) -> None:
    await carrier.log.append(Stream.CLAIM, *claims(taken_card))

    with pytest.raises(ExpectationFailed) as failed:
        await carrier.other.append(Stream.CLAIM, *claims("g1", "g2", "g3", boot="b2"))

    assert sorted(failed.value.expected.values()) == [0, 0, 0]
    assert (await carrier.log.state(Stream.CLAIM)).last == 1


async def test_no_claim_on_overlapping_cards_holds_only_half_of_them(carrier: Carrier) -> None:
    wishes = [claims(f"g{at}", f"g{at + 1}", boot=f"b{at}") for at in range(8)]
    tried = await asyncio.gather(
        *(carrier.log.append(Stream.CLAIM, *wish) for wish in wishes), return_exceptions=True
    )
    won = [result is None for result in tried]

    assert all(isinstance(result, ExpectationFailed) for result in tried if result is not None)
    assert not any(one and following for one, following in itertools.pairwise(won))
    assert (await carrier.log.state(Stream.CLAIM)).last == 2 * won.count(True)


async def test_a_guard_on_a_subject_that_the_batch_does_not_write_is_a_mistake(
    carrier: Carrier,
) -> None:
    messages, _ = claims("g1")
    with pytest.raises(ValueError, match="so nothing guards it"):
        await carrier.log.append(Stream.CLAIM, messages, {CLUSTER.plan_meta: 0})

    assert (await carrier.log.state(Stream.CLAIM)).last == 0


async def test_a_batch_of_too_many_is_refused_before_anything_is_sent(carrier: Carrier) -> None:
    with pytest.raises(ValueError, match=f"1 to {MAX_BATCH}"):
        await carrier.log.append(Stream.PLAN, stamped(eco("a")) * (MAX_BATCH + 1), {})

    assert (await carrier.log.state(Stream.PLAN)).last == 0


async def test_an_unused_subject_has_no_last_message(carrier: Carrier) -> None:
    assert await carrier.log.last(Stream.PLAN, CLUSTER.plan_meta) is None


async def test_a_position_beyond_the_end_belongs_to_another_stream(carrier: Carrier) -> None:
    with pytest.raises(StreamReplaced):
        await taken(carrier.log, Stream.TEL, 5, 1)


async def test_a_recreated_stream_differs_from_the_old_one(carrier: Carrier) -> None:
    await carrier.log.publish(stamped(power("n", 1)))
    before = await carrier.log.state(Stream.TEL)
    await carrier.recreate(Stream.TEL, 1)
    await carrier.log.publish(stamped(power("n", 1), power("n", 2), boot="b2"))

    with pytest.raises(StreamReplaced):
        async with carrier.log.reading(Stream.TEL, 1, before.created):
            pass


async def test_a_stream_that_begins_behind_our_position_has_a_gap(carrier: Carrier) -> None:
    await carrier.recreate(Stream.TEL, 100)
    await carrier.log.publish(stamped(power("n", 1)))

    with pytest.raises(StreamGap) as gap:
        await taken(carrier.log, Stream.TEL, 5, 1)

    assert (gap.value.wanted, gap.value.first) == (6, 100)


# --- a stream that was set back to an older state ----------------------------------------------


async def test_another_message_at_our_position_belongs_to_another_history(carrier: Carrier) -> None:
    set_back = await carrier.keep()
    await carrier.log.publish(stamped(power("n", 1)))
    [read] = await taken(carrier.log, Stream.TEL, 0, 1)
    await set_back()
    await carrier.log.publish(stamped(power("n", 2), power("n", 3), boot="b2"))

    with pytest.raises(StreamReplaced, match=r"TEL is at a different message 1 .*set back"):
        await taken(carrier.log, Stream.TEL, 1, 1, digest_of(read))


@pytest.mark.parametrize("after", [2, 1], ids=["nothing taken", "one taken"])
async def test_a_stream_that_is_set_back_under_a_reader_is_noticed(
    carrier: Carrier, after: int
) -> None:
    await carrier.log.publish(stamped(power("n", 0)))
    set_back = await carrier.keep()
    await carrier.log.publish(stamped(power("n", 1), boot="b2"))
    wakeup = asyncio.Event()
    async with carrier.log.reading(Stream.TEL, after, wakeup=wakeup) as reader:
        await until(lambda: wakeup.is_set() or after == 2)
        taken_before = [record.sequence for record in reader.take(9)]
        await asyncio.sleep(0.5)  # an idle reader has seen the message at its position
        await set_back()
        await carrier.other.publish(stamped(*(power("n", w) for w in range(5)), boot="b3"))

        with pytest.raises(StreamReplaced):
            await took_more(reader, wakeup)
    assert taken_before == list(range(after + 1, 3))


async def took_more(reader: Reader, wakeup: asyncio.Event) -> list[Record]:
    """Raises what the reader raises."""
    async with asyncio.timeout(PATIENCE_S):
        while not (records := reader.take(9)):
            await wait_and_clear(wakeup, 0.1)
    return records


async def test_the_message_at_our_position_is_not_handed_over_again(carrier: Carrier) -> None:
    await carrier.log.publish(stamped(power("n", 1), power("n", 2)))
    first, second = await taken(carrier.log, Stream.TEL, 0, 2)

    assert await taken(carrier.log, Stream.TEL, 1, 1, digest_of(first)) == [second]


async def test_a_message_is_had_by_its_place(carrier: Carrier) -> None:
    await carrier.log.publish(stamped(power("n", 1), power("n", 2)))
    records = await taken(carrier.log, Stream.TEL, 0, 2)

    assert [await carrier.log.message(Stream.TEL, place) for place in (1, 2, 3)] == [*records, None]


async def test_a_subscriber_gets_live_messages_and_nothing_is_stored(carrier: Carrier) -> None:
    heard: asyncio.Queue[bytes] = asyncio.Queue()
    await carrier.other.send_live(CLUSTER.delta, b"before")
    await carrier.other.state(Stream.TEL)  # answered behind it: what was told has been handed out
    async with carrier.log.listening(CLUSTER.delta, heard.put_nowait):
        await carrier.other.send_live(CLUSTER.delta, b"now")
        told = await asyncio.wait_for(heard.get(), PATIENCE_S)
    await carrier.other.send_live(CLUSTER.delta, b"after")

    assert (told, heard.qsize()) == (b"now", 0)
