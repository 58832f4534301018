"""What every command has in common: settings, the data directory, connections, a clean end."""

import asyncio
import contextlib
import dataclasses
import os
import signal
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from pathlib import Path
from typing import NamedTuple, TypeVar

from joulie_bus import logging, metrics
from joulie_bus.jetstream.connection import Address, Connection
from joulie_bus.jetstream.log import JetStreamLog
from joulie_bus.jetstream.streams import ensure
from joulie_bus.settings import BusSettings, Source, setting, text
from joulie_bus.subjects import Subjects
from joulie_cli.data import DEFAULT, DataDirectory
from joulie_projections import database
from joulie_projections.view import View

T = TypeVar("T")


@dataclasses.dataclass(frozen=True, kw_only=True)
class PlaceSettings:
    data: str = setting(text, "JOULIE_DATA", str(DEFAULT), "The data directory")


class Wiring(NamedTuple):
    source: Source
    bus: BusSettings
    data: DataDirectory
    subjects: Subjects


def wired(part: str, settings: Sequence[type], data: Path | None, config: Path | None) -> Wiring:
    """Reads all settings of a command before anything starts; every mistake is told at once."""
    source = Source(os.environ, config)
    bus, place = source.load(BusSettings), source.load(PlaceSettings)
    for cls in settings:
        source.load(cls)
    source.finish()
    logging.configure(bus.log_level, bus.log_format, part)
    return Wiring(source, bus, DataDirectory(data or Path(place.data)), Subjects(bus.cluster))


def serve_part(wires: Wiring, part: Awaitable[None]) -> int:
    """A process that serves: its metrics, and its work until it is told to stop."""
    metrics.serve(*wires.bus.metrics_addr)
    asyncio.run(_until_cancelled(part))
    return 0


def run_until_told(run: Callable[[asyncio.Event], Awaitable[T]]) -> T:
    """A command for people: Ctrl-C and SIGTERM ask for an end; they do not tear anything."""

    async def guarded() -> T:
        told = asyncio.Event()
        _on_signals(told.set)
        return await run(told)

    return asyncio.run(guarded())


async def _until_cancelled(part: Awaitable[None]) -> None:
    task = asyncio.ensure_future(part)
    _on_signals(task.cancel)
    with contextlib.suppress(asyncio.CancelledError):
        await task


def _on_signals(call: Callable[[], object]) -> None:
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, call)


def address_of(wires: Wiring) -> Address:
    """The broker of the settings; if they name none, the one that runs in the directory."""
    bus, running = wires.bus, wires.data.running()
    if bus.nats_password or "NATS_URL" in os.environ or running is None:
        return Address(
            url=bus.nats_url,
            user=bus.nats_user,
            password=bus.nats_password,
            ca_file=bus.nats_ca_file,
        )
    password = (wires.data.path / "nats.password").read_text()
    return Address(url=running.nats_url, user="joulie", password=password)


@contextlib.asynccontextmanager
async def connected(wires: Wiring, name: str) -> AsyncGenerator[JetStreamLog, None]:
    connection = await Connection.open(address_of(wires), f"joulie-{name}")
    try:
        await ensure(connection, wires.subjects)
        async with JetStreamLog.over(connection) as bus:
            yield bus
    finally:
        await connection.close()


@contextlib.asynccontextmanager
async def viewing(wires: Wiring, name: str) -> AsyncGenerator[tuple[JetStreamLog, View], None]:
    wires.data.require()
    engine = database.reader(wires.data.database)
    try:
        async with (
            connected(wires, name) as bus,
            View.open(bus, engine, wires.subjects) as view,
        ):
            yield bus, view
    finally:
        engine.dispose()
