"""Three brokers, databases and extenders, two projectors and consoles, and faults all the time."""

import asyncio
import contextlib
import functools
import itertools
import os
from collections import Counter
from collections.abc import AsyncGenerator
from pathlib import Path

import pytest

from bus_kit import until
from faults import Faults, Readers
from installation import EXTENDER, FEWER, Installation, installed
from joulie_bus.jetstream.connection import Connection
from joulie_bus.runtime.tasks import background
from joulie_bus.streams.roles import Role
from joulie_bus.streams.subjects import Stream
from load import Load
from logged_answers import Answer, logged
from machines import COUNT, Machines, NoNetworkOfItsOwn, in_namespaces, on_loopback
from servers import address_of

pytestmark = pytest.mark.anyio
SETTLED_S = 90.0
# That readers stand still. Servers of the broker that do not reach each other outvote each other,
# and a connection of which one direction is cut looks open to one of its ends.
MOST_S = 20.0
LATER = 100  # facts after a fault; 50 are published each second
SEEN_S = 8.0  # readers that stand still are seen within it
ANSWERS = 1000  # before streams get more copies
HISTORY = int(os.environ.get("HISTORY", "20000"))  # facts, before that
# Why programs may end by themselves: another one leads, and a server of the database that was
# killed has children for a moment.
EXPECTED = ("Another projector took over", "Terminate any old server processes")
SEED = int(os.environ.get("FAULTS_SEED", "1"))


class Run:
    """An installation under load and faults, and what it has to show afterwards."""

    def __init__(self, made: Installation, *, links: bool, pods_per_s: float = 50) -> None:
        self.installation = made
        addresses = made.machines.addresses
        machines = [each.command.machine for each in made.of("extender")]
        extenders = {f"e{machine}": (addresses[machine], EXTENDER) for machine in machines}
        broker = functools.partial(address_of, made.machines, Role.ADMIN)
        self.load = Load(extenders, broker, SEED, pods_per_s=pods_per_s)
        self.readers = Readers(made)
        self.faults = Faults(made, self.readers, SEED, links=links)

    @contextlib.asynccontextmanager
    async def under_load(self) -> AsyncGenerator[None, None]:
        await self.load.declare()
        await self.readers.know(self.load.facts)
        async with contextlib.AsyncExitStack() as stack:
            for work in (self.readers.watch(), self.load.report(), self.load.schedule()):
                await stack.enter_async_context(background(work, "load"))
            yield
            self.readers.fault = "none"
            await self.readers.know(self.load.facts)
        try:
            await until(self.all_is_logged, SETTLED_S)
        except TimeoutError:
            assert self.load.answered - self.logged() == Counter(), self.table()

    async def go(self, seconds: float, every_s: float) -> None:
        async with self.under_load():
            ends = asyncio.get_running_loop().time() + seconds
            while asyncio.get_running_loop().time() < ends:
                await asyncio.sleep(every_s)
                await self.faults.one()

    async def go_one_by_one(self) -> None:
        """Each fault by itself: the next one comes when nothing recovers from the last."""
        for name, cause in self.faults.each():
            await self.installation.until_whole()
            async with self.under_load():
                self.readers.fault = name
                begun = asyncio.get_running_loop().time()
                await cause()
                await self.readers.know(self.load.facts + LATER)
                seconds = asyncio.get_running_loop().time() - begun
                self.faults.happened.append(f"{name}: {seconds:.1f} s until later facts were read")
                await asyncio.sleep(SEEN_S)
            await self.installation.checked("verify")
            assert (await self.installation.checked("replay"))["mismatches"] == 0

    async def cut_each_link(self, ways: int, for_s: float) -> None:
        pairs = itertools.combinations if ways == 2 else itertools.permutations
        async with self.under_load():
            for one, other in pairs(range(COUNT), 2):
                await self.installation.until_whole()
                self.readers.fault = f"cut from {one} to {other}" + ", and back" * (ways == 2)
                async with self.faults.cut(set([(one, other), (other, one)][:ways])):
                    await asyncio.sleep(for_s)
                self.readers.fault = "none"
                await self.readers.know(self.load.facts)

    async def more_copies(self) -> float:
        """The seconds until each stream has three copies, all of them complete."""
        begun = asyncio.get_running_loop().time()
        self.readers.fault = "more copies"
        self.installation.copies = COUNT
        code, out = await self.installation.run("migrate")
        assert code == 0, out
        async with connection_to(self.installation) as admin:
            while await copies(admin) != [COUNT] * len(Stream):
                await asyncio.sleep(0.1)
        return asyncio.get_running_loop().time() - begun

    def logged(self) -> Counter[Answer]:
        return logged(self.installation.databases.url)

    def all_is_logged(self) -> bool:
        return self.load.answered <= self.logged()

    async def require_whole(self) -> None:
        """No answer is lost or doubled; the log is valid; every decision is recomputed; nothing
        ended by itself for a reason that is not expected."""
        print(f"\n{self.table()}")
        found = self.logged()
        assert self.load.answered <= found <= self.load.asked
        await self.installation.checked("verify")
        replayed = await self.installation.checked("replay")
        assert replayed["mismatches"] == 0
        ended = self.installation.ended
        assert [each for each in ended if not any(why in each.why for why in EXPECTED)] == []

    def table(self) -> str:
        seconds = sorted(self.load.seconds)
        stood = [f"  {each}: {most:.1f} s" for each, most in sorted(self.readers.longest.items())]
        return "\n".join(
            [
                f"{len(seconds)} answers, p99 {seconds[len(seconds) * 99 // 100] * 1000:.0f} ms, "
                f"{self.load.failed} calls failed, {self.load.facts} facts",
                "readers stood still, at most, after",
                *stood,
                *(f"  ended by itself: {each}" for each in self.installation.ended),
                *(f"  {each}" for each in self.faults.happened),
            ]
        )


@contextlib.asynccontextmanager
async def connection_to(made: Installation) -> AsyncGenerator[Connection, None]:
    admin = await Connection.open(address_of(made.machines, Role.ADMIN), "test")
    try:
        yield admin
    finally:
        await admin.close()


async def copies(admin: Connection) -> list[int]:
    """The complete copies of each stream."""
    found = [(await admin.api(f"STREAM.INFO.{stream}"))["cluster"] for stream in Stream]
    return [1 + sum(each["current"] for each in one.get("replicas") or ()) for one in found]


@contextlib.asynccontextmanager
async def run(machines: Machines, place: Path, *, links: bool) -> AsyncGenerator[Run, None]:
    async with installed(machines, place) as made:
        yield Run(made, links=links)


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.usefixtures("postgres")  # skips where there is no PostgreSQL
@pytest.mark.long
async def test_kills_lose_and_double_no_answer(tmp_path: Path) -> None:
    async with installed(on_loopback(), tmp_path, components=FEWER) as installation:
        made = Run(installation, links=False, pods_per_s=20)
        await made.go(75, every_s=2.5)
        await made.require_whole()


@pytest.mark.drill
async def test_kills_and_cut_links_lose_and_double_no_answer(tmp_path: Path) -> None:
    try:
        with in_namespaces() as machines:
            async with run(machines, tmp_path, links=True) as made:
                await made.go(float(os.environ.get("FAULTS_FOR", "600")), every_s=5)
                await made.require_whole()
    except NoNetworkOfItsOwn as reason:
        pytest.skip(str(reason))


@pytest.mark.drill
async def test_after_each_fault_alone_the_log_is_whole(tmp_path: Path) -> None:
    async with run(on_loopback(), tmp_path, links=False) as made:
        await made.go_one_by_one()
        await made.require_whole()


@pytest.mark.drill
@pytest.mark.parametrize("ways", [1, 2])
async def test_readers_stand_still_for_a_bounded_time_when_any_one_link_is_cut_for_ever(
    tmp_path: Path, ways: int
) -> None:
    try:
        with in_namespaces() as machines:
            async with run(machines, tmp_path, links=True) as made:
                await made.cut_each_link(ways, for_s=45)
                await made.require_whole()
            assert max(made.readers.longest.values()) <= MOST_S
    except NoNetworkOfItsOwn as reason:
        pytest.skip(str(reason))


@pytest.mark.drill
async def test_streams_get_more_copies_while_pods_are_placed(tmp_path: Path) -> None:
    async with installed(on_loopback(), tmp_path, copies=1) as installation:
        made = Run(installation, links=False)
        await made.load.fill(HISTORY)
        async with made.under_load():
            await until(lambda: len(made.load.seconds) >= ANSWERS, SETTLED_S)
            async with connection_to(installation) as admin:
                assert await copies(admin) == [1] * len(Stream)
            print(f"\nthree copies after {await made.more_copies():.1f} s")
        await made.require_whole()
