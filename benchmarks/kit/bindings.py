"""Pods of a benchmark, and the times at which they are created and seen bound."""

import asyncio
import contextlib
import time
from collections import Counter
from collections.abc import AsyncGenerator, Iterable, Sequence
from typing import Any, NamedTuple

import msgspec

from joulie_bus.runtime.tasks import background
from joulie_operator.kube.api_client import ApiServer, ApiUnreachable
from kube_conditions import PODS


class _Meta(msgspec.Struct):
    name: str


class _Spec(msgspec.Struct, rename="camel"):
    node_name: str = ""


class _Pod(msgspec.Struct):
    metadata: _Meta
    spec: _Spec


class Waits(NamedTuple):
    """Times from creation to binding, in seconds."""

    p50: float
    p99: float
    longest: float
    pods: int
    unplaced: int  # pods that are counted with the time that they have waited so far


class Bindings:
    """Inside `following`, knows the node of each bound pod, and when it was seen bound."""

    def __init__(self, api: ApiServer) -> None:
        self._api = api
        self._began: dict[str, float] = {}
        self._bound: dict[str, float] = {}
        self._nodes: dict[str, str] = {}
        self._accepted = asyncio.Event()
        self._moved = asyncio.Event()

    @classmethod
    @contextlib.asynccontextmanager
    async def following(cls, api: ApiServer) -> AsyncGenerator["Bindings", None]:
        bindings = cls(api)
        async with background(bindings._follow(), "bindings"):
            await bindings._accepted.wait()
            yield bindings

    def __len__(self) -> int:
        return len(self._bound)

    def is_bound(self, name: str) -> bool:
        return name in self._bound

    def node_of(self, name: str) -> str:
        """Empty while the pod is not bound."""
        return self._nodes.get(name, "")

    async def create(self, pod: dict[str, Any]) -> None:
        self._began[pod["metadata"]["name"]] = time.perf_counter()
        await self._api.create(PODS, pod)

    async def wait_for(self, count: int, patience_s: float) -> bool:
        """Waits for that many bound pods; False if there are fewer after `patience_s`."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(patience_s):
                while len(self) < count:
                    self._moved.clear()
                    await self._moved.wait()
        return len(self) >= count

    def waits(self, names: Iterable[str]) -> Waits:
        now, names = time.perf_counter(), list(names)
        waited = [self._bound.get(name, now) - self._began[name] for name in names]
        unplaced = sum(name not in self._bound for name in names)
        p50, p99 = (percentile(waited, percent) for percent in (50, 99))
        return Waits(p50, p99, max(waited), len(names), unplaced)

    def most_on_a_node(self) -> int:
        return max(Counter(self._nodes.values()).values(), default=0)

    async def _follow(self) -> None:
        """The server ends a watch after some minutes; the next one starts where it ended."""
        version = ""
        while True:
            watch = self._api.watch(PODS, version, {"fieldSelector": "spec.nodeName!="})
            with contextlib.suppress(*ApiUnreachable):
                async with contextlib.aclosing(watch):
                    async for events in watch:
                        self._accepted.set()
                        for event in events:
                            version = event.version
                            if event.type in ("ADDED", "MODIFIED"):
                                self._note(msgspec.json.decode(event.object, type=_Pod))
                        self._moved.set()

    def _note(self, pod: _Pod) -> None:
        if pod.metadata.name not in self._bound:
            self._bound[pod.metadata.name] = time.perf_counter()
            self._nodes[pod.metadata.name] = pod.spec.node_name


def percentile(values: Sequence[float], percent: int) -> float:
    """The nearest value, so that one is enough."""
    return sorted(values)[round((len(values) - 1) * percent / 100)]
