"""From version 0.2.0 to this one, back, and forth again, while pods are placed all the time."""

import asyncio
import contextlib
import functools
import json
import time
from collections import Counter
from collections.abc import AsyncGenerator, Coroutine
from pathlib import Path
from typing import Any

import pytest

import older_version
from joulie_bus.broker import older_streams
from joulie_bus.streams.roles import Role
from joulie_bus.testing import until
from joulie_projections.history.history import History
from load import Load
from logged_answers import logged
from mixed_versions import EXTENDERS, TODAY, Code, Site
from programs import kept

pytestmark = [pytest.mark.anyio, pytest.mark.drill]
PATIENCE_S = 120.0
CURRENT_S = 5.0  # the age of a ledger that follows
# How a reader ends when the broker's users get accounts; the next start reads by direct gets.
DIRECT_ONLY = "CONSUMER.CREATE"
ANSWERS = 60  # of each mixture of versions


@pytest.fixture(scope="module")
def old(tmp_path_factory: pytest.TempPathFactory) -> Code:
    try:
        place = older_version.extracted(
            tmp_path_factory.mktemp("older"), older_version.RELEASE_0_2_0
        )
    except older_version.OlderVersionMissing as missing:
        pytest.skip(f"requires the history of the repository: {missing}")
    return Code("0.2.0", older_version.import_path(place))


class Standstill:
    """How long at most no extender answered, and how long one read nothing new, by step."""

    def __init__(self, site: Site, load: Load) -> None:
        self._site, self._load = site, load
        self.step = "start"
        self.unanswered: Counter[str] = Counter()  # milliseconds, by step
        self.stale: Counter[str] = Counter()

    async def watch(self) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(self._answers())
            for extender in EXTENDERS:
                group.create_task(self._positions(extender))

    async def _answers(self) -> None:
        seen, since = 0, time.monotonic()
        while True:
            await asyncio.sleep(0.02)
            if len(self._load.seconds) > seen:
                seen, since = len(self._load.seconds), time.monotonic()
            self._note(self.unanswered, since)

    async def _positions(self, extender: str) -> None:
        seen, since = 0, time.monotonic()
        while True:
            await asyncio.sleep(0.1)
            with contextlib.suppress(OSError, ValueError):
                found = await self._site.position(extender)
                if found > seen:
                    seen, since = found, time.monotonic()
                self._note(self.stale, since)

    def _note(self, table: Counter[str], since: float) -> None:
        table[self.step] = max(table[self.step], int((time.monotonic() - since) * 1000))


class Drill:
    def __init__(self, site: Site, old: Code) -> None:
        self.site, self.old = site, old
        broker = functools.partial(site.address_of, Role.ADMIN)
        self.load = Load(site.extenders, broker, seed=1, pods_per_s=20)
        self.standstill = Standstill(site, self.load)

    @contextlib.asynccontextmanager
    async def under_load(self) -> AsyncGenerator[None, None]:
        await self.load.declare()
        async with contextlib.AsyncExitStack() as stack:
            for work in (self.load.report(), self.load.schedule(), self.standstill.watch()):
                await stack.enter_async_context(_running(work))
            await self.answers_of("0.2.0 alone")
            yield
        await until(lambda: self.load.answered <= logged(self.site.database), PATIENCE_S)

    async def answers_of(self, step: str) -> None:
        """Both extenders answer and read what is new."""
        await self._read_by_all()
        self.standstill.step = step
        goal = len(self.load.seconds) + ANSWERS
        await until(lambda: len(self.load.seconds) >= goal, PATIENCE_S)
        await self._read_by_all()

    async def _read_by_all(self) -> None:
        facts = self.load.facts
        async with asyncio.timeout(PATIENCE_S):
            for extender in EXTENDERS:
                while True:
                    with contextlib.suppress(OSError, ValueError):
                        if await self.site.position(extender) >= facts:
                            break
                    await asyncio.sleep(0.1)

    async def replace(self, code: Code, *parts: str) -> None:
        for part in parts:
            self.standstill.step = f"{part} to {code.name}"
            await self.site.replace(part, code)
            await self.answers_of(f"{part} of {code.name}")

    async def roll_back(self) -> None:
        """As docs/upgrade.md has it without the chart: the projector first."""
        site = self.site
        self.standstill.step = "rebuild by 0.2.0"
        await site.components["projector"].stop()
        await site.run(self.old, "rebuild")
        site.start("projector", self.old)
        await self.answers_of("projector back at 0.2.0")
        await self.replace(self.old, *[each for each in site.components if each != "projector"])

    async def give_accounts(self) -> None:
        """To the users of a broker of the operator's own, which is stopped meanwhile."""
        self.standstill.step = "accounts"
        await self.site.broker.stop()
        older_streams.adopt(self.site.place / "store" / "jetstream")
        await self.site.with_accounts()
        self.site.broker.is_held = False
        await self.answers_of("today with accounts")
        async with asyncio.timeout(PATIENCE_S):
            while True:
                with contextlib.suppress(OSError, IndexError):
                    if await self.site.lag_of_ledger() < CURRENT_S:
                        return
                await asyncio.sleep(0.1)

    async def require_whole(self) -> None:
        print(f"\n{self.table()}")
        found = logged(self.site.database)
        assert self.load.answered <= found <= self.load.asked
        await self.site.run(TODAY, "verify")
        replayed: dict[str, Any] = json.loads(
            await self.site.run(TODAY, "replay", "--json", or_code=1)
        )
        assert replayed["mismatches"] == 0, replayed
        with History.of(self.site.database) as history:
            assert not history.set_aside()  # no fact was left out
        ends = [each for each in self.site.ended if DIRECT_ONLY not in each.why]
        assert ends == []
        assert max(Counter(each.name for each in self.site.ended).values(), default=0) <= 1

    def table(self) -> str:
        seconds = sorted(self.load.seconds)
        lines = [
            f"{len(seconds)} answers, p99 {seconds[len(seconds) * 99 // 100] * 1000:.0f} ms, "
            f"{self.load.failed} calls failed, {self.load.facts} facts",
            "ms without an answer, and that an extender read nothing new, at most:",
        ]
        for step, most in self.standstill.unanswered.items():
            lines.append(f"  {step}: {most}, {self.standstill.stale[step]}")
        return "\n".join([*lines, *(f"  ended by itself: {each}" for each in self.site.ended)])


@contextlib.asynccontextmanager
async def _running(work: Coroutine[Any, Any, None]) -> AsyncGenerator[None, None]:
    task = asyncio.create_task(work)
    try:
        yield
        assert not task.done(), task
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


@contextlib.asynccontextmanager
async def drill(place: Path, old: Code, url: str = "") -> AsyncGenerator[Drill, None]:
    site = Site(place, old, url)
    await site.without_accounts(old)
    async with kept([site.broker]):
        await site.until_broker_answers()
        await site.run(old, "migrate")
        async with kept([*site.components.values()]):
            yield Drill(site, old)


@pytest.fixture(params=["sqlite", "postgresql"])
async def made(
    request: pytest.FixtureRequest, tmp_path: Path, old: Code
) -> AsyncGenerator[Drill, None]:
    url = "" if request.param == "sqlite" else request.getfixturevalue("postgres").empty()
    async with drill(tmp_path, old, url) as started:
        yield started


async def test_an_upgrade_from_0_2_0_and_a_rollback_lose_nothing(made: Drill) -> None:
    site = made.site
    async with made.under_load():
        await site.run(TODAY, "migrate", "--phase", "pre")
        await made.answers_of("0.2.0 on the new schema")
        await made.replace(TODAY, *site.components)

        await made.roll_back()

        await site.run(TODAY, "migrate", "--phase", "pre")
        await made.replace(TODAY, *reversed(site.components))
        await site.run(TODAY, "migrate", "--phase", "post")
        await made.answers_of("today after the second upgrade")
        await made.give_accounts()
    await made.require_whole()
