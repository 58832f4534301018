"""Each process on its own: reads settings, opens connections, runs until it is told to stop."""

import asyncio
import contextlib
import dataclasses
import os
import signal
from collections.abc import AsyncGenerator, Awaitable, Callable
from pathlib import Path
from typing import NamedTuple

import joulie_migrations
from joulie_bus import logging
from joulie_bus.jetstream.connection import Address, Connection
from joulie_bus.jetstream.publisher import Publisher
from joulie_bus.jetstream.streams import ensure
from joulie_bus.settings import BusSettings, Source, setting, text
from joulie_bus.subjects import Subjects
from joulie_cli.data import DEFAULT, DataDirectory
from joulie_extender import service as extender_service
from joulie_extender.settings import ScoringSettings, ServerSettings
from joulie_operator.kube import ApiServer
from joulie_operator.service import Operator
from joulie_operator.settings import OperatorSettings
from joulie_operator.watch import watch_cluster
from joulie_projections import database
from joulie_projections.heads import Signer
from joulie_projections.projector import Projector, ProjectorSettings
from joulie_projections.view import View
from joulie_simulator.service import SimulatorSettings, simulate

IN_CLUSTER = "in-cluster"


@dataclasses.dataclass(frozen=True, kw_only=True)
class PlaceSettings:
    data: str = setting(text, "JOULIE_DATA", str(DEFAULT), "The data directory")
    kubeconfig: str = setting(
        text,
        "KUBECONFIG",
        "",
        "How to reach the cluster; in-cluster for the service account, empty for no cluster",
    )


ALL_SETTINGS: tuple[type, ...] = (
    BusSettings,
    PlaceSettings,
    ProjectorSettings,
    ServerSettings,
    ScoringSettings,
    OperatorSettings,
    SimulatorSettings,
)


class Wiring(NamedTuple):
    """What every part has in common."""

    source: Source
    bus: BusSettings
    data: DataDirectory
    subjects: Subjects


def wiring(part: str, data: Path | None, config: Path | None) -> Wiring:
    source = Source(os.environ, config)
    bus, place = source.load(BusSettings), source.load(PlaceSettings)
    for cls in ALL_SETTINGS:
        source.load(cls)  # a mistake anywhere is told now, not by the part that meets it later
    source.finish()
    logging.configure(bus.log_level, bus.log_format, part)
    return Wiring(source, bus, DataDirectory(data or Path(place.data)), Subjects(bus.cluster))


def address_of(bus: BusSettings, data: DataDirectory) -> Address:
    """The broker of the settings; or, if they name none, the one that runs in the directory."""
    running = data.running()
    password_file = data.path / "nats.password"
    if bus.nats_password or "NATS_URL" in os.environ or running is None:
        return Address(
            url=bus.nats_url,
            user=bus.nats_user,
            password=bus.nats_password,
            ca_file=bus.nats_ca_file,
        )
    return Address(url=running.nats_url, user="joulie", password=password_file.read_text())


@contextlib.asynccontextmanager
async def connected(wires: Wiring, name: str) -> AsyncGenerator[Connection, None]:
    connection = await Connection.open(address_of(wires.bus, wires.data), f"joulie-{name}")
    try:
        yield connection
    finally:
        await connection.close()


async def run_projector(wires: Wiring) -> None:
    settings = wires.source.load(ProjectorSettings)
    wires.data.create()
    engine = database.writer(wires.data.database)
    joulie_migrations.require(engine)
    signer = Signer.of(wires.data.key)
    signer.publish(wires.data.public_key)
    async with connected(wires, "projector") as connection:
        projector = Projector(connection, wires.subjects, engine, signer, settings)
        await projector.run()


async def run_operator(wires: Wiring) -> None:
    settings = wires.source.load(OperatorSettings)
    place = wires.source.load(PlaceSettings)
    async with viewing(wires, "operator") as (connection, view), asyncio.TaskGroup() as tasks:
        tasks.create_task(Operator(connection, wires.subjects, view, settings).run())
        if place.kubeconfig:
            tasks.create_task(_watch(wires, connection, view, place.kubeconfig))


async def _watch(wires: Wiring, connection: Connection, view: View, kubeconfig: str) -> None:
    path = None if kubeconfig == IN_CLUSTER else Path(kubeconfig)
    async with ApiServer.of(path) as api, Publisher.on(connection) as publisher:
        await watch_cluster(api, publisher, wires.subjects, view)


async def run_extender(wires: Wiring) -> None:
    server, scoring = wires.source.load(ServerSettings), wires.source.load(ScoringSettings)
    async with viewing(wires, "extender") as (connection, view):
        await extender_service.serve(
            connection, wires.subjects, view, wires.data.spool, server, scoring
        )


async def run_simulator(wires: Wiring) -> None:
    settings = wires.source.load(SimulatorSettings)
    async with viewing(wires, "simulator") as (connection, view):
        await simulate(connection, wires.subjects, view, settings)


@contextlib.asynccontextmanager
async def viewing(wires: Wiring, name: str) -> AsyncGenerator[tuple[Connection, View], None]:
    wires.data.require()
    engine = database.reader(wires.data.database)
    async with connected(wires, name) as connection:
        await ensure(connection, wires.subjects)
        async with View.open(connection, engine, wires.subjects) as view:
            yield connection, view


Part = Callable[[Wiring], Awaitable[None]]
PARTS: dict[str, Part] = {
    "projector": run_projector,
    "operator": run_operator,
    "extender": run_extender,
    "simulator": run_simulator,
}


async def until_told(part: Awaitable[None]) -> None:
    """Runs it; SIGTERM and SIGINT end it the clean way, through its own `finally`s."""
    task = asyncio.ensure_future(part)
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, task.cancel)
    with contextlib.suppress(asyncio.CancelledError):
        await task
