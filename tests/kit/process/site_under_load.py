"""Load at an installation, and how long it stood still, by step."""

import asyncio
import contextlib
import json
import time
from collections import Counter
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

from bus_kit import until
from cluster_load import ClusterLoad
from joulie_bus.runtime.tasks import background
from joulie_bus.streams.roles import Role
from joulie_projections.history.history import History
from kube_real import Running
from load import Load
from logged_answers import Answer, logged
from own_installation import EXTENDERS, Site

PATIENCE_S = 120.0
ANSWERS = 60  # of each step
BINDINGS = 20  # likewise, in a cluster


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


class SiteUnderLoad:
    def __init__(self, site: Site, server: Running | None = None) -> None:
        self.site = site
        self.load = self._made_load(server)
        self.trimmed = Counter[Answer]()  # from the database
        self.standstill = Standstill(site, self.load)

    def _made_load(self, server: Running | None) -> Load:
        address = self.site.address_of(Role.ADMIN)
        if server is None:
            return Load(self.site.extenders, lambda: address, seed=1, pods_per_s=20, binds=True)
        return ClusterLoad(self.site.extenders, lambda: address, 1, server)

    @contextlib.asynccontextmanager
    async def under_load(self) -> AsyncGenerator[None, None]:
        await self.load.declare()
        async with contextlib.AsyncExitStack() as stack:
            for work in (self.load.report(), self.load.schedule(), self.standstill.watch()):
                await stack.enter_async_context(background(work, "load"))
            await self.answers_of("before")
            yield
        await until(lambda: self.load.answered <= self.logged(), PATIENCE_S)

    def logged(self) -> Counter[Answer]:
        return logged(self.site.database) + self.trimmed

    async def trim(self, archive: Path) -> None:
        """Everything is in the archive, and most of it nowhere else."""
        await self.site.replace("projector")  # one that ends signs all of it
        before = logged(self.site.database)
        words = ("--dir", str(archive), "--now", "--trim", "--keep", "1ms")
        await self.site.run("archive", *words)
        self.trimmed = before - logged(self.site.database)
        assert self.trimmed

    async def answers_of(self, step: str) -> None:
        """Both extenders answer, and read what is new; pods are bound, if there is a cluster."""
        await self._read_by_all()
        self.standstill.step = step
        goal = len(self.load.seconds) + ANSWERS
        await until(lambda: len(self.load.seconds) >= goal, PATIENCE_S)
        if isinstance(self.load, ClusterLoad):
            await self._bindings_of(self.load)
        await self._read_by_all()

    async def _bindings_of(self, load: ClusterLoad) -> None:
        goal = load.bound + BINDINGS
        await until(lambda: load.bound >= goal, PATIENCE_S)

    async def _read_by_all(self) -> None:
        facts = self.load.facts
        async with asyncio.timeout(PATIENCE_S):
            for extender in EXTENDERS:
                while True:
                    with contextlib.suppress(OSError, ValueError):
                        if await self.site.position(extender) >= facts:
                            break
                    await asyncio.sleep(0.1)

    async def replace(self, *parts: str) -> None:
        for part in parts:
            self.standstill.step = f"{part} replaced"
            await self.site.replace(part)
            await self.answers_of(f"the new {part}")

    async def require_whole(self, *options: str) -> None:
        """No answer is lost or doubled; the log is valid; every decision is recomputed; and no
        component ends. `options` of `joulie replay`."""
        print(f"\n{self.table()}")
        found = self.logged()
        assert self.load.answered <= found <= self.load.asked
        await self.site.run("verify")
        replayed: dict[str, Any] = json.loads(
            await self.site.run("replay", "-o", "json", *options, or_code=1)
        )
        assert replayed["told"] == replayed["on_other_folds"] == [], replayed
        assert not replayed["uncompared"], replayed
        with History.of(self.site.database) as history:
            assert [each.why for each in history.quarantined()] == []
        assert self.site.ended == []
        if isinstance(self.load, ClusterLoad):
            await self._require_released()

    async def _require_released(self) -> None:
        """All pods are gone: no claim of theirs is left."""
        async with asyncio.timeout(PATIENCE_S):
            while self._claimed():
                await asyncio.sleep(0.5)

    def _claimed(self) -> list[str]:
        with History.of(self.site.database) as history:
            return [uuid for uuid, card in history.cluster_state().gpus.items() if card.claims]

    def table(self) -> str:
        seconds = sorted(self.load.seconds)
        lines = [
            *self._bindings(),
            f"{len(seconds)} answers, p99 {seconds[len(seconds) * 99 // 100] * 1000:.0f} ms, "
            f"{self.load.failed} calls failed, {self.load.facts} facts",
            "ms without an answer, and that an extender read nothing new, at most:",
        ]
        for step, most in self.standstill.unanswered.items():
            lines.append(f"  {step}: {most}, {self.standstill.stale[step]}")
        return "\n".join([*lines, *(f"  ended by itself: {each}" for each in self.site.ended)])

    def _bindings(self) -> list[str]:
        if not isinstance(self.load, ClusterLoad):
            return []
        return [
            f"{self.load.bound} pods bound, {self.load.without_card} found no card",
            *(f"  {count} bindings failed: {why}" for why, count in self.load.why.items()),
        ]
