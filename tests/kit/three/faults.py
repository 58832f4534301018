"""A fault each few seconds, drawn from a seed, and how long readers stood still after it."""

import asyncio
import contextlib
import functools
import random
import time
from collections import defaultdict
from collections.abc import AsyncGenerator, Awaitable, Callable

from installation import EXTENDER, Installation
from machines import COUNT
from programs import Program
from seen_positions import read_by_extender

CUT_S = 8.0  # a link, before it is joined again
FROZEN_S = 10.0
PATIENCE_S = 90.0  # of a busy machine
GRACE_S = 5.0  # a reader that starts has read everything by then


class Readers:
    """The position that each extender has read. It grows all the time, because facts arrive."""

    def __init__(self, installation: Installation) -> None:
        self._installation = installation
        self.cut: set[int] = set()  # machines that do not reach the primary of the database
        machines = [each.command.machine for each in installation.of("extender")]
        self.position = dict.fromkeys(machines, 0)
        self._moved = dict.fromkeys(machines, time.monotonic())
        self.fault = "none"  # the newest
        self.longest: defaultdict[str, float] = defaultdict(float)  # seconds, by fault

    async def know(self, facts: int) -> None:
        """Returns when every extender has read so many facts."""
        async with asyncio.timeout(PATIENCE_S):
            for machine in self.position:
                while True:
                    with contextlib.suppress(OSError, ValueError):
                        if await self._ask(machine) >= facts:
                            break
                    await asyncio.sleep(0.1)

    async def watch(self) -> None:
        async with asyncio.TaskGroup() as group:
            for program in self._installation.of("extender"):
                group.create_task(self._watch(program))

    async def _watch(self, program: Program) -> None:
        machine = program.command.machine
        while True:
            await asyncio.sleep(0.2)
            with contextlib.suppress(OSError, ValueError):
                found = await self._ask(machine)
                if found > self.position[machine] or program.runs_for() < GRACE_S:
                    self._moved[machine] = time.monotonic()
                self.position[machine] = found
            if program.runs_for() < GRACE_S or machine in self.cut:
                self._moved[machine] = time.monotonic()
            stood = time.monotonic() - self._moved[machine]
            self.longest[self.fault] = max(self.longest[self.fault], stood)

    async def _ask(self, machine: int) -> int:
        address = self._installation.machines.addresses[machine]
        return await read_by_extender(f"{address}:{EXTENDER}")


class Faults:
    """Draws faults. `links`: the machines have links that can be cut."""

    def __init__(
        self, installation: Installation, readers: Readers, seed: int, *, links: bool
    ) -> None:
        self._installation, self._readers = installation, readers
        self._machines = installation.machines
        self._draw = random.Random(seed)
        self.happened: list[str] = []
        self._kinds: list[tuple[str, int, Callable[[], Awaitable[str]]]] = [
            ("kill", 10, self._kill),
            ("machine", 2, self._kill_machine),
            ("failover", 1, self._fail_over),
        ]
        if links:
            self._kinds += [
                ("link", 3, self._cut_link),
                ("one way", 3, self._cut_one_way),
                ("isolated", 2, self._isolate),
            ]

    def each(self) -> list[tuple[str, Callable[[], Awaitable[object]]]]:
        """Faults that the readers are far from, by name: none is of an extender's machine alone."""
        installation = self._installation
        return [
            *((f"kill {each.name}", self._killing(each)) for each in installation.of("broker")),
            *((f"kill {each.name}", self._killing(each)) for each in installation.of("projector")),
            *(
                (f"freeze {each.name}", functools.partial(each.freeze, FROZEN_S))
                for each in installation.of("projector")
            ),
            ("failover", self._fail_over),
            ("kill everything", self._killing(*installation.programs)),
        ]

    def _killing(self, *programs: Program) -> Callable[[], Awaitable[object]]:
        async def kill() -> None:
            for each in programs:
                each.kill()

        return kill

    async def one(self) -> None:
        weights = [weight for _, weight, _ in self._kinds]
        [(kind, _, cause)] = self._draw.choices(self._kinds, weights)
        self._readers.fault = kind
        self.happened.append(await cause())

    async def _kill(self) -> str:
        program = self._draw.choice(self._installation.programs)
        self._readers.fault = f"kill {program.name.rstrip('012')}"
        program.kill()
        return f"killed {program.name}"

    async def _kill_machine(self) -> str:
        machine = self._draw.randrange(COUNT)
        for program in self._installation.programs:
            if program.command.machine == machine:
                program.kill()
        return f"killed all of machine {machine}"

    async def _fail_over(self) -> str:
        databases = self._installation.databases
        old = await databases.fail_over()
        await asyncio.sleep(CUT_S)
        await databases.follow(old)
        return f"failed over from postgres{old} to postgres{databases.primary}"

    async def _cut_link(self) -> str:
        one, other = self._draw.sample(range(COUNT), 2)
        async with self.cut({(one, other), (other, one)}):
            await asyncio.sleep(CUT_S)
        return f"cut between {one} and {other}"

    async def _cut_one_way(self) -> str:
        one, other = self._draw.sample(range(COUNT), 2)
        async with self.cut({(one, other)}):
            await asyncio.sleep(CUT_S)
        return f"cut from {one} to {other}"

    async def _isolate(self) -> str:
        alone = self._draw.randrange(COUNT)
        async with self.cut({(alone, other) for other in {0, 1, 2} - {alone}}):
            await asyncio.sleep(CUT_S)
        return f"isolated {alone}"

    @contextlib.asynccontextmanager
    async def cut(self, links: set[tuple[int, int]]) -> AsyncGenerator[None, None]:
        """Without these links. A reader that misses a change while it does not reach the database
        continues when it does, and states its age until then."""
        primary = self._installation.databases.primary
        blind = {machine for link in links if primary in link for machine in link} - {primary}
        self._readers.cut |= blind
        for link in links:
            self._machines.cut(*link)
        try:
            yield
        finally:
            for link in links:
                self._machines.join(*link)
            self._readers.cut -= blind
