"""All parts in one process group: started in order, restarted when they exit, stopped cleanly.

The broker starts first and stops last. Producers stop before consumers, so that the last messages
are consumed.
"""

import asyncio
import contextlib
import os
import time
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from pathlib import Path

import joulie_migrations
from joulie_bus.broker.embedded import Embedded
from joulie_bus.core.backoff import Backoff
from joulie_bus.errors import BrokerStartFailed, NotOursToMigrate
from joulie_bus.jetstream.log import JetStreamLog
from joulie_bus.jetstream.streams import prepare_streams
from joulie_bus.runtime.child_process import giving_way
from joulie_bus.runtime.logging import get_logger
from joulie_bus.runtime.ports import free_port
from joulie_bus.runtime.secret_files import private
from joulie_bus.runtime.settings import HostPort
from joulie_bus.runtime.vital_tasks import VitalTask, vital
from joulie_bus.streams.roles import Role
from joulie_bus.streams.subjects import Stream, Subjects
from joulie_cli.supervisor.disk_watch import LOOK_S, DiskWatch
from joulie_cli.supervisor.forked import Forked
from joulie_cli.supervisor.start_checks import require_ports, require_room
from joulie_projections.component.data_directory import DataDirectory, Running
from joulie_projections.decision_log.log import DecisionLog
from joulie_projections.store import database

FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.2, 10.0
LAST_BYTES = 500
STABLE_AFTER_S = 30.0  # an uptime after which the restart pause is reset
# Together less than the 30 s that Kubernetes and systemd wait before they kill the supervisor.
# All components but the projector end together, and then the projector.
STOP_TIMEOUT_S = 7.0
SHIP_TIMEOUT_S = 12.0  # for those that have decisions to publish
DRAIN_TIMEOUT_S = 5.0  # for the projector to store the extender's last decisions
SHIPPING = frozenset({"extender", "shadow"})
ROLES = {
    "archive": Role.ARCHIVIST,
    "ledger": Role.AUDITOR,
    "shadow": Role.EXTENDER,
}  # parts whose role has another name
# On few cores the extender comes first, because kube-scheduler waits for it; the archiver comes
# last. A projector that lags folds larger batches, which cost less per event. The ledger folds
# every event, too: beside busy programs, 19 would leave it less than it needs. The console works
# only while a client waits for its answer: with 19, a page took a minute beside busy programs.
NICE = {
    **{"broker": 10, "projector": 10, "ledger": 10, "console": 10},
    **{"operator": 15, "shadow": 15, "archive": 19},
}
# Environment setting -> endpoint it configures.
LISTEN_SETTINGS = {"EXTENDER_ADDR": "extender", "CONSOLE_ADDR": "console"}
log = get_logger("up")


class Child:
    """One part as a child process, restarted until it is stopped."""

    def __init__(
        self, name: str, arguments: Sequence[str], data: DataDirectory, environ: Mapping[str, str]
    ) -> None:
        self.name = name
        self.restarts = 0
        self.started_ns = 0  # the last time
        self._arguments = arguments
        self._data = data
        self._environ = dict(environ)
        self._process: Forked | None = None
        self._stopping = False

    @property
    def pid(self) -> int:
        return self._process.pid if self._process else 0

    async def run(self, on_start: Callable[[], None]) -> None:
        """Run until `stop`; `on_start` is called after every start of the process."""
        backoff = Backoff(FIRST_PAUSE_S, LONGEST_PAUSE_S)
        loop = asyncio.get_running_loop()
        while not self._stopping:
            started_at = loop.time()
            process = await self._start()
            on_start()
            if self._stopping:  # stopped during the start
                process.terminate()
            async with giving_way(process.pid, NICE.get(self.name, 0)):
                code = await process.wait()
            if self._stopping:
                return
            if loop.time() - started_at > STABLE_AFTER_S:
                backoff.succeeded()
            pause = backoff.failed()
            self.restarts += 1
            log.warning(
                "exited",
                component=self.name,
                exit_code=code,
                restart_in_s=pause,
                why=self._last_line(),
                log=str(self._log_path()),
            )
            await asyncio.sleep(pause)

    async def stop(self) -> None:
        self._stopping = True
        process = self._process
        if process is None or process.exit_code is not None:
            return
        process.terminate()
        timeout_s = SHIP_TIMEOUT_S if self.name in SHIPPING else STOP_TIMEOUT_S
        try:
            async with asyncio.timeout(timeout_s):
                await process.wait()
        except TimeoutError:
            log.warning("killed", component=self.name, why=f"did not end in {timeout_s:.0f} s")
            process.kill()
            await process.wait()

    def _last_line(self) -> str:
        """Of its log, so that the terminal has the reason, too."""
        with contextlib.suppress(OSError), open(self._log_path(), "rb") as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - LAST_BYTES))
            lines = file.read().decode(errors="replace").split("\n")
            return next((line.strip() for line in reversed(lines) if line.strip()), "")
        return ""

    def _log_path(self) -> str:
        return str(self._data.logs / f"{self.name}.log")

    async def _start(self) -> Forked:
        if self._process is not None and self._process.exit_code is None:
            return self._process  # `run` failed and was started again
        open(self._log_path(), "ab", opener=private).close()
        words = [self.name, "--data", str(self._data.path), *self._arguments]
        self._process = await Forked.start(words, self._environ, self._log_path())
        self.started_ns = time.time_ns()
        return self._process


class Supervisor:
    """`async with Supervisor.over(data, parts, ...)`: all parts run inside the block."""

    def __init__(self, data: DataDirectory, broker: Embedded, parts: list[Child]) -> None:
        self._data = data
        self._broker = broker
        self._parts = parts
        self._broker_restarts = 0
        self._began = time.time_ns()
        self._metrics_addresses: dict[str, str] = {}  # of each part
        self.endpoints: dict[str, str] = {}
        self.disk = DiskWatch(data.path)
        # At the end: the decisions at the broker that the log lacks; None: not known.
        self.unwritten: int | None = None

    @classmethod
    @contextlib.asynccontextmanager
    async def over(
        cls,
        data: DataDirectory,
        names: Mapping[str, Sequence[str]],
        addresses: Mapping[str, HostPort],
        extra: Mapping[str, str],
        subjects: Subjects,
    ) -> AsyncGenerator["Supervisor", None]:
        """`names`: the parts, each with its command-line options."""
        data.create()
        require_room(data.path)
        lock = data.lock()
        broker = Embedded(data.path, program=data.broker)
        try:
            require_ports(addresses.values())
            _prepare_database(data)
            await broker.start()
            await prepare_streams(broker.address_of(Role.ADMIN), subjects)
            metrics_addresses = {name: HostPort("127.0.0.1", free_port()) for name in names}
            metrics_addresses |= {"extender": addresses["metrics"]}
            parts = [
                Child(
                    name,
                    arguments,
                    data,
                    _environment(broker, addresses, extra, name, metrics_addresses[name]),
                )
                for name, arguments in names.items()
            ]
            supervisor = cls(data, broker, parts)
            supervisor.endpoints = {name: f"http://{at}" for name, at in addresses.items()}
            supervisor._metrics_addresses = {name: str(metrics_addresses[name]) for name in names}
            async with supervisor._running():
                yield supervisor
        finally:
            await broker.stop()
            data.remove_run_file()
            lock.release()

    @contextlib.asynccontextmanager
    async def _running(self) -> AsyncGenerator[None, None]:
        running = [asyncio.create_task(self._keep(part)) for part in self._parts]
        keeper = asyncio.create_task(vital(VitalTask.BROKER, self._restart_broker))
        watch = asyncio.create_task(vital(VitalTask.DISK, self._watch_disk))
        try:
            yield
        finally:
            await self._stop()
            for task in (*running, keeper, watch):
                task.cancel()
            await asyncio.gather(*running, keeper, watch, return_exceptions=True)
            self.disk.look()

    async def _keep(self, part: Child) -> None:
        async def run() -> None:
            await part.run(self._write_run_file)
            await asyncio.Event().wait()  # it was told to stop

        await vital(VitalTask.COMPONENT, run, part.name)

    async def _stop(self) -> None:
        """The producers end together, and then the projector, which stores their last messages."""
        projector = [part for part in self._parts if part.name == "projector"]
        others = [part for part in self._parts if part.name != "projector"]
        await asyncio.gather(*(part.stop() for part in others))
        await self._drain_decisions()
        await asyncio.gather(*(part.stop() for part in projector))

    @property
    def broker(self) -> Embedded:
        return self._broker

    async def _restart_broker(self) -> None:
        """Restart the broker on the same port when it exits; clients reconnect to it."""
        while True:
            async with giving_way(self._broker.pid, NICE["broker"]):
                code = await self._broker.wait()
            log.warning("exited", component="nats-server", exit_code=code)
            await asyncio.sleep(FIRST_PAUSE_S)
            try:
                await self._broker.start()
            except BrokerStartFailed as error:
                log.error("not_restarted", component="nats-server", why=str(error))
                await asyncio.sleep(LONGEST_PAUSE_S)
            self._broker_restarts += 1
            self._write_run_file()

    async def _watch_disk(self) -> None:
        while True:
            if self.disk.look():
                await self._broker.stop()  # `_restart_broker` starts it again
            await asyncio.sleep(LOOK_S)

    async def _drain_decisions(self) -> None:
        """Wait until the decision log holds all messages of its stream."""
        address = self._broker.address_of(Role.AUDITOR)
        with contextlib.suppress(Exception):
            async with asyncio.timeout(DRAIN_TIMEOUT_S):
                async with JetStreamLog.open(address, "joulie-up") as bus:
                    while self.unwritten != 0:
                        self.unwritten = await self._count_unwritten(bus)
                        await asyncio.sleep(0.05)

    async def _count_unwritten(self, bus: JetStreamLog) -> int:
        stored = await bus.state(Stream.DEC)
        engine = database.reader(self._data.database)
        try:
            return max(0, stored.last - DecisionLog(engine).read_to())
        finally:
            engine.dispose()

    def log_of(self, name: str) -> Path:
        return self._data.logs / f"{name}.log"

    @property
    def restarts(self) -> dict[str, int]:
        parts = {part.name: part.restarts for part in self._parts}
        return {"nats-server": self._broker_restarts} | parts

    @property
    def trouble(self) -> str:
        """A full disk, and the restarted parts with their counts; empty if there are none."""
        restarted = [f"{name} ({count})" for name, count in self.restarts.items() if count]
        return "; ".join(
            [
                *([f"the disk is full: {self.disk.why}"] if self.disk.why else ()),
                *([f"restarted: {', '.join(restarted)}"] if restarted else ()),
            ]
        )

    def _write_run_file(self) -> None:
        self._data.write_run_file(
            Running(
                pid=os.getpid(),
                nats_url=self._broker.url,
                endpoints=self.endpoints,
                parts={"nats-server": self._broker.pid}
                | {part.name: part.pid for part in self._parts},
                restarts=self.restarts,
                metrics=self._metrics_addresses,
                since=self._began,
                started={part.name: part.started_ns for part in self._parts if part.started_ns},
            )
        )


def free_addresses() -> dict[str, str]:
    """The settings of a second supervisor, which would find the default ports in use."""
    return {name: f"127.0.0.1:{free_port()}" for name in (*LISTEN_SETTINGS, "METRICS_ADDR")}


def _prepare_database(data: DataDirectory) -> None:
    """Migrates the file in the data directory. A database of the settings has to be ready: the
    DATABASE_URL of a shell may name that of another program."""
    is_file = database.sqlite_file(data.database) is not None
    reads_only = is_file and not data.owns_database  # any other engine changes the file's header
    engine = (database.reader if reads_only else database.migrator)(data.database)
    try:
        database.require_reachable(engine)
        if data.owns_database:
            joulie_migrations.upgrade(engine)
            return
        if not joulie_migrations.current(engine):
            raise NotOursToMigrate
        joulie_migrations.require(engine)
    finally:
        engine.dispose()


def _environment(
    broker: Embedded,
    addresses: Mapping[str, HostPort],
    extra: Mapping[str, str],
    part: str,
    metrics: HostPort,
) -> dict[str, str]:
    address = broker.address_of(ROLES.get(part) or Role(part))
    # Credentials for another broker would conflict with those of this one.
    inherited = {**os.environ, **extra}
    ours = {name: value for name, value in inherited.items() if not name.startswith("NATS_")}
    return {
        **ours,
        **address.as_settings(),
        "METRICS_ADDR": str(metrics),
        **{
            name: str(addresses[endpoint])
            for name, endpoint in LISTEN_SETTINGS.items()
            if endpoint in addresses
        },
    }
