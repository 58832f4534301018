"""One flipped bit in the store of one of three servers: no reader skips a message or stops."""

import asyncio
import contextlib
import shutil
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import NamedTuple

import pytest

from bus_kit import CLUSTER, connected, running_cluster
from joulie_bus.broker.embedded import Embedded
from joulie_bus.errors import BrokerRefused, StreamGap, Unreachable
from joulie_bus.jetstream.connection import Connection
from joulie_bus.jetstream.direct import DirectReader
from joulie_bus.jetstream.hole_search import HoleSearch
from joulie_bus.jetstream.ordered import OrderedReader
from joulie_bus.jetstream.publisher import Publisher
from joulie_bus.jetstream.reader import ConsumerReader
from joulie_bus.jetstream.streams import ensure, purge, state_of
from joulie_bus.runtime.tasks import wait_and_clear
from joulie_bus.streams.records import IncompleteCopy, Message
from joulie_bus.streams.subjects import Stream

pytestmark = [pytest.mark.anyio, pytest.mark.slow]
LAST = 3000  # messages of 4 KB: two blocks of the store, and more than is kept to be replayed
DAMAGED = 60  # in the first block
SUBJECT = CLUSTER.patterns(Stream.OBS)[0].replace("*", "x")


class Scene(NamedTuple):
    servers: dict[str, Embedded]
    directory: Path
    victim: str

    @property
    def others(self) -> list[str]:
        return [name for name in self.servers if name != self.victim]

    @property
    def server(self) -> Embedded:
        return self.servers[self.victim]

    async def crash(self) -> None:
        """With a damaged block. A server that still has the messages in its raft log heals it."""
        store = self.directory / self.victim
        while block_with(DAMAGED, store):
            flip_a_bit(store)
            self.server.kill()
            await self.server.wait()
            await self.server.start()

    async def lead(self) -> None:
        """Makes the damaged server the leader of the stream."""
        async with connected(self.servers[self.others[0]]) as connection:
            while await leader_of(connection) != self.victim:
                body = {"placement": {"preferred": self.victim}}
                with contextlib.suppress(BrokerRefused):  # while they elect one
                    await connection.api(f"STREAM.LEADER.STEPDOWN.{Stream.OBS}", body)
                await asyncio.sleep(0.5)


async def leader_of(connection: Connection) -> str:
    return (await state_of(connection, Stream.OBS)).servers[0]


def payload(number: int) -> bytes:
    return f"message {number:04} ".encode() * 300


def block_with(number: int, store: Path) -> Path | None:
    blocks = store.rglob(f"{Stream.OBS}/msgs/*.blk")
    return next((block for block in blocks if payload(number) in block.read_bytes()), None)


def flip_a_bit(store: Path) -> None:
    """In the middle of a message on the disk; in place, as the server may have the file open."""
    block = block_with(DAMAGED, store)
    assert block is not None
    with block.open("r+b") as file:
        at = block.read_bytes().index(payload(DAMAGED)) + 1000
        file.seek(at)
        byte = file.read(1)[0]
        file.seek(at)
        file.write(bytes([byte ^ 1]))


@asynccontextmanager
async def three_servers(directory: Path) -> AsyncGenerator[Scene, None]:
    """With a stream that has three copies."""
    async with asyncio.timeout(240), running_cluster(directory) as servers:
        async with connected(servers["n0"]) as connection, Publisher.on(connection) as publisher:
            await ensure(connection, CLUSTER, replicas=3)
            for first in range(1, LAST, 500):
                numbers = range(first, first + 500)
                await publisher.publish([Message(SUBJECT, f"m{n}", payload(n)) for n in numbers])
            await until_current(connection)
            leader = await leader_of(connection)
        victim = next(name for name in servers if name != leader)
        yield Scene(servers, directory, victim)


async def until_current(connection: Connection) -> None:
    while True:
        cluster = (await connection.api(f"STREAM.INFO.{Stream.OBS}"))["cluster"]
        copies = cluster.get("replicas", [])
        if len(copies) == 2 and all(each["current"] and not each.get("lag") for each in copies):
            return
        await asyncio.sleep(0.05)


async def whole(on: type[OrderedReader], connection: Connection) -> bool:
    """Reads the stream from its beginning, and checks each message."""
    wakeup = asyncio.Event()
    numbers: list[int] = []
    async with on.on(connection, Stream.OBS, 0, wakeup=wakeup) as reader:
        while len(numbers) < LAST:
            await wait_and_clear(wakeup, 1)
            for record in reader.take(1000):
                assert record.data == payload(record.sequence)
                numbers.append(record.sequence)
    return numbers == list(range(1, LAST + 1))


async def a_round(search: HoleSearch) -> Sequence[IncompleteCopy]:
    """Retries while the servers elect a leader and do not answer, as the projector does."""
    while True:
        try:
            return await search.round()
        except (Unreachable, BrokerRefused):
            await asyncio.sleep(0.2)


async def until_named(connection: Connection, victim: str) -> IncompleteCopy:
    search = HoleSearch(connection)
    while True:
        if found := await a_round(search):
            assert [(each.server, each.stream) for each in found] == [(victim, Stream.OBS)]
            return found[0]


@pytest.mark.parametrize("leads", [False, True], ids=["follows", "leads"])
@pytest.mark.long
async def test_a_copy_that_lost_a_block_stops_no_reader_and_is_named(
    tmp_path: Path, leads: bool
) -> None:
    async with three_servers(tmp_path) as scene:
        await scene.crash()
        if leads:
            await scene.lead()
        async with connected(scene.servers[scene.others[0]]) as connection:
            while not connection.gaps:  # until a reader met the damaged copy
                assert await whole(ConsumerReader, connection)
            found = dict(connection.gaps)
            connection.gaps.clear()
            named = await until_named(connection, scene.victim)
        for name in scene.servers:
            async with connected(scene.servers[name], direct=True) as connection:
                for _ in range(4):
                    assert await whole(DirectReader, connection)

    assert found == {(scene.victim, Stream.OBS): DAMAGED}
    assert named.missing > 1


async def test_a_damaged_message_that_the_server_still_counts_is_named_by_its_reader(
    tmp_path: Path,
) -> None:
    async with three_servers(tmp_path) as scene:
        await scene.server.stop()
        flip_a_bit(tmp_path / scene.victim)
        await scene.server.start()
        async with connected(scene.servers[scene.others[0]]) as connection:
            while not connection.gaps:
                assert await whole(ConsumerReader, connection)
            named = await until_named(connection, scene.victim)

    assert named == IncompleteCopy(scene.victim, Stream.OBS, 1)


@pytest.mark.long
async def test_a_server_with_a_new_store_fetches_everything_and_is_named_no_more(
    tmp_path: Path,
) -> None:
    async with three_servers(tmp_path) as scene:
        await scene.crash()
        async with connected(scene.servers[scene.others[0]]) as connection:
            while not connection.gaps:
                assert await whole(ConsumerReader, connection)
            search = HoleSearch(connection)
            while not await a_round(search):
                pass
            await scene.server.stop()
            shutil.rmtree(tmp_path / scene.victim / "nats" / "jetstream")
            await scene.server.start()
            while await a_round(search):
                pass
            assert not connection.gaps

        assert block_with(DAMAGED, tmp_path / scene.victim)


@pytest.mark.parametrize("kind", [ConsumerReader, DirectReader])
@pytest.mark.parametrize("first", [50, LAST + 1], ids=["some", "all"])
async def test_a_message_that_all_copies_lack_ends_the_reader(
    tmp_path: Path, kind: type[OrderedReader], first: int
) -> None:
    async with three_servers(tmp_path) as scene, connected(scene.servers["n0"]) as connection:
        await purge(connection, Stream.OBS, first)
        await until_current(connection)
        with pytest.raises(StreamGap) as caught:
            await whole(kind, connection)

    assert (caught.value.wanted, caught.value.first) == (1, first)
