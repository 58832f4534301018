"""The test kit: a whole console over a real broker, projector and database."""

import asyncio
import contextlib
import socket
import sys
import time
import urllib.parse
from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

import joulie_migrations
from bus_kit import CLUSTER, Voices, connected, until
from joulie_answers.readers.energy import EnergyReader
from joulie_bus.broker.embedded import Embedded
from joulie_bus.events import AnyEvent, DecisionEntry, PodAsk
from joulie_bus.jetstream.log import JetStreamLog
from joulie_bus.log.producer import Producer
from joulie_bus.runtime.ports import free_port
from joulie_bus.runtime.settings import Source
from joulie_bus.runtime.tasks import background
from joulie_bus.streams.records import Message
from joulie_bus.streams.roles import Role
from joulie_console.api.reports import ReportProgram
from joulie_console.notify.settings import NotifySettings
from joulie_console.service import ServiceSettings, StoredData, serve
from joulie_console.settings import ConsoleSettings
from joulie_extender.catalogue.declaration import declaration
from joulie_extender.catalogue.weights import Weights
from joulie_extender.decide.decide import DecisionContext, decide_filter, decide_prioritize
from joulie_projections.decision_log.heads import Signer
from joulie_projections.energy.idle_holders import IdleHolder
from joulie_projections.energy.saved import LedgerState
from joulie_projections.energy.savings import Savings
from joulie_projections.fold.manifest import Manifest
from joulie_projections.history.history import History
from joulie_projections.projector.projector import Projector, ProjectorSettings
from joulie_projections.store import database
from joulie_projections.store.database import Place
from joulie_projections.store.energy_lag import seconds_behind
from joulie_projections.store.energy_table import EnergyTable
from joulie_projections.view.view import View

STALENESS_S = 300.0
Constants = Mapping[str, Any]  # values of fields of ConsoleSettings that are not settings
WEIGHTS = Weights()
FRESH_S = 5.0


class ConsoleHarness:
    """A console at `url`, with methods to publish events and decisions."""

    def __init__(self, bus: JetStreamLog, view: View, database_file: Path, url: str) -> None:
        self.bus = bus
        self.view = view
        self.url = url
        self.database = database_file
        self._producers = Voices("harness", CLUSTER, time.time_ns)
        self._extender = Producer("extender-0", CLUSTER, time.time_ns)
        self.entries = 0

    async def publish(self, *events: AnyEvent) -> None:
        """Publishes events as their producers do. Returns when the view has them and knows that
        nothing is missing: decisions from a view of unknown age rest on labels alone."""
        goal = self.view.position + len(events)
        await self._send(events)
        await self.view.wait_for(goal, 60)
        await until(lambda: self.view.age_s < FRESH_S)

    async def commit(self, *events: AnyEvent) -> None:
        """Publishes events. Returns when the projector has committed them."""
        goal = self._committed() + len(events)
        await self._send(events)
        await until(lambda: self._committed() >= goal)

    async def _send(self, events: Sequence[AnyEvent]) -> None:
        await self.bus.publish([self._producers.stamp(event) for event in events])

    def _committed(self) -> int:
        return max((manifest.p_to for manifest in self.commits()), default=0)

    async def decide(self, pod: PodAsk) -> None:
        """Logs one filter and one prioritize decision over all nodes."""
        names, moment = self._candidates(), self._moment()
        await self.publish_decisions(
            *self._declarations(),
            decide_filter(pod, names, moment, WEIGHTS),
            decide_prioritize(pod, names, moment, WEIGHTS),
        )

    async def filter(self, pod: PodAsk, names: Sequence[str] = ()) -> None:
        """Logs one filter decision over these nodes, or over all."""
        filtered = decide_filter(pod, names or self._candidates(), self._moment(), WEIGHTS)
        await self.publish_decisions(*self._declarations(), filtered)

    def _candidates(self) -> list[str]:
        return sorted(self.view.cluster_state.nodes)

    def _moment(self) -> DecisionContext:
        seen = self.view.snapshot()
        return DecisionContext(
            seen.twin_columns,
            seen.position,
            seen.age_ms,
            time.time_ns(),
            seen.behind_ms,
            seen.incarnation,
        )

    def _declarations(self) -> list[DecisionEntry]:
        return [] if self.entries else [declaration(WEIGHTS)]

    def fill_ledger(self, state: LedgerState) -> None:
        """Writes a state of the ledger, as the component `ledger` does."""
        engine = database.ledger(self.database)
        try:
            EnergyTable(engine).save(0, state)
        finally:
            engine.dispose()

    def keep_holders(self, *found: IdleHolder) -> None:
        """Writes cards that are held without work, as the component `ledger` does."""
        engine = database.ledger(self.database)
        try:
            EnergyTable(engine).keep_holders(found, 1)
        finally:
            engine.dispose()

    def keep_savings(self, savings: Savings) -> None:
        """Writes what was saved, as `joulie report` does."""
        engine = database.ledger(self.database)
        try:
            EnergyTable(engine).keep_savings(savings)
        finally:
            engine.dispose()

    async def publish_decisions(self, *entries: DecisionEntry) -> None:
        await self.publish_messages([self._extender.stamp(entry) for entry in entries])

    async def publish_messages(self, messages: Sequence[Message]) -> None:
        """Publishes messages of replicas. Returns when each is an entry of the log."""
        self.entries += len(messages)
        await self.bus.publish(messages)
        await until(lambda: self._tip() >= self.entries)

    def commits(self) -> list[Manifest]:
        """Oldest first."""
        with History.of(self.database) as history:
            return list(history.manifests())

    def _tip(self) -> int:
        with History.of(self.database) as history:
            return history.tip()


async def told_by(harness: ConsoleHarness, *words: str) -> str:
    """What a command prints that asks this console."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "joulie_cli.main", *words, "--server", harness.url),
        stdout=asyncio.subprocess.PIPE,
    )
    out, _ = await asyncio.wait_for(process.communicate(), 60)
    return out.decode()


def energy_of(place: Place) -> EnergyReader:
    return EnergyReader(lambda: EnergyTable.readable(place), lambda: seconds_behind(place))


@contextlib.asynccontextmanager
async def running_projector(
    bus: JetStreamLog, directory: Path
) -> AsyncGenerator[asyncio.Task[None], None]:
    """A projector on the directory's database, which is created if it does not exist."""
    path = directory / "joulie.db"
    migrator = database.migrator(path)
    joulie_migrations.upgrade(migrator)
    migrator.dispose()
    engine = database.writer(path)
    signer = Signer.of(directory / "head.key")
    settings = ProjectorSettings(lease_s=0.3)
    try:
        run = Projector(bus, CLUSTER, engine, signer, settings).run()
        async with background(run, "projector") as task:
            yield task
    finally:
        engine.dispose()


@contextlib.asynccontextmanager
async def running_console(
    broker: Embedded, directory: Path, constants: Constants | None = None, **settings: str
) -> AsyncGenerator[str, None]:
    """Yields a console's URL. `settings` are environment variables, `constants` other fields."""
    source = Source.of(**{"CONSOLE_ADDR": f"127.0.0.1:{free_port()}", **settings})
    loaded = replace(source.load(ConsoleSettings), **(constants or {}))
    notify = source.load(NotifySettings)
    source.finish()
    path = directory / "joulie.db"
    engine = database.reader(path)
    try:
        async with (
            connected(broker, "console", Role.CONSOLE) as connection,
            JetStreamLog.over(connection) as bus,
            View.open(bus, engine, CLUSTER) as view,
        ):
            every = ServiceSettings(loaded, notify, STALENESS_S)
            report = ReportProgram.at(directory, broker_settings(broker, Role.CONSOLE))
            work = serve(bus, CLUSTER, view, StoredData.at(path, report), every)
            async with background(work, "console"):
                url = f"http://127.0.0.1:{loaded.addr.port}"
                await _ready(url)
                yield url
    finally:
        engine.dispose()


def broker_settings(broker: Embedded, role: Role) -> dict[str, str]:
    """For the environment of a process."""
    return {**broker.address_of(role).as_settings(), "JOULIE_CLUSTER": CLUSTER.cluster}


async def _ready(url: str) -> None:
    async with asyncio.timeout(60):
        while not await _is_ready(url):
            await asyncio.sleep(0.02)


async def _is_ready(url: str) -> bool:
    with contextlib.suppress(OSError, EOFError, UnexpectedStatus):
        async with open_response(url, "/readyz"):
            return True
    return False


@contextlib.asynccontextmanager
async def console_harness(
    broker: Embedded, directory: Path, constants: Constants | None = None, **settings: str
) -> AsyncGenerator[ConsoleHarness, None]:
    """A projector, a console, and a producer of events."""
    async with (
        connected(broker) as connection,
        JetStreamLog.over(connection) as bus,
        running_projector(bus, directory),
        contextlib.AsyncExitStack() as stack,
    ):
        url = await stack.enter_async_context(
            running_console(broker, directory, constants, **settings)
        )
        engine = database.reader(directory / "joulie.db")
        stack.callback(engine.dispose)
        view = await stack.enter_async_context(View.open(bus, engine, CLUSTER))
        await view.wait_ready(60)
        yield ConsoleHarness(bus, view, directory / "joulie.db", url)


class StreamEvent(NamedTuple):
    """One event of the stream."""

    event: str
    id: str
    data: Any


class EventReader:
    """A client of the stream: a parser of server-sent events."""

    def __init__(self, lines: AsyncIterator[str], last_id: str) -> None:
        self._lines = lines
        self.last_id = last_id

    async def next(self, *events: str) -> StreamEvent:
        """The next event, or the next one of these kinds."""
        while True:
            event = await self._read_one()
            if not events or event.event in events:
                return event

    async def _read_one(self) -> StreamEvent:
        event, data = "message", list[str]()
        async for line in self._lines:
            name, _, value = line.partition(": ")
            if name == "event":
                event = value
            elif name == "data":
                data.append(value)
            elif name == "id":
                self.last_id = value
            elif not line and data:
                return StreamEvent(event, self.last_id, msgspec.json.decode("\n".join(data)))
        raise EOFError("the stream ended")


@contextlib.asynccontextmanager
async def open_stream(
    url: str, last_id: str = "", buffer: int = 0, **query: str
) -> AsyncGenerator[EventReader, None]:
    """Opens a console's stream, from now on or after the given id."""
    encoded = urllib.parse.urlencode(query)
    header = {"Last-Event-ID": last_id} if last_id else {}
    async with open_response(url, f"/v1/stream?{encoded}", buffer, **header) as lines:
        yield EventReader(lines, last_id)


class UnexpectedStatus(Exception):
    """The status is not 200."""


@contextlib.asynccontextmanager
async def open_response(
    url: str, path: str, buffer: int = 0, **headers: str
) -> AsyncGenerator[AsyncIterator[str], None]:
    """The lines of a response as they arrive, over a socket of its own: cheap enough for hundreds.

    A small `buffer` makes a slow client.
    """
    at = urllib.parse.urlsplit(url)
    connection = socket.socket()
    connection.setblocking(False)
    if buffer:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, buffer)
    await asyncio.get_running_loop().sock_connect(connection, (at.hostname, at.port))
    reader, writer = await asyncio.open_connection(sock=connection, limit=buffer or 2**16)
    try:
        sent = {"Host": at.netloc, "Connection": "close", **headers}
        head = "".join(f"{name}: {value}\r\n" for name, value in sent.items())
        writer.write(f"GET {path} HTTP/1.1\r\n{head}\r\n".encode())
        status = (await reader.readuntil(b"\r\n")).decode().strip()
        if " 200 " not in status:
            raise UnexpectedStatus(status)
        await reader.readuntil(b"\r\n\r\n")
        yield _lines(reader)
    finally:
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()


async def _lines(reader: asyncio.StreamReader) -> AsyncIterator[str]:
    """Decodes the chunked transfer encoding."""
    rest = b""
    while size := int(await reader.readline() or b"0", 16):
        rest += await reader.readexactly(size)
        await reader.readexactly(2)
        *whole, rest = rest.split(b"\n")
        for line in whole:
            yield line.decode()
