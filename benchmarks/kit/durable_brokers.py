"""One nats-server, or a cluster of three on this machine, with the streams in as many copies."""

import asyncio
import contextlib
from asyncio.subprocess import DEVNULL, Process
from collections.abc import AsyncGenerator, Sequence
from pathlib import Path
from typing import NamedTuple

from bus_kit import CLUSTER
from joulie_bus.broker.checksum import server_binary
from joulie_bus.broker.embedded import environment
from joulie_bus.errors import BusError
from joulie_bus.jetstream.connection import MAX_PAYLOAD, Address, Connection
from joulie_bus.jetstream.streams import ensure
from joulie_bus.runtime.ports import free_port
from joulie_bus.streams.batch_limits import BATCH_LIMITS

PATIENCE_S = 60


class Kind(NamedTuple):
    servers: int
    is_synced: bool  # sync_interval: always; otherwise as nats-server has it

    def __str__(self) -> str:
        return f"R{self.servers}, sync_interval {'always' if self.is_synced else 'default'}"


KINDS = [Kind(servers, is_synced) for servers in (1, 3) for is_synced in (False, True)]


class Brokers(NamedTuple):
    address: Address
    pids: Sequence[int]


@contextlib.asynccontextmanager
async def running(kind: Kind, folder: Path) -> AsyncGenerator[Brokers, None]:
    """The processes are stopped at the end of the block."""
    ports = [free_port() for _ in range(2 * kind.servers)]
    clients, routes = ports[: kind.servers], ports[kind.servers :]
    servers: list[Process] = []
    try:
        for number, port in enumerate(clients):
            place = folder / f"n{number}"
            place.mkdir(parents=True)
            config = place / "nats.conf"
            config.write_text(_config(kind, place, (port, routes[number]), routes))
            words = (server_binary(), "-c", str(config))
            servers.append(
                await asyncio.create_subprocess_exec(
                    *words, stdout=DEVNULL, stderr=DEVNULL, env=environment()
                )
            )
        address = Address(url=",".join(f"nats://127.0.0.1:{port}" for port in clients))
        async with asyncio.timeout(PATIENCE_S):
            await _with_streams(address, kind.servers)
        yield Brokers(address, [server.pid for server in servers])
    finally:
        for server in servers:
            server.terminate()
        await asyncio.gather(*(server.wait() for server in servers))


@contextlib.asynccontextmanager
async def lazy_broker(folder: Path) -> AsyncGenerator[Address, None]:
    """One server that rarely syncs its disk, so that its clients dominate."""
    async with running(Kind(1, is_synced=False), folder) as brokers:
        yield brokers.address


def _config(kind: Kind, place: Path, ports: tuple[int, int], routes: Sequence[int]) -> str:
    client, route = ports
    urls = ", ".join(f"nats://127.0.0.1:{each}" for each in routes)
    cluster = f'cluster {{ name: joulie, listen: "127.0.0.1:{route}", routes: [ {urls} ] }}'
    return "\n".join(
        [
            f"server_name: {place.name}",
            f'listen: "127.0.0.1:{client}"',
            f"max_payload: {MAX_PAYLOAD}",
            "feature_flags { js_ack_fc_v2: false }",
            f'jetstream {{ store_dir: "{place}/store", max_file_store: 32GB',
            "sync_interval: always" if kind.is_synced else "",
            f"{BATCH_LIMITS} }}",
            cluster if kind.servers > 1 else "",
        ]
    )


async def _with_streams(address: Address, copies: int) -> None:
    """A cluster refuses streams until its servers have elected a leader."""
    while True:
        with contextlib.suppress(BusError):
            connection = await Connection.open(address, "bench", patience_s=1)
            try:
                return await ensure(connection, CLUSTER, copies)
            finally:
                await connection.close()
        await asyncio.sleep(0.1)
