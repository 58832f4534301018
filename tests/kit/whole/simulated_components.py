"""The components of a run: the real code of each, and a supervisor that starts it again."""

import asyncio
import contextlib
import random
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from simulated_broker import BrokerServer, Link, LinkedLog
from simulated_cluster import NODES, ApiServer, ModelBinder, discover, sample, watch
from simulated_database import DatabaseLink, DatabaseServer
from simulated_hours import Pace
from simulated_models import Meters
from simulated_truth import ObservedSpool, Truth
from virtual_time import THREAD_S, Process

from bus_kit import CLUSTER
from go_http import CallFailed
from joulie_bus.errors import BusError, Fenced, StreamGap, StreamReplaced
from joulie_bus.http.exchange import Handler, Reply, Request
from joulie_bus.log.producer import Producer
from joulie_bus.runtime.tasks import background
from joulie_extender.binding.binder import Binder
from joulie_extender.catalogue.weights import Weights
from joulie_extender.decision_log.shipping import Shipper
from joulie_extender.http.routes import routed
from joulie_extender.service import Service
from joulie_extender.settings import ServerSettings
from joulie_operator.service import Operator
from joulie_operator.settings import OperatorSettings
from joulie_projections.decision_log.heads import Signer
from joulie_projections.fold.manifest import CODE_VERSION
from joulie_projections.projector.projector import Projector, ProjectorSettings
from joulie_projections.view.view import View

RESTART_S = 1.0
EXPECTED = (BusError, Fenced)  # a component may end with these; its supervisor starts it again
UNEXPECTED = (StreamGap, StreamReplaced)  # no fault takes a message from all copies


class Surroundings(NamedTuple):
    """What all components share."""

    broker: BrokerServer
    database: DatabaseServer
    api: ApiServer
    meters: Meters
    pace: Pace
    truth: Truth
    directory: Path
    key: Path
    record: Callable[[str], None]
    random_for: Callable[[str], random.Random]


class Component(ABC):
    """`process` is its present life; None while it is down."""

    def __init__(self, name: str, around: Surroundings) -> None:
        self.name = name
        self.around = around
        rng = around.random_for(f"{name} machine")
        self._uptime_s, self._skew_s = rng.uniform(1e3, 1e6), rng.uniform(-5, 5)
        self.link = Link(around.random_for(f"{name} link"))
        self.database_link = DatabaseLink(around.random_for(f"{name} database link"))
        self.process: Process | None = None
        self.down_until = 0.0
        self._thread_s = THREAD_S
        self.fold_version = CODE_VERSION  # of its later lives

    @abstractmethod
    async def body(self, process: Process) -> None:
        """Runs until cancelled."""

    def log_of(self, process: Process) -> LinkedLog:
        return LinkedLog(self.around.broker, self.link, process)

    async def supervise(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            process = Process(self.name, self.name, self._uptime_s, self._skew_s)
            process.thread_s = self._thread_s
            process.fold_version = self.fold_version
            self.process = process
            task = process.spawn(self.body(process))
            try:
                await asyncio.wait([task])
            except asyncio.CancelledError:
                process.kill()
                await asyncio.wait([task])
                raise
            self.process = None
            if not process.is_dead:
                self._note_end(task)
            await asyncio.sleep(max(RESTART_S, self.down_until - loop.time()))

    def _note_end(self, task: asyncio.Task[None]) -> None:
        error = None if task.cancelled() else task.exception()
        why = _described(error)
        self.around.record(f"{self.name} ended: {why}")
        if not _is_expected(error):
            self.around.truth.fail(f"{self.name} ended by itself: {why}")

    @property
    def has_slow_disk(self) -> bool:
        return self._thread_s > THREAD_S

    def set_disk(self, thread_s: float = THREAD_S) -> None:
        """How long a write takes, and each other call of a thread."""
        self._thread_s = thread_s
        if self.process is not None:
            self.process.thread_s = thread_s

    def set_clock_back(self, seconds: float) -> None:
        """The wall clock of its machine, also for its later lives."""
        self._skew_s -= seconds
        if self.process is not None:
            self.process.skew_s -= seconds

    def kill(self, restart_s: float) -> None:
        self.down_until = asyncio.get_running_loop().time() + restart_s
        if self.process is not None:
            self.process.kill()


def _flat(error: BaseException | None) -> list[BaseException]:
    if isinstance(error, BaseExceptionGroup):
        return [each for part in error.exceptions for each in _flat(part)]
    return [] if error is None else [error]


def _is_expected(error: BaseException | None) -> bool:
    found = _flat(error)
    if any(isinstance(each, UNEXPECTED) for each in found):
        return False
    return bool(found) and all(isinstance(each, EXPECTED) for each in found)


def _described(error: BaseException | None) -> str:
    return "; ".join(f"{type(each).__name__}: {each}" for each in _flat(error)) or "it returned"


class ProjectorComponent(Component):
    projector: Projector | None = None

    async def body(self, process: Process) -> None:
        around = self.around
        with around.database.writing(self.database_link) as engine:
            settings = ProjectorSettings(snapshot_every=40, outcome_grace_s=5.0)
            signer = Signer.of(around.key)
            self.projector = Projector(self.log_of(process), CLUSTER, engine, signer, settings)
            try:
                await self.projector.run()
            finally:
                self.projector = None


class ViewComponent(Component):
    """A component with a view; this one, as the console, does nothing else."""

    view: View | None = None

    async def body(self, process: Process) -> None:
        with self.around.database.reading(self.database_link) as engine:
            bus = self.log_of(process)
            async with View.open(bus, engine, CLUSTER) as view:
                self.view = view
                try:
                    await self.work(process, bus, view)
                finally:
                    self.view = None

    async def work(self, process: Process, bus: LinkedLog, view: View) -> None:
        await asyncio.Event().wait()


class OperatorComponent(ViewComponent):
    async def work(self, process: Process, bus: LinkedLog, view: View) -> None:
        operator = Operator(bus, CLUSTER, view, OperatorSettings(interval_s=5.0))
        async with background(watch(self.around.api, bus, view), "watch"):
            await discover(bus)
            await operator.run()


class Agents(Component):
    async def body(self, process: Process) -> None:
        process.makes_events = True
        bus, rng = self.log_of(process), self.around.random_for("watts")
        async with asyncio.TaskGroup() as tasks:
            for node in NODES:
                tasks.create_task(sample(node, bus, rng, self.around.meters, self.around.pace))


class ExtenderComponent(ViewComponent):
    """Answers the verbs; the transport is `post`."""

    handler: Handler | None = None
    service: Service | None = None

    async def body(self, process: Process) -> None:
        around, server = self.around, ServerSettings(replica=self.name)
        spool = ObservedSpool(around.directory / self.name, self.name, around.truth)
        with contextlib.closing(spool):
            producer = Producer(self.name, CLUSTER, time.time_ns)
            shipper = Shipper(producer, spool, server.durability())
            self.service = Service(shipper, Weights(), server, CLUSTER)
            self.handler = routed(self.service.extender, lambda: False)
            try:
                await super().body(process)
            finally:
                self.handler = self.service = None

    async def work(self, process: Process, bus: LinkedLog, view: View) -> None:
        binder: Binder = ModelBinder(self.around.api)
        assert self.service is not None
        await self.service.work(bus, view, binder)

    async def post(self, verb: str, body: bytes, timeout_s: float) -> bytes:
        """As an HTTP client of kube-scheduler: the reply, or CallFailed."""
        process, handler = self.process, self.handler
        if process is None or handler is None or process.is_dead:
            raise CallFailed("connection refused")
        answering = process.spawn(_answered(handler, verb, body))
        await asyncio.wait([answering], timeout=timeout_s)
        if process.is_dead or not answering.done() or answering.cancelled():
            raise CallFailed("context deadline exceeded, or the connection was reset")
        reply = answering.result()
        if reply.status != 200:
            raise CallFailed(f"status {reply.status}")
        return reply.body


async def _answered(handler: Handler, verb: str, body: bytes) -> Reply:
    made = handler(Request("POST", f"/{verb}", body, time.monotonic()))
    return made if isinstance(made, Reply) else await made
