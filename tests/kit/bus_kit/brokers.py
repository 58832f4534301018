"""Logs and brokers: in memory, embedded, and a cluster of three."""

import asyncio
import contextlib
import shutil
from collections.abc import AsyncGenerator, Callable
from pathlib import Path

from msgspec.structs import replace

from bus_kit.clock import VirtualClock
from bus_kit.memory_broker import MemoryBroker, MemoryLog
from bus_kit.stamping import CLUSTER
from joulie_bus.broker.embedded import Embedded, Peer
from joulie_bus.jetstream.connection import Connection
from joulie_bus.jetstream.streams import declaration, ensure
from joulie_bus.runtime.ports import free_port
from joulie_bus.streams.roles import Role
from joulie_bus.streams.subjects import Stream


def memory_log(clock: Callable[[], int] | None = None) -> MemoryLog:
    """A new log in memory; `clock` is the clock of its broker."""
    return MemoryLog(MemoryBroker(CLUSTER, clock or VirtualClock()))


@contextlib.asynccontextmanager
async def running_broker(directory: Path) -> AsyncGenerator[Embedded, None]:
    """A real nats-server with the streams, stopped at the end of the block."""
    async with bare_broker(directory) as broker:
        async with connected(broker) as connection:
            await ensure(connection, CLUSTER)
        yield broker


@contextlib.asynccontextmanager
async def bare_broker(directory: Path) -> AsyncGenerator[Embedded, None]:
    """A real nats-server without streams, for tests that trim, fill or lose one."""
    broker = Embedded(directory)
    await broker.start()
    try:
        yield broker
    finally:
        await broker.stop()


@contextlib.asynccontextmanager
async def running_cluster(directory: Path) -> AsyncGenerator[dict[str, Embedded], None]:
    """A cluster of three nats-servers, by name, without streams. All accept the same users."""
    routes = [free_port() for _ in range(3)]
    Embedded(directory / "all")  # creates the passwords that all three share
    servers = {}
    for number, port in enumerate(routes):
        place = directory / f"n{number}"
        shutil.copytree(directory / "all", place)
        servers[place.name] = Embedded(place, peer=Peer(place.name, port, routes))
    try:
        await asyncio.gather(*(server.start() for server in servers.values()))
        yield servers
    finally:
        await asyncio.gather(*(server.stop() for server in servers.values()))


@contextlib.asynccontextmanager
async def asking_cluster(directory: Path, servers: int = 1) -> AsyncGenerator[list[Embedded], None]:
    """One server or several without streams, which ask the service of the auth callout about
    clients without a password."""
    Embedded(directory / "all", auth_callout=True)  # creates the passwords that all share
    ports = [free_port() for _ in range(servers)]
    found = list[Embedded]()
    for number, port in enumerate(ports):
        place = directory / f"n{number}"
        shutil.copytree(directory / "all", place)
        peer = Peer(place.name, port, ports) if servers > 1 else None
        found.append(Embedded(place, peer=peer, auth_callout=True))
    try:
        await asyncio.gather(*(server.start() for server in found))
        yield found
    finally:
        await asyncio.gather(*(server.stop() for server in found))


@contextlib.asynccontextmanager
async def connected(
    broker: Embedded, name: str = "test", role: Role = Role.ADMIN, direct: bool = False
) -> AsyncGenerator[Connection, None]:
    """`direct`: it reads as roles outside of the core do."""
    address = broker.address_of(role)
    connection = await Connection.open(replace(address, direct=direct or address.direct), name)
    try:
        yield connection
    finally:
        await connection.close()


class Backup:
    """A copy of an embedded broker's streams, for tests that restore an older state."""

    def __init__(self, broker: Embedded, directory: Path) -> None:
        self._broker = broker
        self._store, self._copy = directory / "nats", directory / "older"

    @classmethod
    async def of(cls, broker: Embedded, directory: Path) -> "Backup":
        """Stops the broker, copies its files and starts it again."""
        backup = cls(broker, directory)
        await broker.stop()
        shutil.copytree(backup._store, backup._copy)
        await broker.start()
        return backup

    async def set_back(self) -> None:
        """Restarts the broker with the older state."""
        await self._broker.stop()
        shutil.rmtree(self._store)
        shutil.copytree(self._copy, self._store)
        await self._broker.start()


@contextlib.asynccontextmanager
async def full(connection: Connection, *streams: Stream) -> AsyncGenerator[None, None]:
    """Within the block the broker refuses every message to these streams as full."""
    for stream in streams:
        held = (await connection.api(f"STREAM.INFO.{stream}"))["state"]["bytes"]
        limits = {"discard": "new", "max_bytes": held + 1}
        await connection.api(f"STREAM.UPDATE.{stream}", declaration(stream, CLUSTER) | limits)
    try:
        yield
    finally:
        for stream in streams:
            await connection.api(f"STREAM.UPDATE.{stream}", declaration(stream, CLUSTER))
