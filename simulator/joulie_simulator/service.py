"""The running simulation: drives the engine in real time, and calls the real extender.

Arrivals, run times, the start of nodes and the daily temperature use simulated time, which is
`speed` times faster than real time; readings, the calls of the scheduler and its back-off after a
refusal use real time, as the programs under test do. What a cluster does within a second of its own
time follows at once: nodes carry out orders in the next steps, and a pod that no node has room for
is tried again as soon as there is room.
"""

import asyncio
import math
import random
import secrets
import time
from collections.abc import AsyncGenerator, Iterable, Iterator
from contextlib import aclosing
from dataclasses import dataclass
from itertools import cycle
from pathlib import Path

from joulie_bus.errors import BusError
from joulie_bus.events import Fact, PodGone
from joulie_bus.log.producer import Producer
from joulie_bus.log.protocol import Log
from joulie_bus.log.refusals import Refusals
from joulie_bus.metering.pace import USUAL, Pace
from joulie_bus.metering.reporter import Moment
from joulie_bus.runtime.logging import get_logger
from joulie_bus.runtime.settings import HostPort, address, integer, number, setting, text
from joulie_bus.runtime.vital_tasks import VitalTask, vital
from joulie_bus.streams.subjects import Subjects
from joulie_projections.hardware.gpu_resources import GPU_RESOURCES
from joulie_projections.state.state import NodeState
from joulie_projections.view.view import View
from joulie_simulator.cluster.cluster import SimCluster
from joulie_simulator.energy.achieved import Achieved
from joulie_simulator.engine import Engine, Options
from joulie_simulator.hardware.physics import Caps
from joulie_simulator.meters import Meters
from joulie_simulator.odd_nodes import OddNodes
from joulie_simulator.scheduler.outbox import Outbox
from joulie_simulator.scheduler.scheduler import Placements, Registration, Scheduler
from joulie_simulator.scheduler.webhook import Webhook
from joulie_simulator.trace_file import Trace
from joulie_simulator.uses import Uses
from joulie_simulator.workload.workload import Sizes, Table, Workload

STEP_S = 0.1  # real time between two steps of the engine
FACILITY_S = 30.0
SAMPLES_PER_S = 500  # of all nodes together
ORDERED_AT_ONCE = 1000  # nodes whose orders one step carries out
log = get_logger("simulator")


@dataclass(frozen=True, kw_only=True)
class WebhookSettings:
    extender: HostPort = setting(
        address,
        "EXTENDER_ADDR",
        "127.0.0.1:9876",
        "The extender that the simulated scheduler calls",
    )


@dataclass(frozen=True, kw_only=True)
class SimulatorOptions:
    """The options of the command line; a simulated cluster has no other settings."""

    nodes: int = setting(integer(1, 50_000), "--nodes", "200", "Nodes of the simulated cluster")
    seed: int = setting(integer(0), "--seed", "1", "The same seed gives the same jobs")
    speed: float = setting(
        number(0.01, 100_000), "--speed", "60", "Simulated seconds per second of real time"
    )
    pods_per_s: float = setting(
        number(0.01, 10_000),
        "--pods-per-second",
        "10",
        "Pods created per second of real time, averaged over a simulated day",
    )
    trace: str = setting(
        text, "--trace", "", "A pod list of the trace openb (CSV), for sizes and run times"
    )
    bind: str = setting(
        text,
        "--bind-verb",
        "",
        "The path of the extender that binds pods with GPUs, such as gpu/bind; "
        "empty: the simulated scheduler binds all pods itself",
    )
    hours: float = setting(
        number(0, 100_000), "--hours", "0", "Simulated hours after which time stops; 0: never"
    )
    odd_nodes: int = setting(
        integer(0, 1000),
        "--odd-nodes",
        "0",
        "Nodes that arrive late, as many that fall silent, and as many that leave",
    )
    sample_s: float | None = None  # between two readings of one node; None: as agents publish them
    lost: float = 0.01  # share of lost readings
    weight: int = 1  # of the extender in kube-scheduler's sum
    percentage: int = 0  # percentageOfNodesToScore; 0: kube-scheduler's default

    def sizes(self) -> Sizes:
        """Raises BadTrace."""
        return Trace.of(Path(self.trace)) if self.trace else Table()

    def interval_s(self) -> float:
        """Seconds between two samples of one node, longer in large clusters."""
        fitting_s = max(USUAL.shortest_s, self.nodes / SAMPLES_PER_S)
        return fitting_s if self.sample_s is None else self.sample_s

    def pace(self) -> Pace:
        return USUAL if self.sample_s is None else Pace(self.sample_s, self.sample_s)


def engine_of(
    settings: SimulatorOptions, run: str, gpu_resources: tuple[str, ...] = GPU_RESOURCES
) -> Engine:
    """The engine for these settings; `run` is part of the names of its pods."""
    cluster = SimCluster(settings.nodes, settings.percentage)
    workload = Workload(settings.seed, run, settings.sizes())
    per_simulated_s = settings.pods_per_s / settings.speed
    options = Options(settings.seed, per_simulated_s, gpu_resources)
    return Engine(cluster, workload, options)


class Simulation:
    def __init__(
        self,
        bus: Log,
        subjects: Subjects,
        view: View,
        settings: SimulatorOptions,
        gpu_resources: tuple[str, ...] = GPU_RESOURCES,
        extender: HostPort = WebhookSettings().extender,
    ) -> None:
        self._bus = bus
        self._view = view
        self._settings = settings
        self._interval_s = settings.interval_s()
        self._extender = extender
        self._tel = Producer("sim-tel", subjects, time.time_ns)
        self._outbox = Outbox(bus, Producer("sim-obs", subjects, time.time_ns))
        self._engine = engine_of(settings, secrets.token_hex(3), gpu_resources)
        self._meters = Meters(settings.seed, settings.speed, settings.lost, settings.pace())
        self._refused = Refusals("telemetry", "these readings are lost; the next ones follow")
        self._uses = Uses(self._engine.cluster)
        self._odd = OddNodes([*self._engine.cluster.nodes], settings.odd_nodes)
        self._began = time.monotonic()
        self._changed = asyncio.Event()
        self._is_over = False
        self.placements = Placements()

    @property
    def _passed_s(self) -> float:
        """Real time since the start."""
        return time.monotonic() - self._began

    async def run(self) -> None:
        """Runs until the simulated hours are over, or until cancelled."""
        await self._publish_initial_facts()
        self._began = time.monotonic()
        await self._read_all()
        async with asyncio.TaskGroup() as tasks:
            others = [
                tasks.create_task(vital(task, work), name=str(task))
                for task, work in (
                    (VitalTask.PUBLISH, self._outbox.publish_forever),
                    (VitalTask.MEASURE, self._measure),
                    (VitalTask.ROOM, self._report_facility),
                    (VitalTask.SCHEDULE, self._schedule),
                )
            ]
            await self._advance_time()
            self._is_over = True  # aiohttp may report a cancelled call as timed out
            for task in others:
                task.cancel()
        await self._read_all()
        await self._outbox.publish([])

    def achieved(self) -> Achieved:
        return self._engine.achieved()

    async def _read_all(self) -> None:
        """With an end, the meters cover the time from the start to the end on every node."""
        if self._settings.hours:
            sampled = self._engine.sample(self._engine.cluster.nodes)
            await self._publish_readings(self._meters.readings(sampled, _now(), are_due=True))

    async def _publish_initial_facts(self) -> None:
        """Publish a watcher's first list: all nodes, and the removal of pods of earlier runs."""
        await self._view.wait_ready(30)
        gone = [PodGone(uid=uid) for uid in sorted(self._view.cluster_state.pods)]
        known = self._odd.known_at_start(self._engine.initial_facts())
        await self._outbox.publish([*gone, *known])
        nodes = len(self._engine.cluster.nodes)
        log.info("introduced", nodes=nodes, seed=self._settings.seed, speed=self._settings.speed)

    async def _advance_time(self) -> None:
        """Advance the engine with real time: pods arrive and end."""
        began_s, began, orders = self._engine.now_s, time.monotonic(), self._orders()
        until_s = began_s + self._settings.hours * 3600 if self._settings.hours else math.inf
        async with aclosing(_every(STEP_S)) as steps:
            async for _ in steps:
                passed = (time.monotonic() - began) * self._settings.speed
                facts = self._engine.advance(min(began_s + passed, until_s))
                facts += self._engine.order_power(self._power_orders(next(orders)))
                facts += self._odd.arrived(self._passed_s)
                for name in self._odd.left(self._passed_s):
                    facts += self._engine.lose(name)
                await self._outbox.put(facts)
                if facts:
                    self._changed.set()
                if self._engine.now_s >= until_s:
                    return

    async def _measure(self) -> None:
        """Sample every node once per interval, spread evenly, as independent agents do."""
        names = list(self._engine.cluster.nodes)
        slices = max(1, min(len(names), int(self._interval_s / STEP_S)))
        turn = 0
        async with aclosing(_every(self._interval_s / slices)) as steps:
            async for _ in steps:
                some = self._odd.there(names[turn % slices :: slices])
                self._engine.cap(self._enforced(some))
                await self._outbox.put(self._engine.label(self._labelled(some)))
                read = list(self._odd.with_readings(some, self._passed_s))
                readings = self._meters.readings(self._engine.sample(read), _now())
                used = self._uses.facts(read, self._engine.now_s, time.monotonic())
                await self._publish_readings([*readings, *used])
                turn += 1

    async def _publish_readings(self, samples: Iterable[Fact]) -> None:
        """Publish readings; a refused reading is lost and the next one follows."""
        try:
            await self._bus.publish([self._tel.stamp(sample) for sample in samples])
        except BusError as error:
            self._refused.observe(error)
        else:
            self._refused.ended()

    def _enforced(self, names: Iterable[str]) -> list[tuple[str, Caps]]:
        """The caps in the NodeTwins of these nodes."""
        nodes = self._view.cluster_state.nodes
        return [(name, _caps(nodes[name])) for name in names if name in nodes]

    def _labelled(self, names: Iterable[str]) -> list[tuple[str, str]]:
        """The profile labels that an operator sets on these nodes."""
        nodes = self._view.cluster_state.nodes
        return [(name, nodes[name].profile) for name in names if name in nodes]

    def _orders(self) -> Iterator[list[str]]:
        """The nodes of each step, by turns."""
        names = list(self._engine.cluster.nodes)
        slices = math.ceil(len(names) / ORDERED_AT_ONCE)
        return cycle([names[turn::slices] for turn in range(slices)])

    def _power_orders(self, names: Iterable[str]) -> list[tuple[str, bool]]:
        """Whether plans want these nodes asleep."""
        nodes = self._view.cluster_state.nodes
        there = self._odd.there(names)
        return [(name, nodes[name].power_state == "asleep") for name in there if name in nodes]

    async def _report_facility(self) -> None:
        async with aclosing(_every(FACILITY_S)) as steps:
            async for _ in steps:
                await self._outbox.put([self._engine.facility()])

    async def _schedule(self) -> None:
        webhook = Webhook(*self._extender)
        try:
            await self._schedule_with(webhook)
        finally:
            await webhook.close()

    async def _schedule_with(self, webhook: Webhook) -> None:
        """Place pending pods one after the other; those that the extender refuses back off. A pod
        that no node has room for waits for room."""
        engine, settings = self._engine, self._settings
        draw = random.Random(settings.seed + 2)
        scheduler = Scheduler(
            engine.cluster, webhook, draw, Registration(settings.weight, settings.bind)
        )
        scheduler.placements = self.placements  # also after a failure of this task
        while not self._is_over:
            for _ in range(len(engine.waiting)):
                if self._is_over:
                    return
                waiting = engine.waiting.popleft()
                now = time.monotonic()
                if waiting.at_s > now or not engine.cluster.has_room_for(waiting.job):
                    engine.waiting.append(waiting)
                    continue
                name = await scheduler.place(waiting.job)
                is_there = name is not None and bool(self._odd.there([name]))
                if name is not None and is_there and await scheduler.bind(waiting.job, name):
                    await self._outbox.put(engine.bind(waiting.job, name))
                else:
                    engine.waiting.append(waiting.later(now))
            self._changed.clear()
            await self._wait_for_work()

    async def _wait_for_work(self) -> None:
        """Wait until a pod arrives or ends, a node is awake, or the first back-off is over."""
        now = time.monotonic()
        later = (each.at_s for each in self._engine.waiting if each.at_s > now)
        pause = min(later, default=math.inf) - now
        try:
            async with asyncio.timeout(min(60.0, max(STEP_S, pause))):
                await self._changed.wait()
        except TimeoutError:
            return


async def _every(period_s: float) -> AsyncGenerator[None, None]:
    """Yield at once and then once per period; missed periods are skipped."""
    following = time.monotonic()
    while True:
        yield
        following = max(following + period_s, time.monotonic() - period_s)
        await asyncio.sleep(max(0.0, following - time.monotonic()))


def _now() -> Moment:
    return Moment(time.monotonic(), time.time_ns())


def _caps(node: NodeState) -> Caps:
    return Caps(node.cpu_cap_pct, node.gpu_cap_pct)
