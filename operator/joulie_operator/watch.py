"""Watches the cluster and tells the log what it sees: the only source of facts about objects."""

import asyncio
import random
import time
from collections.abc import Iterable
from typing import Generic, TypeVar

import aiohttp
import msgspec

from joulie_bus.errors import BadQuantity, KubernetesRefused
from joulie_bus.events import Fact
from joulie_bus.log import Log
from joulie_bus.logging import get_logger
from joulie_bus.producer import Producer
from joulie_bus.subjects import Subjects
from joulie_operator.kube import GONE, ApiServer
from joulie_operator.observe import Node, NodeKind, PodKind, Told
from joulie_projections.pod import Pod
from joulie_projections.view import View

FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.5, 30.0
K = TypeVar("K")
log = get_logger("watch")


class Watcher(Generic[K]):
    """One kind of object: a list, then what changes, then a list again if the past is gone."""

    def __init__(
        self,
        api: ApiServer,
        path: str,
        shape: type[K],
        told: Told[K],
        tell: "Teller",
    ) -> None:
        self._api = api
        self._path = path
        self._decode = msgspec.json.Decoder(shape).decode
        self._told = told
        self._tell = tell
        self._version = ""
        self._pause_s = FIRST_PAUSE_S

    async def run(self) -> None:
        """For ever. An outage is waited out with growing pauses, never hammered."""
        while True:
            try:
                if not self._version:
                    await self._list()
                await self._follow()
            except KubernetesRefused as error:
                if error.code == GONE:
                    self._version = ""  # what happened since is forgotten there: list again
                await self._wait(error)
            except (aiohttp.ClientError, TimeoutError, OSError, msgspec.DecodeError) as error:
                await self._wait(error)

    async def _list(self) -> None:
        items, version = await self._api.list(self._path)
        things = [self._decode(item) for item in items]
        news = [self._news("ADDED", thing) for thing in things]
        facts = [*self._told.missing(things), *(fact for fact in news if fact is not None)]
        await self._tell(facts)
        self._version = version
        log.info("listed", path=self._path, objects=len(items), news=len(facts))

    async def _follow(self) -> None:
        async for event, version in self._api.watch(self._path, self._version):
            if event.type != "BOOKMARK":
                fact = self._news(event.type, self._decode(event.object))
                if fact is not None:
                    await self._tell([fact])
            self._version = version
            self._pause_s = FIRST_PAUSE_S  # it speaks again

    def _news(self, kind: str, thing: K) -> Fact | None:
        try:
            return self._told.deleted(thing) if kind == "DELETED" else self._told.seen(thing)
        except BadQuantity as error:
            log.warning("object_left_out", path=self._path, why=str(error))
            return None

    async def _wait(self, error: Exception) -> None:
        pause_s = self._pause_s * random.uniform(0.5, 1)  # operators do not come back together
        log.warning("watch_failed", path=self._path, error=str(error), again_in_s=round(pause_s, 1))
        await asyncio.sleep(pause_s)
        self._pause_s = min(LONGEST_PAUSE_S, self._pause_s * 2)


class Teller:
    """Publishes facts in order; returns once they are stored."""

    def __init__(self, bus: Log, producer: Producer) -> None:
        self._bus = bus
        self._producer = producer

    async def __call__(self, facts: Iterable[Fact]) -> None:
        await self._bus.publish([self._producer.stamp(fact) for fact in facts])


async def watch_cluster(api: ApiServer, bus: Log, subjects: Subjects, view: View) -> None:
    """Nodes and pods. What the log believes in and the cluster does not show is told as gone."""
    await view.wait_ready(30)
    tell = Teller(bus, Producer("operator-obs", subjects, time.time_ns))
    present = [name for name, node in view.world.nodes.items() if node.present]
    nodes = Watcher(api, "/api/v1/nodes", Node, Told[Node](NodeKind(), present), tell)
    pods = Watcher(api, "/api/v1/pods", Pod, Told[Pod](PodKind(), list(view.world.pods)), tell)
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(nodes.run(), name="watch nodes")
        tasks.create_task(pods.run(), name="watch pods")
