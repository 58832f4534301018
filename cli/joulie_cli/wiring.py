"""Shared by all commands: settings, the data directory, connections, shutdown on signals."""

import asyncio
import contextlib
import dataclasses
import os
import signal
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from pathlib import Path
from typing import Generic, NamedTuple, TypeVar

from msgspec.structs import replace

from joulie_bus.broker.embedded import address_within
from joulie_bus.errors import PortTaken
from joulie_bus.jetstream.connection import Address, Connection
from joulie_bus.jetstream.log import JetStreamLog
from joulie_bus.jetstream.streams import require
from joulie_bus.runtime import logging, metrics, nats_keys
from joulie_bus.runtime.metrics import Probe, well
from joulie_bus.runtime.settings import BusSettings, Source, setting, text
from joulie_bus.runtime.vital_tasks import reporting_ends, why_not_ready
from joulie_bus.streams.roles import CORE_ROLES, Role, inbox
from joulie_bus.streams.subjects import Subjects
from joulie_cli.supervisor.data_directory import DEFAULT, DataDirectory
from joulie_cli.supervisor.ending import Ending, code_after
from joulie_cli.supervisor.malloc import keep_memory

T = TypeVar("T")
log = logging.get_logger("settings")


def database_url(text: str) -> str:
    """sqlite:///path, postgresql://user:password@host/name, or empty for a file in the directory"""
    if not text:
        return text  # and an agent never loads SQLAlchemy
    from joulie_projections.store import database

    return database.checked_url(text)


@dataclasses.dataclass(frozen=True, kw_only=True)
class PlaceSettings:
    data: str = setting(text, "JOULIE_DATA", str(DEFAULT), "The data directory")
    keys: str = setting(
        text,
        "JOULIE_KEYS",
        "",
        "The directory with `head.key`, which only the projector needs; empty for the data "
        "directory",
    )
    database: str = setting(
        database_url,
        "DATABASE_URL",
        "",
        "Database of positions, states and decisions; empty for a SQLite file in the data "
        "directory",
        secret=True,
    )


class Wiring(NamedTuple):
    source: Source
    bus: BusSettings
    data: DataDirectory
    subjects: Subjects


def wired(
    part: str,
    settings: Sequence[type],
    data: Path | None,
    config: Path | None,
    elsewhere: Callable[[], Sequence[str]] = tuple,
) -> Wiring:
    """Read all settings of a command before anything starts; reports all mistakes at once."""
    source = Source(os.environ, config)
    bus, place = source.load(BusSettings), source.load(PlaceSettings)
    for cls in settings:
        source.load(cls)
    source.finish(elsewhere)
    logging.configure(bus.log_level, bus.log_format, part)
    for name, instead in source.without_effect.items():
        log.warning("setting_without_effect", setting=name, instead=instead)
    where = data or Path(place.data)
    directory = DataDirectory(where, place.database, bus.nats_server_bin, place.keys)
    return Wiring(source, bus, directory, Subjects(bus.cluster))


def serve_part(
    wires: Wiring,
    part: str,
    work: Awaitable[None],
    alive: Probe = well,
    ready: Probe = well,
    *,
    fast: bool = False,
) -> int:
    """Run a long-running process: serves its metrics and does its work until a signal arrives.

    `fast` selects uvloop, if it is installed, for parts with thousands of small requests.
    """
    keep_memory()
    ending = Ending()

    def is_ready() -> str:
        return ending.why or why_not_ready() or ready()

    try:
        metrics.serve(*wires.bus.metrics_addr, part, alive, is_ready)
    except PortTaken:
        if asyncio.iscoroutine(work):
            work.close()  # else Python warns that it was never awaited
        raise
    factory = _fast_loop() if fast else None
    with ending, reporting_ends(ending.on_failure), asyncio.Runner(loop_factory=factory) as runner:
        runner.run(_until_cancelled(work, ending))
    return ending.code


def _fast_loop() -> Callable[[], asyncio.AbstractEventLoop] | None:
    try:
        import uvloop
    except ImportError:
        return None
    return uvloop.new_event_loop


class Signalled(NamedTuple, Generic[T]):
    result: T
    code: int  # the exit code


def run_until_signalled(run: Callable[[asyncio.Event], Awaitable[T]]) -> Signalled[T]:
    """Run an interactive command: Ctrl-C and SIGTERM set an event for a clean shutdown."""
    codes = [0]

    async def guarded() -> T:
        stop = asyncio.Event()

        def on_signal(number: signal.Signals) -> None:
            codes.append(code_after(number))
            stop.set()

        _on_signals(on_signal)
        return await run(stop)

    result = asyncio.run(guarded())
    return Signalled(result, codes[-1])


async def _until_cancelled(part: Awaitable[None], ending: Ending) -> None:
    task = asyncio.ensure_future(part)

    def on_signal(number: signal.Signals) -> None:
        ending.on_signal(number)
        task.cancel()

    _on_signals(on_signal)
    with contextlib.suppress(asyncio.CancelledError):
        await task


def _on_signals(call: Callable[[signal.Signals], object]) -> None:
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, call, number)


def names_a_broker(wires: Wiring) -> bool:
    names = ("NATS_URL", "NATS_USER", "NATS_CREDS_FILE")
    return any(wires.source.names(name) for name in names)


def address_of(wires: Wiring, role: Role) -> Address:
    """The broker of the settings; if they name none, the embedded one of the data directory."""
    running = wires.data.running()
    if running is not None and not names_a_broker(wires):
        return address_within(wires.data.path, running.nats_url, role)
    direct = (wires.bus.nats_user or role) not in CORE_ROLES
    return replace(broker_of_settings(wires), direct=direct)


def broker_of_settings(wires: Wiring) -> Address:
    bus = wires.bus
    creds = bus.nats_creds_file
    content = Path(creds).read_text() if creds else ""
    is_token, has_jwt = nats_keys.is_token(content), nats_keys.is_credentials(content)
    return Address(
        url=bus.nats_url,
        user=bus.nats_user,
        password=bus.nats_password,
        nkey_file="" if has_jwt or is_token else creds,
        creds_file=creds if has_jwt else "",
        token_file=creds if is_token else "",
        ca_file=bus.nats_ca_file,
        cert_file=bus.nats_cert_file,
        key_file=bus.nats_key_file,
        inbox=bus.nats_inbox,
    )


@contextlib.asynccontextmanager
async def connected(
    wires: Wiring, role: Role, name: str = ""
) -> AsyncGenerator[JetStreamLog, None]:
    """`name` is that of a node. A token proves it: its inbox has that name then. The user of a
    node may not ask for the streams, so that its readings wait for them instead."""
    address = address_of(wires, role)
    if address.token_file and name:
        address = replace(address, inbox=inbox(role, name))
    connection = await Connection.open(address, f"joulie-{role}")
    try:
        if not name:
            await require(connection, wires.subjects)
        async with JetStreamLog.over(connection) as bus:
            yield bus
    finally:
        await connection.close()
