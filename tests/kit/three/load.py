"""Facts of nodes and calls of kube-schedulers, and what came back."""

import asyncio
import contextlib
import json
import random
import time
from collections import Counter
from collections.abc import Callable, Mapping

from bus_kit import Voices, bound, eco, hardware, performance, power
from go_http import CallFailed, Client
from joulie_bus.errors import JoulieError
from joulie_bus.events import AnyEvent
from joulie_bus.jetstream.connection import Address
from joulie_bus.jetstream.log import JetStreamLog
from joulie_bus.streams.records import Message
from joulie_bus.streams.subjects import Subjects
from kube_scheduler import a_pod
from logged_answers import Answer

NODES = [f"n{at}" for at in range(50)]
CALLERS = 8
FILLED_AT_ONCE = 5_000
TIMEOUT_S = 1.0  # of kube-scheduler's configuration


class Load:
    """A fact of each node a second, and pods at a rate. Extenders are tried in turn. `binds`: each
    pod is reported on a node afterwards.
    """

    def __init__(
        self,
        extenders: Mapping[str, tuple[str, int]],
        broker: Callable[[], Address],
        seed: int,
        pods_per_s: float,
        *,
        binds: bool = False,
    ) -> None:
        self._extenders, self._broker = extenders, broker
        self._draw = random.Random(seed)
        self._pause_s = CALLERS / pods_per_s
        self._binds = binds
        self._bound: list[AnyEvent] = []  # not reported yet
        self._voices = Voices("test", Subjects("local"), time.time_ns)
        self.asked: Counter[Answer] = Counter()
        self.answered: Counter[Answer] = Counter()
        self.seconds: list[float] = []  # of each answer
        self.failed = 0
        self.facts = 0

    async def declare(self) -> None:
        for at, name in enumerate(NODES):
            facts: list[AnyEvent] = [hardware(name), eco(name) if at % 2 else performance(name)]
            await self._publish([self._voices.stamp(each) for each in facts])

    async def fill(self, facts: int) -> None:
        """A history of readings of all nodes, as fast as the broker stores it."""
        for first in range(0, facts, FILLED_AT_ONCE):
            numbers = range(first, min(facts, first + FILLED_AT_ONCE))
            watts = [power(NODES[each % len(NODES)], 200 + each % 97) for each in numbers]
            await self._publish([self._voices.stamp(each) for each in watts])

    async def report(self) -> None:
        """Without end: power of all nodes. What fails is published again, unchanged."""
        for number in range(1_000_000):
            watts = [power(name, 200 + (number + at) % 100) for at, name in enumerate(NODES)]
            placed, self._bound = self._bound, []
            await self._publish([self._voices.stamp(each) for each in (*watts, *placed)])
            await asyncio.sleep(1.0)

    async def _publish(self, messages: list[Message]) -> None:
        while True:
            with contextlib.suppress(JoulieError, OSError, TimeoutError):
                async with JetStreamLog.open(self._broker(), "test") as bus:
                    await bus.publish(messages)
                self.facts += len(messages)
                return
            await asyncio.sleep(0.2)

    async def schedule(self) -> None:
        """Without end: pods, each with filter and prioritize."""
        async with asyncio.TaskGroup() as group:
            for caller in range(CALLERS):
                group.create_task(self._schedule(caller))

    async def _schedule(self, caller: int) -> None:
        clients = {name: Client(*where) for name, where in self._extenders.items()}
        try:
            for number in range(1_000_000):
                await self._place(clients, f"{caller}-{number}")
                await asyncio.sleep(self._pause_s)
        finally:
            for client in clients.values():
                await client.close()

    async def _place(self, clients: Mapping[str, Client], number: str) -> None:
        names = self._draw.sample(NODES, 20)
        pod = {"Pod": a_pod(number), "Nodes": None, "NodeNames": names}
        body = json.dumps(pod).encode()
        for verb in ("filter", "prioritize"):
            await self._ask(clients, verb, number, body)
        if self._binds:
            self._bound.append(bound(number, names[0]))

    async def _ask(self, clients: Mapping[str, Client], verb: str, uid: str, body: bytes) -> bytes:
        """The reply. Extenders are tried until one answers."""
        while True:
            replica = self._draw.choice([*clients])
            call = Answer(replica, verb, uid)
            self.asked[call] += 1
            begun = time.monotonic()
            try:
                reply = await clients[replica].post(verb, body, TIMEOUT_S)
            except CallFailed:
                self.failed += 1
                await asyncio.sleep(0.05)
                continue
            self.answered[call] += 1
            self.seconds.append(time.monotonic() - begun)
            return reply
