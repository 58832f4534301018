"""Two replicas as processes, clients that try the other one, and SIGKILL."""

import asyncio
import contextlib
import json
import os
import random
import signal
import sys
import time
from collections import Counter
from collections.abc import AsyncGenerator
from pathlib import Path

import pytest

from bus_kit import Voices, eco, hardware, performance, power
from extender_kit import PATIENCE_S, get
from go_http import CallFailed, Client
from go_json import decode, int64, list_of, string, struct
from joulie_bus.events import AnyEvent
from joulie_bus.jetstream.log import JetStreamLog
from joulie_bus.runtime.ports import free_port
from joulie_bus.runtime.settings import HostPort
from joulie_bus.streams.roles import Role
from joulie_bus.streams.subjects import Subjects
from joulie_cli.supervisor.supervisor import Supervisor
from joulie_projections.component.data_directory import DataDirectory
from kube_scheduler import a_pod
from logged_answers import Answer, logged

pytestmark = pytest.mark.anyio
COUNT = 50
PODS = 20  # of each client
NAMES = [f"n{at}" for at in range(COUNT)]
SUBJECTS = Subjects("local")
FACTS = 3 * len(NAMES)
KNOWN_MS = 60_000
_SCORES = list_of(struct(Host=string, Score=int64))
_FILTERED = struct(NodeNames=list_of(string), Error=string)


class Replica:
    """One process; `kill` sends SIGKILL, `start` starts it again."""

    def __init__(self, name: str, data: DataDirectory) -> None:
        self.name = name
        self.port, self._metrics = free_port(), free_port()
        self._data = data
        self._process: asyncio.subprocess.Process | None = None
        self.is_ready = False  # as for a Service: a replica that is not ready gets no calls

    async def start(self) -> None:
        told = {
            "EXTENDER_REPLICA": self.name,
            "EXTENDER_ADDR": f"127.0.0.1:{self.port}",
            "METRICS_ADDR": f"127.0.0.1:{self._metrics}",
            "EXTENDER_DEADLINE": "20s",
            "TWIN_STALENESS_THRESHOLD": "1h",
        }
        self._process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "joulie_cli.main", "extender", "--data", str(self._data.path)),
            env={**os.environ, **told},
            stderr=asyncio.subprocess.DEVNULL,
        )
        await self._until_ready()
        self.is_ready = True

    async def _until_ready(self) -> None:
        """Wait until it has read all facts, and knows how old they are: before that it answers as
        without them.
        """
        async with asyncio.timeout(60):
            while True:
                with contextlib.suppress(OSError, asyncio.IncompleteReadError):
                    page = json.loads((await get(self.port, "/debug/scoring")).body)
                    behind_ms = page["viewBehindMs"]  # None: not known yet
                    is_known = behind_ms is not None and behind_ms < KNOWN_MS
                    if page["position"] >= FACTS and is_known:
                        return
                await asyncio.sleep(0.05)

    async def end(self, number: int) -> None:
        if self._process is not None and self._process.returncode is None:
            self._process.send_signal(number)
            self.is_ready = False
            await self._process.wait()

    def resident_kib(self) -> int:
        assert self._process is not None
        status = Path(f"/proc/{self._process.pid}/status").read_text()
        return int(status.partition("VmRSS:")[2].split()[0])


class Caller:
    """A client that tries another replica when one fails, as two extenders behind one name."""

    def __init__(self, replicas: list[Replica], seed: int) -> None:
        self._clients = {each: Client("127.0.0.1", each.port) for each in replicas}
        self._draw = random.Random(seed)
        self.given: list[Answer] = []
        self.failed = 0

    async def ask(self, uid: str) -> None:
        names = self._draw.sample(NAMES, 20)
        pod = a_pod(uid, workload=self._draw.choice(["", "performance"]))
        is_fast = pod["metadata"]["annotations"] != {}
        body = json.dumps({"Pod": pod, "Nodes": None, "NodeNames": names}).encode()
        passed = decode(await self._answered("filter", uid, body), _FILTERED)
        allowed = [name for name in names if not (is_fast and int(name[1:]) % 2)]
        assert (passed["NodeNames"], passed["Error"]) == (allowed, "")
        scores = decode(await self._answered("prioritize", uid, body), _SCORES)
        assert [each["Host"] for each in scores] == names

    async def _answered(self, verb: str, uid: str, body: bytes) -> bytes:
        for _ in range(100):
            replica = self._draw.choice([each for each in self._clients if each.is_ready])
            try:
                reply = await self._clients[replica].post(verb, body, PATIENCE_S)
            except CallFailed:
                self.failed += 1
                await asyncio.sleep(0.05)
                continue
            self.given.append(Answer(replica.name, verb, uid))
            return reply
        raise AssertionError("no replica answers")

    async def close(self) -> None:
        for client in self._clients.values():
            await client.close()


@contextlib.asynccontextmanager
async def site(directory: Path, *names: str) -> AsyncGenerator[list[Replica], None]:
    """A broker, a projector and the named replicas. Every other node has the eco profile."""
    data = DataDirectory(directory / "data")
    addresses = {
        "extender": HostPort("127.0.0.1", free_port()),
        "metrics": HostPort("127.0.0.1", free_port()),
    }
    replicas = [Replica(name, data) for name in names]
    async with Supervisor.over(data, {"projector": ()}, addresses, {}, SUBJECTS) as supervisor:
        says = Voices("test", SUBJECTS, time.time_ns)
        address = supervisor.broker.address_of(Role.ADMIN)
        async with JetStreamLog.open(address, "test") as bus:
            for at, name in enumerate(NAMES):
                profile = eco(name) if at % 2 else performance(name)
                facts: list[AnyEvent] = [hardware(name), profile, power(name, 200 + at)]
                await bus.publish([says.stamp(fact) for fact in facts])
        await asyncio.gather(*(replica.start() for replica in replicas))
        try:
            yield replicas
        finally:
            await asyncio.gather(*(replica.end(signal.SIGTERM) for replica in replicas))


@pytest.mark.long
async def test_a_replica_that_is_killed_costs_no_answer_and_no_entry(tmp_path: Path) -> None:
    async with site(tmp_path, "east", "west") as replicas:
        callers = [Caller(replicas, seed) for seed in range(4)]

        async def work(caller: Caller, name: int) -> None:
            for number in range(PODS):
                await caller.ask(f"{name}-{number}")

        tasks = [asyncio.create_task(work(each, at)) for at, each in enumerate(callers)]
        while sum(len(caller.given) for caller in callers) < 40:
            await asyncio.sleep(0.01)
        await replicas[0].end(signal.SIGKILL)
        await replicas[0].start()
        await asyncio.gather(*tasks)
        await asyncio.gather(*(caller.close() for caller in callers))

    given = Counter(each for caller in callers for each in caller.given)
    found = logged(tmp_path / "data/joulie.db")
    assert sum(given.values()) == 4 * PODS * 2
    assert set(found.values()) == {1}
    assert set(given) <= set(found)


async def steady(directory: Path, seconds: float) -> tuple[int, int]:
    """Run eight clients; returns the number of answers and the growth of memory."""
    async with site(directory, "only") as [replica]:
        callers = [Caller([replica], seed) for seed in range(8)]

        async def work(caller: Caller, until: float) -> None:
            while time.monotonic() < until:
                await caller.ask(f"p{len(caller.given) % 500}")

        async def all_work(share: float) -> None:
            until = time.monotonic() + seconds * share
            await asyncio.gather(*(work(caller, until) for caller in callers))

        await all_work(0.5)
        before = replica.resident_kib()
        await all_work(0.5)
        grown = replica.resident_kib() - before
        await asyncio.gather(*(caller.close() for caller in callers))
    assert sum(caller.failed for caller in callers) == 0
    return sum(len(caller.given) for caller in callers), grown


@pytest.mark.slow
@pytest.mark.long
async def test_eight_clients_at_once_get_every_answer(tmp_path: Path) -> None:
    answers, _ = await steady(tmp_path, 3)

    assert answers > 100


@pytest.mark.drill
async def test_eight_clients_for_a_minute_leave_no_memory_behind(tmp_path: Path) -> None:
    answers, grown_kib = await steady(tmp_path, 60)

    assert answers > 1000
    assert grown_kib < 40_000
