"""The running simulation: publishes the facts that a real cluster's watchers and agents would."""

import asyncio
import heapq
import random
import secrets
import time
from collections import deque
from dataclasses import dataclass

import msgspec

from joulie_bus.events import (
    AnyEvent,
    NodeSeen,
    PodAsk,
    PodBound,
    PodFinished,
    PodGone,
    PodPending,
    TelemetrySampled,
)
from joulie_bus.log import Log
from joulie_bus.logging import get_logger
from joulie_bus.producer import Producer
from joulie_bus.settings import HostPort, address, integer, number, setting, some_time
from joulie_bus.subjects import Subjects
from joulie_projections.demand import ask_of
from joulie_projections.pod import Pod
from joulie_projections.view import View
from joulie_simulator.cluster import SimCluster
from joulie_simulator.physics import power_w, reading_mw
from joulie_simulator.scheduler import Scheduler
from joulie_simulator.webhook import Webhook
from joulie_simulator.workload import Job, Workload

WAITING_LIMIT = 500  # pods in the queue; beyond it no more are made, so that memory stays flat
RETRY_S = 2.0  # a pod that did not fit is looked at again
log = get_logger("simulator")


@dataclass(frozen=True, kw_only=True)
class SimulatorSettings:
    nodes: int = setting(integer(1, 50_000), "SIM_NODES", "200", "Nodes of the simulated cluster")
    seed: int = setting(integer(0), "SIM_SEED", "1", "The same seed gives the same jobs")
    pods_per_s: float = setting(
        number(0.01, 10_000), "SIM_PODS_PER_SECOND", "10", "Pods created per second, on average"
    )
    sample_s: float = setting(
        some_time, "SIM_SAMPLE_INTERVAL", "2s", "Time between two power readings of one node"
    )
    extender: HostPort = setting(
        address, "SIM_EXTENDER", "127.0.0.1:9876", "The extender that the simulated scheduler asks"
    )


class Simulation:
    def __init__(
        self, bus: Log, subjects: Subjects, view: View, settings: SimulatorSettings
    ) -> None:
        self._bus = bus
        self._view = view
        self._settings = settings
        self._tel = Producer("sim-tel", subjects, time.time_ns)
        self._obs = Producer("sim-obs", subjects, time.time_ns)
        self._cluster = SimCluster(settings.nodes)
        self._draw = random.Random(settings.seed + 1)
        self._workload = Workload(settings.seed, secrets.token_hex(3))
        self._waiting: deque[Job] = deque()
        self._came = asyncio.Event()
        self._ends: list[tuple[float, str, str]] = []  # (when, node, uid)

    async def run(self) -> None:
        await self._introduce()
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._measure(), name="measure")
            tasks.create_task(self._arrive(), name="arrive")
            tasks.create_task(self._schedule(), name="schedule")
            tasks.create_task(self._finish(), name="finish")

    async def _observed(self, *events: AnyEvent) -> None:
        await self._bus.publish([self._obs.stamp(event) for event in events])

    async def _introduce(self) -> None:
        """What a watcher's first list says: these nodes are here, and those pods are not."""
        await self._view.wait_ready(30)
        gone = [PodGone(uid=uid) for uid in sorted(self._view.world.pods)]
        await self._observed(*gone)
        for name, node in self._cluster.nodes.items():
            seen = NodeSeen(
                node=name,
                uid=f"uid-{name}",
                labels={"joulie.io/managed": "true"},
                cpu_milli=node.shape.cores * 1000,
                memory_bytes=node.shape.memory_gib * 2**30,
                gpus=node.shape.gpus,
            )
            await self._observed(seen, node.shape.discovered(name))
        log.info("introduced", nodes=len(self._cluster.nodes), seed=self._settings.seed)

    async def _measure(self) -> None:
        """Every node once per interval, spread over it: agents do not tick together."""
        names = list(self._cluster.nodes)
        slices = max(1, min(len(names), int(self._settings.sample_s / 0.1)))
        following = time.monotonic()
        while True:
            for at in range(slices):
                samples = [self._sample(name) for name in names[at::slices]]
                await self._bus.publish([self._tel.stamp(sample) for sample in samples])
                following += self._settings.sample_s / slices
                await asyncio.sleep(max(0.0, following - time.monotonic()))

    def _sample(self, name: str) -> TelemetrySampled:
        node, believed = self._cluster.nodes[name], self._view.world.nodes.get(name)
        cpu_cap = believed.cpu_cap_pct if believed else None
        gpu_cap = believed.gpu_cap_pct if believed else None
        watts = power_w(node.shape, node.jobs.values(), cpu_cap, gpu_cap)
        return TelemetrySampled(
            node=name, power_mw=reading_mw(watts, self._draw), source="kepler", provider="simulator"
        )

    async def _arrive(self) -> None:
        following = time.monotonic()
        while True:
            following += self._workload.pause(self._settings.pods_per_s)
            await asyncio.sleep(max(0.0, following - time.monotonic()))
            if len(self._waiting) < WAITING_LIMIT:
                job = self._workload.next()
                await self._observed(PodPending(pod=_ask(job)))
                self._waiting.append(job)
                self._came.set()

    async def _schedule(self) -> None:
        webhook = Webhook(*self._settings.extender)
        scheduler = Scheduler(self._cluster, webhook, self._draw)
        while True:
            await self._came.wait()
            self._came.clear()
            for _ in range(len(self._waiting)):
                job = self._waiting.popleft()
                name = await scheduler.place(job)
                if name is None:
                    self._waiting.append(job)
                else:
                    await self._bind(job, name)
            if self._waiting:
                asyncio.get_running_loop().call_later(RETRY_S, self._came.set)

    async def _bind(self, job: Job, name: str) -> None:
        self._cluster.nodes[name].take(job)
        heapq.heappush(self._ends, (time.monotonic() + job.seconds, name, job.uid))
        await self._observed(PodBound(pod=_ask(job), node=name))

    async def _finish(self) -> None:
        while True:
            now = time.monotonic()
            while self._ends and self._ends[0][0] <= now:
                _, name, uid = heapq.heappop(self._ends)
                self._cluster.nodes[name].release(uid)
                await self._observed(PodFinished(uid=uid), PodGone(uid=uid))
                self._came.set()
            await asyncio.sleep(0.1)


def _ask(job: Job) -> PodAsk:
    return ask_of(msgspec.convert(job.manifest(), Pod))
