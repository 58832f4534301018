"""What every surface of a running Joulie states is true: idle, busy, and with a component stopped.

TRUTH_SECONDS=120 TRUTH_NODES=1000 .venv/bin/python -m pytest -m drill -s tests/cli/test_truth.py
"""

import asyncio
import contextlib
import os
import re
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import AsyncGenerator, Generator
from pathlib import Path

import pytest
from msgspec.structs import replace

from joulie_bus.broker.embedded import address_within
from joulie_bus.jetstream.log import JetStreamLog
from joulie_bus.runtime.settings import BusSettings
from joulie_bus.streams.roles import Role
from joulie_bus.streams.subjects import Subjects
from joulie_demo import Running, demo
from kube_real import PROMTOOL, program_or_skip
from truth import UNKNOWN_SHARE, Judge, report
from truth_alerts import (
    NO_PLANS,
    OF_AGES,
    PLANTED,
    TRUE_OF_A_DEMO,
    firing,
    reasons,
    shows_plans,
    with_lie,
)
from truth_commands import Commands
from truth_lies import COMMANDS, METRICS, PAGE, SHOWN, TEXT, lied
from truth_pairs import as_text, differing, table
from truth_witness import Witness

SECONDS = float(os.environ.get("TRUTH_SECONDS", "600"))
NODES = os.environ.get("TRUTH_NODES", "5000")
SHORT_S, SHORT_NODES = 6.0, "60"
STOPPED_S, RECOVERS_S = 14.0, 12.0
UNREAD_S = 45.0  # the console pauses after half a minute
BOOT_S = 300.0
BUSY = "while True: pass"
COMPONENTS = ("projector", "extender", "console", "operator", "ledger", "nats-server")

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(SECONDS * 3 + BOOT_S * 2)]


@contextlib.contextmanager
def busy_loops(count: int) -> Generator[None, None, None]:
    loops = [subprocess.Popen([sys.executable, "-c", BUSY]) for _ in range(count)]
    try:
        yield
    finally:
        for loop in loops:
            loop.kill()
            loop.wait()


async def until_known(running: Running) -> None:
    """Until the demo counts its own time: all nodes are known, and decisions are made."""
    deadline = time.monotonic() + BOOT_S
    while time.monotonic() < deadline:
        assert running.process.poll() is None, running.process.communicate()
        with contextlib.suppress(Exception):
            if running.counts().answers > 10:
                return
        await asyncio.sleep(0.5)
    raise AssertionError("no decision was made")


class Drill:
    """A demo, its witness and the judge of its surfaces."""

    def __init__(self, running: Running, judge: Judge, place: Path) -> None:
        self.running = running
        self.judge = judge
        self.commands = Commands(judge, running.data.path)
        self._place = place
        self.began = time.monotonic()

    @contextlib.asynccontextmanager
    async def stopped(self, name: str) -> AsyncGenerator[None, None]:
        """SIGSTOP: it keeps its files and sockets, and does nothing."""
        pid = self.running.pids()[name]
        os.kill(pid, signal.SIGSTOP)
        self.judge.stopped_at[name] = time.monotonic()
        try:
            yield
        finally:
            del self.judge.stopped_at[name]
            os.kill(pid, signal.SIGCONT)

    async def look(self, seconds: float, *, page: bool = True, commands: bool = True) -> None:
        self.began = time.monotonic()
        judge = self.judge
        looks = [judge.look_at_status, judge.look_at_metrics]
        looks += [judge.look_at_cluster, judge.look_at_names] if page else []
        looks += [self.commands.look] if commands else []
        await judge.run(seconds, looks)

    def alerts(self, stopped: str = "", since: float | None = None) -> None:
        """Those that fire if the metrics since the last looks go on so. A component that is stopped
        fires one."""
        scrapes, allowed = self.judge.scrapes.since(since or self.began), reasons(stopped)
        if self.judge.witness.were_starved(COMPONENTS, self.began, time.monotonic()):
            allowed |= OF_AGES  # what has no CPU is behind
        found = firing(scrapes, self._place)
        self.judge.expect(found >= TRUE_OF_A_DEMO, "alerts", sorted(found), "no archive runs")
        found -= TRUE_OF_A_DEMO if shows_plans(scrapes) else {*TRUE_OF_A_DEMO, NO_PLANS}
        false = sorted(found - allowed)
        self.judge.expect(not false, "alerts", false, f"only {sorted(allowed)} have a reason")
        if stopped:
            self.judge.expect(bool(found), "alerts", "none", f"{stopped} is stopped")

    def planted_alert(self) -> bool:
        """Whether a lie in the metrics fires its alert."""
        return PLANTED[-1] in firing(with_lie(self.judge.scrapes.since(self.began)), self._place)

    async def look_without(self, name: str) -> None:
        before = time.monotonic()
        await self.judge.look_at_metrics()  # of a component that never answered, nothing would end
        async with self.stopped(name):
            await self.look(STOPPED_S, page=name != "console", commands=name != "nats-server")
            self.alerts(name, before)
        await asyncio.sleep(RECOVERS_S)
        await self.look(3.0, commands=False)

    async def compare(self) -> None:
        """The table of pairs, while no fact arrives."""
        async with self.stopped("simulator"), self.stopped("operator"):
            await asyncio.sleep(1)
            found = await table(self.judge, self.running.data.path)
            if differing(found):  # the report of a day may be written between two reads
                found = await table(self.judge, self.running.data.path)
        print(as_text(found))
        for pair in differing(found):
            self.judge.expect(False, "pairs", pair, "one figure")


@contextlib.asynccontextmanager
async def drill(place: Path, nodes: str, *words: str) -> AsyncGenerator[Drill, None]:
    program_or_skip(PROMTOOL)
    with demo(place / "data", "--nodes", nodes, *words) as running:
        await until_known(running)
        ran = running.data.running()
        assert ran is not None
        address = address_within(running.data.path, ran.nats_url, Role.ADMIN)
        async with JetStreamLog.open(address, "witness") as bus:
            witness = Witness(bus, Subjects(BusSettings().cluster), running.data)
            judge = Judge(witness, running.data, ran.endpoints["console"])
            async with witness.watching():
                await judge.until_ready()
                yield Drill(running, judge, place)
        running.end()


def assert_true(judge: Judge) -> None:
    checked = ", ".join(f"{name} {count}" for name, count in judge.checked.items())
    print(f"{sum(judge.checked.values())} statements in {judge.looks} answers: {checked}")
    print(f"{judge.unanswered} answers did not come in time; the oldest view was")
    print(f"{judge.worst_ms / 1000:.1f} s behind; {judge.unknown} of {judge.ages} ages unknown")
    excused = judge.witness.excused_ms
    print(
        f"{len(excused)} ages were up to {max(excused, default=0) / 1000:.1f} s larger than the "
        "truth while their component or the projector had no CPU"
    )
    if judge.list_ms:
        print(f"a list of decisions took {statistics.median(judge.list_ms):.0f} ms (median)")
    print(report(judge.false))
    assert judge.false == [], report(judge.false[:30])


def lies_found(found: Drill) -> dict[str, bool]:
    """Whether each lie in an answer of just now is found, by surface and name."""
    judge, last = found.judge, found.judge.last
    said = dict[str, bool]()

    def plant(name: str, check: str, *args: object) -> None:
        twin = judge.twin()
        getattr(twin, check)(*args)
        said[name] = bool(twin.false)

    cluster, *span = last["page"]
    for name, lie in PAGE.items():
        plant(f"page: {name}", "check_cluster", lied(cluster, lie), *span)
    gauges, *rest = last["metrics"]
    for name, lie in METRICS.items():
        plant(f"metrics: {name}", "check_metrics", lied(gauges, lie), *rest)
    text, *span = last["status text"]
    for name, change in TEXT.items():
        plant(f"status text: {name}", "check_text", change(text), *span)
    status, *rest = last["status"]
    changes = {
        "entries": replace(status, entries=status.entries + 1000),
        "epoch": replace(status, epoch=status.epoch + 1),
        "nodes": replace(status, readings=replace(status.readings, nodes=1)),
        "a component": replace(status, parts=[replace(each, alive=False) for each in status.parts]),
        "an age": replace(
            status, parts=[replace(each, position=judge.witness.first) for each in status.parts]
        ),
        "a ledger behind": replace(status, ledger_behind_s=99.0),
    }
    for name, changed in changes.items():
        plant(f"status: {name}", "check_status", changed, *rest)
    return said


def lies_of_commands_found(found: Drill) -> dict[str, bool]:
    said = dict[str, bool]()
    for name, lies in COMMANDS.items():
        answer, text = found.commands.answers[name], found.commands.answers[f"{name} text"]
        pattern, instead = SHOWN[name]
        changed = re.sub(pattern, instead, text, count=1, flags=re.M)
        assert changed != text
        planted = {each: (lied(answer, lie), text) for each, lie in lies.items()}
        for lie, args in {**planted, "the text": (answer, changed)}.items():
            twin = found.judge.twin()
            found.commands.check(name, *args, twin)
            said[f"{name}: {lie}"] = bool(twin.false)
    return said


@pytest.mark.long
async def test_every_surface_states_the_truth_and_no_lie_is_overlooked(tmp_path: Path) -> None:
    async with drill(tmp_path, SHORT_NODES) as found:
        await found.look(SHORT_S)
        found.alerts()
        await found.commands.until_explained()
        said = lies_found(found) | lies_of_commands_found(found)
        said["alerts: an old view"] = found.planted_alert()
        await found.compare()

    assert_true(found.judge)
    assert [name for name, is_found in said.items() if not is_found] == []
    assert len(said) > 30


@pytest.mark.drill
async def test_every_surface_states_the_truth_idle_unread_and_beside_two_busy_loops(
    tmp_path: Path,
) -> None:
    async with drill(tmp_path, NODES) as found:
        await found.look(SECONDS / 4)
        found.alerts()
        await asyncio.sleep(UNREAD_S)
        await found.look(SECONDS / 4, page=False, commands=False)
        found.alerts()
        with busy_loops(2):
            await found.look(SECONDS / 2)
        await found.compare()

    assert_true(found.judge)
    assert found.judge.unknown <= UNKNOWN_SHARE * found.judge.ages


@pytest.mark.drill
@pytest.mark.parametrize("component", COMPONENTS)
async def test_every_surface_states_the_truth_while_a_component_is_stopped(
    component: str, tmp_path: Path
) -> None:
    async with drill(tmp_path, SHORT_NODES) as found:
        await found.look_without(component)

    assert_true(found.judge)
