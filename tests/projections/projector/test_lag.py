"""How far the committed state is behind the streams, and what does not count as being behind."""

import asyncio
import contextlib
import math
from collections.abc import AsyncGenerator, Sequence

import pytest

from bus_kit import CLUSTER, VirtualClock, connected, node_seen, power, producer
from bus_kit.memory_broker import MemoryBroker, MemoryLog
from bus_kit.waiting import until
from joulie_bus.broker.embedded import Embedded
from joulie_bus.errors import Unreachable
from joulie_bus.jetstream.log import JetStreamLog
from joulie_bus.runtime.tasks import background
from joulie_bus.streams.records import Record, StreamTip
from joulie_bus.streams.roles import Role
from joulie_bus.streams.subjects import MERGE_ORDER, Stream
from joulie_projections.fold.commit import Input, Inputs
from joulie_projections.projector.lag import PATIENCE_S, Lag, StreamEnds, newest_times

pytestmark = pytest.mark.anyio


class Bus(MemoryLog):
    """A log whose answers can be withheld, or be those of a leader without its majority."""

    def __init__(self, broker: MemoryBroker) -> None:
        super().__init__(broker)
        self.is_cut = False
        self.unconfirmed_ns = 0
        self.answers = self.waiting = 0
        self.holds: asyncio.Event | None = None  # set: answers arrive

    async def tip(self, stream: Stream) -> StreamTip:
        if self.holds is not None:
            self.waiting += 1
            await self.holds.wait()
        if self.is_cut:
            raise Unreachable("here", "cut")
        self.answers += 1
        return (await super().tip(stream))._replace(unconfirmed_ns=self.unconfirmed_ns)


class Scene:
    """A broker, and a projector that commits when the test says so."""

    def __init__(self) -> None:
        self.time = VirtualClock()
        self.bus = Bus(MemoryBroker(CLUSTER, self.time))
        self.ends = StreamEnds(self.bus, self.seconds)
        self.lag = Lag(self.bus, self.ends, self.seconds)
        self.producer = producer()
        self._stored = 0

    def seconds(self) -> float:
        return self.time() / 1e9

    async def ask_for(self, seconds: int) -> None:
        """Lets the time pass while the projector runs and asks."""
        for _ in range(2 * seconds):
            await self.ends.ask()
            self.time.advance(0.5)

    async def store(self) -> None:
        self._stored += 1
        await self.bus.publish([self.producer.stamp(power("n", 100 + self._stored))])

    async def records(self) -> Sequence[Record]:
        async with self.bus.reading(Stream.TEL, 0) as reader:
            return reader.take(100)

    async def commit(self, at_most: int) -> None:
        folded = (await self.records())[:at_most]
        self.lag.committed(await self.inputs(at_most), newest_times(folded))

    async def inputs(self, read: int) -> Inputs:
        state = await self.bus.state(Stream.TEL)
        return {Stream.TEL: Input(state.created, read)}

    async def answered(self) -> None:
        """Returns after the broker has been asked anew, and its answer was used."""
        wanted = self.bus.answers + 2 * len(MERGE_ORDER)
        await until(lambda: self.bus.answers >= wanted)

    @contextlib.asynccontextmanager
    async def following(self, inputs: Inputs | None = None) -> AsyncGenerator["Scene", None]:
        self.lag.committed(inputs or {}, {})
        async with background(self.lag.follow(), "lag"):
            await self.answered()
            yield self


async def test_an_idle_cluster_is_not_behind() -> None:
    async with Scene().following() as scene:
        assert scene.lag.behind_s == 0
        await scene.store()
        await scene.commit(1)
        scene.time.advance(3600)
        await scene.answered()

        assert scene.lag.behind_s == 0


async def test_facts_that_wait_make_the_state_as_old_as_the_last_moment_without_them() -> None:
    async with Scene().following() as scene:
        await scene.store()
        scene.time.advance(57)
        await scene.answered()

        assert scene.lag.behind_s == 57


async def test_while_it_catches_up_the_state_is_as_old_as_what_was_folded() -> None:
    async with Scene().following() as scene:
        for _ in range(3):
            await scene.store()
            scene.time.advance(20)
        await scene.answered()
        await scene.commit(2)
        await scene.answered()

        assert scene.lag.behind_s == 40, "the second of three facts is 40 s old"


async def test_a_commit_between_two_answers_makes_the_state_younger() -> None:
    async with Scene().following() as scene:
        for _ in range(3):
            await scene.store()
            scene.time.advance(20)
        await scene.answered()
        scene.bus.is_cut = True
        await scene.commit(2)

        assert scene.lag.behind_s == 40, "the second of three facts is 40 s old"


async def test_a_stream_that_is_always_behind_does_not_make_the_others_older() -> None:
    async with Scene().following() as scene:
        for _ in range(3):
            await scene.store()
            await scene.store()
            await scene.answered()
            scene.time.advance(10)
        await scene.bus.publish([scene.producer.stamp(node_seen("n"))])
        await scene.answered()
        await scene.commit(5)

        assert scene.lag.behind_s == 10, "as the fifth reading; no node was new 10 s ago"


async def test_a_projector_that_caught_up_is_not_behind() -> None:
    async with Scene().following() as scene:
        await scene.store()
        scene.time.advance(57)
        await scene.answered()
        await scene.commit(1)

        assert scene.lag.behind_s == 0


async def test_a_projector_that_starts_is_as_far_behind_as_what_was_folded_before() -> None:
    scene = Scene()
    await scene.store()
    scene.time.advance(100)
    await scene.store()
    scene.time.advance(1)
    async with scene.following(await scene.inputs(1)):
        assert scene.lag.behind_s == 101


async def test_a_message_that_was_folded_and_trimmed_is_not_waited_for() -> None:
    scene = Scene()
    for _ in range(3):
        await scene.store()
    inputs = await scene.inputs(1)
    await scene.bus.purge(Stream.TEL, 3)
    async with scene.following(inputs):
        scene.lag.committed(await scene.inputs(3), {})

        assert scene.lag.behind_s == 0


async def test_the_credential_of_a_projector_reads_when_folded_messages_were_stored(
    broker: Embedded,
) -> None:
    async with connected(broker, role=Role.PROJECTOR) as connection, connected(broker) as admin:
        async with JetStreamLog.over(admin) as bus:
            says = producer()
            await bus.publish([says.stamp(power("n", number)) for number in (1, 2)])
        async with JetStreamLog.over(connection) as bus:
            lag = Lag(bus, StreamEnds(bus))
            created = (await bus.state(Stream.TEL)).created
            lag.committed({Stream.TEL: Input(created, 1)}, {})
            async with background(lag.follow(), "lag"):
                await until(lambda: lag.behind_s < math.inf)


async def test_without_an_answer_of_the_broker_the_state_ages() -> None:
    async with Scene().following() as scene:
        scene.bus.is_cut = True
        await scene.ask_for(9)

        assert scene.lag.behind_s == 9
        assert scene.lag.broker_ms == 9000
        assert "no answer of a majority of the broker for 9 s" in scene.ends.problem


async def test_a_projector_that_did_not_run_ages_and_does_not_report_the_broker() -> None:
    async with Scene().following() as scene:
        scene.time.advance(9)

        assert scene.lag.behind_s == 9
        assert scene.lag.broker_ms == 500, "a question takes no longer while the projector runs"
        assert scene.ends.problem == ""


async def test_an_answer_that_waited_for_the_projector_to_run_is_used() -> None:
    scene = Scene()
    scene.bus.holds = asyncio.Event()
    asking = asyncio.ensure_future(scene.ends.ask())
    await until(lambda: scene.bus.waiting == len(MERGE_ORDER))
    asked = scene.seconds()
    scene.time.advance(60)
    await asyncio.sleep(0)
    scene.bus.holds.set()
    answer = await asking

    assert answer is not None
    assert answer[0] == asked, "the ends are those of the moment of the question"


async def test_a_broker_that_does_not_answer_a_projector_that_runs_is_reported() -> None:
    scene = Scene()
    scene.bus.holds = asyncio.Event()
    asking = asyncio.ensure_future(scene.ends.ask())
    while not asking.done():
        scene.time.advance(0.5)
        await asyncio.sleep(0.01)

    assert await asking is None
    assert scene.ends.silent_s > PATIENCE_S


async def test_a_leader_that_lost_its_majority_confirms_nothing() -> None:
    async with Scene().following() as scene:
        scene.bus.unconfirmed_ns = 6_000_000_000
        scene.time.advance(6)
        await scene.answered()

        assert scene.lag.behind_s == 6
        assert scene.ends.problem


async def test_a_stream_that_was_replaced_is_never_complete() -> None:
    async with Scene().following() as scene:
        await scene.store()
        await scene.commit(1)
        await scene.answered()
        scene.bus.broker.recreate(Stream.TEL)
        await scene.store()
        scene.time.advance(5)
        await scene.answered()

        assert scene.lag.behind_s == 5
