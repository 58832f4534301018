"""A drill of pods through all components in one thread, on a virtual clock; what each of them did.

The broker is in memory, so the client of NATS is left out: of the broker, messages and bytes count.
"""

import asyncio
import contextlib
import gc
import random
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Mapping
from concurrent.futures import Executor, Future
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

from simulated_broker import BrokerServer, Link, LinkedLog
from simulated_clocks import Clocks, replaced
from simulated_database import DatabaseLink, DatabaseServer, migrated
from simulation import _key_in
from sqlalchemy import event
from virtual_time import RUNNING, Process

from bus_kit import CLUSTER
from bus_kit.memory_broker import MemoryBroker
from counting import CallMeter, CountingLoop, CpuMeter
from drill_cluster import DrillApi, DrillCluster
from drill_load import Client, Load, a_node, readings
from joulie_answers.readers.energy import EnergyReader
from joulie_answers.readers.history import HistoryReader
from joulie_audit.archive.fact_source import StreamFacts
from joulie_audit.ledger.follow import REST_S, LedgerFollower
from joulie_bus.core.http_head import HeadRule
from joulie_bus.http.connection import Connection
from joulie_bus.http.server import HttpServer
from joulie_bus.log.producer import Producer
from joulie_bus.runtime import logging
from joulie_bus.runtime.settings import BusSettings, Source
from joulie_bus.streams.records import Message
from joulie_bus.streams.subjects import Stream
from joulie_console.stream.event_tail import EventTail
from joulie_extender.decision_log.shipping import Shipper
from joulie_extender.decision_log.spool import Spool
from joulie_extender.http.routes import PROBES, routed
from joulie_extender.service import Service
from joulie_extender.settings import ScoringSettings, ServerSettings
from joulie_operator import component as operator
from joulie_operator import service
from joulie_projections.catalog_file import CatalogSettings, GpuResourceSettings
from joulie_projections.component.data_directory import DataDirectory
from joulie_projections.component.wiring import Wiring
from joulie_projections.decision_log.heads import Signer
from joulie_projections.history.history import History
from joulie_projections.projector.projector import Projector, ProjectorSettings
from joulie_projections.store.energy_lag import seconds_behind
from joulie_projections.store.energy_table import EnergyTable
from joulie_projections.store.retrying import DatabaseExecutor
from joulie_projections.view.view import View

PROJECTOR, EXTENDER, OPERATOR = "projector", "extender", "operator"
CONSOLE, LEDGER, BROKER = "console", "ledger", "nats-server"
COMPONENTS = (PROJECTOR, EXTENDER, OPERATOR, CONSOLE, LEDGER)
SETTINGS = {
    "PRESET": "savings",
    "RECONCILE_INTERVAL": "60s",
    "TWIN_STALENESS_THRESHOLD": "10h",
    "APPLY_RATE": "2000",
}
AT_REST_S, LOOK_S = 30.0, 0.5
RESTS_S = PLAN_S = 10.0
Counts = dict[str, dict[str, float]]


class Window(NamedTuple):
    lasted_s: float
    counts: Counts


class Measured(NamedTuple):
    rest: Window
    pods: Window

    def per_second(self) -> Counts:
        """At rest."""
        lasted_s, counts = self.rest
        return {
            name: {what: value / lasted_s for what, value in each.items()}
            for name, each in counts.items()
        }

    def per_pod(self, pods: int) -> Counts:
        """Beyond what components do at rest."""
        rest, (lasted_s, counts) = self.per_second(), self.pods
        return {
            name: {
                what: (value - rest[name][what] * lasted_s) / pods for what, value in each.items()
            }
            for name, each in counts.items()
        }


class Size(NamedTuple):
    nodes: int = 200
    pods: int = 200
    warm: int = 40  # pods before those that count


class CountingBroker(MemoryBroker):
    """Counts what each component publishes, and what the broker delivers live."""

    def __init__(self, clock: Callable[[], int]) -> None:
        super().__init__(CLUSTER, clock)
        self.messages, self.bytes = Counter[str](), Counter[str]()

    def store(self, stream: Stream, message: Message) -> None:
        self.note(len(message.data))
        super().store(stream, message)

    def note(self, size: int) -> None:
        process = RUNNING.get()
        for name in (process.name if process else "", BROKER):
            self.messages[name] += 1
            self.bytes[name] += size


class CountingServer(BrokerServer):
    broker: CountingBroker

    def send(self, subject: str, data: bytes) -> None:
        self.broker.note(len(data))
        super().send(subject, data)


class Drill:
    def __init__(self, size: Size, meter: CallMeter | CpuMeter, directory: Path) -> None:
        self._size, self._meter, self._directory = size, meter, directory
        self._loop = CountingLoop(random.Random("threads"), meter)
        self._clocks = Clocks(self._loop)
        self._broker = CountingBroker(self._clocks.true_ns)
        self._server = CountingServer(self._broker, self._loop.time)
        self._database = DatabaseServer(migrated(directory / "joulie.db"), self._clocks.true_ns)
        self._cluster = DrillCluster()
        self._rows = defaultdict[str, list[Any]](list)  # connections of each component
        self._client: Client | None = None
        self._views = dict[str, View]()
        data = DataDirectory(directory)
        self._wires = Wiring(Source(SETTINGS), BusSettings(), data, CLUSTER)

    def run(self) -> Measured:
        logging.configure("error", "console", "drill")
        gc.disable()  # it empties lists of free objects, whenever it runs
        random.seed("drill")
        ids = random.Random("ids")
        with (
            replaced(self._clocks, ids, self._database),
            # By processor time, which passes in no component here.
            mock.patch.object(service, "pause_s", return_value=PLAN_S),
            contextlib.closing(self._loop),
            contextlib.closing(self._database),
        ):
            return self._loop.run_until_complete(self._whole())

    async def _whole(self) -> Measured:
        objects, nodes = self._cluster.objects, self._cluster.kind("nodes")
        for number in range(self._size.nodes):
            objects.create(nodes, "", a_node(number))
        bodies = (self._projector, self._extender, self._operator, self._console, self._ledger)
        tasks = [self._start(name, body) for name, body in zip(COMPONENTS, bodies, strict=True)]
        tasks.append(self._start("agents", self._agents))
        try:
            return await self._measured(tasks)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)

    def _start(
        self, name: str, body: Callable[[Process], Coroutine[Any, Any, None]]
    ) -> asyncio.Task[None]:
        process = Process(name, name, 1e5, 0.0)
        return process.spawn(body(process))

    async def _measured(self, tasks: list[asyncio.Task[None]]) -> Measured:
        await self._at_rest(tasks)
        assert self._client is not None
        load = Load(self._cluster, self._client, self._size.nodes)
        await load.pods(0, self._size.warm)
        await asyncio.sleep(REST_S)
        rest = await self._counted_during(asyncio.sleep(RESTS_S))
        pods = await self._counted_during(self._pods(load))
        self._require_alive(tasks)
        return Measured(rest, pods)

    async def _pods(self, load: Load) -> None:
        await load.pods(self._size.warm, self._size.pods)
        await asyncio.sleep(REST_S)  # the ledger folds, and outcomes are entries

    async def _counted_during(self, work: Awaitable[None]) -> Window:
        before, began = self._totals(), self._loop.time()
        self._meter.is_on = True
        await work
        self._meter.is_on = False
        after, lasted_s = self._totals(), self._loop.time() - began
        counts = {
            name: {what: value - before[name].get(what, 0) for what, value in each.items()}
            for name, each in after.items()
        }
        return Window(lasted_s, counts)

    async def _at_rest(self, tasks: list[asyncio.Task[None]]) -> None:
        """Until each node has a NodeTwin with a status, and the extender its view."""
        twins = self._cluster.objects.table(self._cluster.kind("nodetwins"))
        while self._client is None or sum("status" in each for each in twins.values()) < (
            self._size.nodes
        ):
            self._require_alive(tasks)
            await asyncio.sleep(LOOK_S)
        calls = -1
        while self._cluster.calls.total() > calls + AT_REST_S:  # readings change NodeTwins
            calls = self._cluster.calls.total()
            await asyncio.sleep(AT_REST_S)

    def _require_alive(self, tasks: list[asyncio.Task[None]]) -> None:
        for task in tasks:
            if task.done():
                task.result()
                raise AssertionError("a component has ended")

    def _totals(self) -> Counts:
        found: Counts = {name: {} for name in (*COMPONENTS, BROKER)}
        for name in found:
            found[name]["messages"] = self._broker.messages[name]
            found[name]["bytes"] = self._broker.bytes[name]
        for name, connections in self._rows.items():
            found[name]["rows"] = sum(each.total_changes for each in connections)
        found[OPERATOR]["API calls"] = self._cluster.calls.total()
        found[PROJECTOR]["entries"] = self._entries()
        for name in COMPONENTS:
            found[name] |= of_meter(self._meter, name)
        return found

    def _entries(self) -> int:
        with History.of(self._directory / "joulie.db") as history:
            return history.tip()

    # --- components ---------------------------------------------------------------------------

    def _log_of(self, process: Process) -> LinkedLog:
        return LinkedLog(self._server, Link(random.Random(process.name)), process)

    @contextlib.contextmanager
    def _counted(self, engine: Any, name: str) -> Any:
        event.listen(engine, "connect", lambda found, _: self._rows[name].append(found))
        yield engine

    @contextlib.asynccontextmanager
    async def _viewing(self, process: Process) -> AsyncGenerator[tuple[LinkedLog, View], None]:
        with self._database.reading(DatabaseLink(random.Random(process.name))) as engine:
            bus = self._log_of(process)
            async with View.open(bus, engine, CLUSTER) as view:
                await view.wait_ready(60)
                yield bus, view

    async def _projector(self, process: Process) -> None:
        link = DatabaseLink(random.Random(process.name))
        signer = Signer.of(_key_in(self._directory, random.Random("key")))
        with self._database.writing(link) as engine, self._counted(engine, PROJECTOR):
            settings = ProjectorSettings(snapshot_every=0)
            await Projector(self._log_of(process), CLUSTER, engine, signer, settings).run()

    async def _extender(self, process: Process) -> None:
        server = ServerSettings(replica="extender-0")
        load = self._wires.source.load
        catalog, resources = load(CatalogSettings).catalog, load(GpuResourceSettings).resources
        weights = load(ScoringSettings).weights(catalog, resources)
        with contextlib.closing(Spool(self._directory / "spool")) as spool:
            producer = Producer(server.replica, CLUSTER, time.time_ns)
            shipper = Shipper(producer, spool, server.durability())
            service = Service(shipper, weights, server, CLUSTER)
            handler = routed(service.extender, service.is_draining)
            rule = HeadRule(server.own_names(), PROBES)
            service.http_server = HttpServer(handler, server.limits(), None, rule)
            async with self._viewing(process) as (bus, view):
                self._client = Client(Connection(service.http_server), process)
                await service.work(bus, view)

    async def _operator(self, process: Process) -> None:
        async with self._viewing(process) as (bus, view):
            await operator._lead(self._wires, bus, view, DrillApi(self._cluster), ())

    async def _console(self, process: Process) -> None:
        """With one page open."""
        async with self._viewing(process) as (bus, _):
            file = self._directory / "joulie.db"
            history = HistoryReader(lambda: History.readable(file))
            energy = EnergyReader(lambda: EnergyTable.readable(file), lambda: seconds_behind(file))
            history._threads = _Inline()  # type: ignore[assignment]
            energy._lag_thread = _Inline()  # type: ignore[assignment]
            tail = EventTail(bus, history, energy)

            def wake(_: bytes) -> None:
                tail.wakeup.set()

            async with bus.listening(CLUSTER.beat, wake):
                with tail.subscribed():
                    await tail.follow()

    async def _ledger(self, process: Process) -> None:
        file, link = self._directory / "joulie.db", DatabaseLink(random.Random(process.name))
        with self._database.ledger(link) as engine, self._counted(engine, LEDGER):
            async with contextlib.AsyncExitStack() as stack:
                executor = stack.enter_context(contextlib.closing(DatabaseExecutor()))
                follower = LedgerFollower(EnergyTable(engine), executor)
                with History.of(file) as history:
                    opened = StreamFacts.on(self._log_of(process), history)
                    facts = await stack.enter_async_context(opened)
                while True:
                    with History.of(file) as history:
                        await follower.catch_up(history, facts)
                    await asyncio.sleep(REST_S)

    async def _agents(self, process: Process) -> None:
        await readings(self._log_of(process), self._size.nodes)


class _Inline(Executor):
    """In place of a pool of threads."""

    def submit(self, fn: Any, /, *args: Any, **options: Any) -> "Future[Any]":
        done = Future[Any]()
        try:
            done.set_result(fn(*args, **options))
        except Exception as error:
            done.set_exception(error)
        return done


def of_meter(meter: CallMeter | CpuMeter, name: str) -> Mapping[str, float]:
    if isinstance(meter, CpuMeter):
        return {"CPU ms": meter.ns[name] / 1e6}
    found: dict[str, float] = {"calls": meter.calls[name]}
    return found | meter.allocated(name)


def drilled(size: Size, meter: CallMeter | CpuMeter) -> Measured:
    memory = Path("/dev/shm")
    place = memory if memory.is_dir() else None
    with tempfile.TemporaryDirectory(prefix="joulie-drill-", dir=place) as directory:
        return Drill(size, meter, Path(directory)).run()
