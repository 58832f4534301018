"""All parts in one process group: started in order, restarted when they fall, stopped cleanly.

The broker goes first and comes last to an end; who produces stops before who consumes, so that
nothing that was said at the end is left unread.
"""

import asyncio
import contextlib
import os
import signal
import sys
import time
from asyncio.subprocess import DEVNULL, Process
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence

import joulie_migrations
from joulie_bus.broker.embedded import Embedded, free_port
from joulie_bus.errors import BrokerStartFailed
from joulie_bus.jetstream.connection import Connection
from joulie_bus.jetstream.log import JetStreamLog
from joulie_bus.jetstream.streams import ensure
from joulie_bus.runtime.child_process import die_with_parent, giving_way
from joulie_bus.runtime.logging import get_logger
from joulie_bus.runtime.secret_files import private
from joulie_bus.runtime.settings import HostPort
from joulie_bus.streams.roles import Role
from joulie_bus.streams.subjects import Stream, Subjects
from joulie_cli.supervisor.data_directory import DataDirectory, Running
from joulie_projections.decision_log.log import DecisionLog
from joulie_projections.store import database

FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.2, 10.0
STEADY_S = 30.0  # after so long a life, the next fall is a first one again
STOP_PATIENCE_S = 10.0
SETTLE_S = 5.0  # for the projector to write down what the extender said last
ROLES = {"archive": Role.ARCHIVIST}  # of parts that are not called like theirs
# No part multiplies matrices, and none has many threads that allocate; the defaults of both
# libraries are a pool for each core of the machine.
THRIFT = {"OPENBLAS_NUM_THREADS": "1", "MALLOC_ARENA_MAX": "1"}
# Where cores are few, kube-scheduler waits for the extender, the extender for nobody, and people
# and logs can wait longest. Who is behind does more at a time, and takes less for it.
NICE = {"broker": 10, "projector": 10, "operator": 15, "console": 19, "archive": 19}
# Who listens where, as the parts are told.
DOORS = {"EXTENDER_ADDR": "extender", "CONSOLE_ADDR": "console"}
log = get_logger("up")


class Child:
    """One part; falls and gets up until it is told to stop."""

    def __init__(
        self, name: str, words: Sequence[str], data: DataDirectory, environ: Mapping[str, str]
    ) -> None:
        self.name = name
        self.restarts = 0
        self._words = words
        self._data = data
        self._environ = dict(environ)
        self._process: Process | None = None
        self._stopping = False

    @property
    def pid(self) -> int:
        return self._process.pid if self._process else 0

    async def live(self, tell: Callable[[], None]) -> None:
        """Until `stop`; `tell` is called whenever the process is another one."""
        pause = FIRST_PAUSE_S
        loop = asyncio.get_running_loop()
        while not self._stopping:
            born = loop.time()
            process = await self._start()
            tell()
            if self._stopping:  # asked to stop while it was being started
                process.terminate()
            async with giving_way(process.pid, NICE.get(self.name, 0)):
                code = await process.wait()
            if self._stopping:
                return
            pause = FIRST_PAUSE_S if loop.time() - born > STEADY_S else pause
            self.restarts += 1
            log.warning(
                "fell", who=self.name, exit_code=code, again_in_s=pause, see=str(self._log_path())
            )
            await asyncio.sleep(pause)
            pause = min(LONGEST_PAUSE_S, pause * 2)

    async def stop(self) -> None:
        self._stopping = True
        process = self._process
        if process is None or process.returncode is not None:
            return
        with contextlib.suppress(ProcessLookupError):
            process.send_signal(signal.SIGTERM)
        try:
            await asyncio.wait_for(process.wait(), STOP_PATIENCE_S)
        except TimeoutError:
            log.warning("killed", who=self.name, why=f"did not end in {STOP_PATIENCE_S:.0f} s")
            process.kill()
            await process.wait()

    def _log_path(self) -> str:
        return str(self._data.logs / f"{self.name}.log")

    async def _start(self) -> Process:
        with open(self._log_path(), "ab", opener=private) as file:
            self._process = await asyncio.create_subprocess_exec(
                sys.executable,
                "-m",
                "joulie_cli.main",  # the very code that runs here, whatever PATH says
                self.name,
                "--data",
                str(self._data.path),
                *self._words,
                env=self._environ,
                stdin=DEVNULL,
                stdout=file,
                stderr=file,
                preexec_fn=die_with_parent,
                start_new_session=True,
            )
        return self._process


class Supervisor:
    """`async with Supervisor.over(data, parts, ...)`: everything runs inside the block."""

    def __init__(self, data: DataDirectory, broker: Embedded, parts: list[Child]) -> None:
        self._data = data
        self._broker = broker
        self._parts = parts
        self._broker_restarts = 0
        self._began = time.time_ns()
        self._numbers: dict[str, str] = {}  # where each part tells its metrics
        self.endpoints: dict[str, str] = {}

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
        """The parts by name, each with the options that it is started with."""
        data.create()
        hold = data.hold()
        broker = Embedded(data.path, program=data.broker)
        try:
            await broker.start()
            await made_ready(broker, subjects)
            _migrate(data)
            numbers = {name: HostPort("127.0.0.1", free_port()) for name in names}
            numbers |= {"extender": addresses["metrics"]}
            parts = [
                Child(
                    name, words, data, _environment(broker, addresses, extra, name, numbers[name])
                )
                for name, words in names.items()
            ]
            supervisor = cls(data, broker, parts)
            supervisor.endpoints = {name: f"http://{at}" for name, at in addresses.items()}
            supervisor._numbers = {name: str(numbers[name]) for name in names}
            async with supervisor._running():
                yield supervisor
        finally:
            await broker.stop()
            data.withdraw()
            hold.release()

    @contextlib.asynccontextmanager
    async def _running(self) -> AsyncGenerator[None, None]:
        lives = [asyncio.create_task(part.live(self._announce)) for part in self._parts]
        keeper = asyncio.create_task(self._keep_broker())
        try:
            yield
        finally:
            for part in reversed(self._parts):
                if part.name == "projector":
                    await self._settle()
                await part.stop()
            keeper.cancel()
            await asyncio.gather(*lives, keeper, return_exceptions=True)

    @property
    def broker(self) -> Embedded:
        return self._broker

    async def _keep_broker(self) -> None:
        """A broker that fell is started again on the same port; clients find it by themselves."""
        while True:
            async with giving_way(self._broker.pid, NICE["broker"]):
                code = await self._broker.wait()
            log.warning("fell", who="nats-server", exit_code=code)
            await asyncio.sleep(FIRST_PAUSE_S)
            try:
                await self._broker.start()
            except BrokerStartFailed as error:
                log.error("still_down", who="nats-server", why=str(error))
                await asyncio.sleep(LONGEST_PAUSE_S)
            self._broker_restarts += 1
            self._announce()

    async def _settle(self) -> None:
        """Until the decision log holds everything that its stream holds."""
        address = self._broker.address_of(Role.AUDITOR)
        with contextlib.suppress(Exception):
            async with asyncio.timeout(SETTLE_S):
                async with JetStreamLog.open(address, "joulie-up") as bus:
                    while not await self._is_written(bus):
                        await asyncio.sleep(0.05)

    async def _is_written(self, bus: JetStreamLog) -> bool:
        stored = await bus.state(Stream.DEC)
        engine = database.reader(self._data.database)
        try:
            return DecisionLog(engine).read_to() >= stored.last
        finally:
            engine.dispose()

    @property
    def restarts(self) -> dict[str, int]:
        parts = {part.name: part.restarts for part in self._parts}
        return {"nats-server": self._broker_restarts} | parts

    @property
    def fell(self) -> str:
        """Which parts had to be started again, and how often; empty if none."""
        fallen = [f"{name} ({count})" for name, count in self.restarts.items() if count]
        return f"started again: {', '.join(fallen)}" if fallen else ""

    def _announce(self) -> None:
        self._data.announce(
            Running(
                pid=os.getpid(),
                nats_url=self._broker.url,
                endpoints=self.endpoints,
                parts={"nats-server": self._broker.pid}
                | {part.name: part.pid for part in self._parts},
                restarts=self.restarts,
                metrics=self._numbers,
                since=self._began,
            )
        )


async def made_ready(broker: Embedded, subjects: Subjects) -> None:
    """Its streams are made by its administrator; nobody else may."""
    connection = await Connection.open(broker.address_of(Role.ADMIN), "joulie-admin")
    try:
        await ensure(connection, subjects)
    finally:
        await connection.close()


def _migrate(data: DataDirectory) -> None:
    engine = database.migrator(data.database)
    try:
        joulie_migrations.upgrade(engine)
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
    # Another broker's keys and certificates would contradict what this one asks for.
    told = {**THRIFT, **os.environ, **extra}
    ours = {name: value for name, value in told.items() if not name.startswith("NATS_")}
    return {
        **ours,
        "NATS_URL": address.url,
        "NATS_USER": address.user,
        "NATS_PASSWORD": address.password,
        "NATS_INBOX": address.inbox,
        "METRICS_ADDR": str(metrics),
        **{name: str(addresses[whose]) for name, whose in DOORS.items() if whose in addresses},
    }
