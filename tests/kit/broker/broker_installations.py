"""The brokers that Joulie is installed with: embedded, three servers, an external one, and the
chart's, as the chart renders it for three servers."""

import asyncio
import contextlib
import json
import re
import subprocess
import sys
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import NamedTuple

from bus_kit import CLUSTER, bare_broker, running_cluster
from chart_broker import ChartBroker, chart_broker, secret
from joulie_bus.jetstream.connection import Address, Connection
from joulie_bus.jetstream.streams import ensure
from joulie_bus.streams.accounts import user
from joulie_bus.streams.roles import CORE_ROLES, FOLLOW, Role, inbox
from kube_real import HELM, program_or_skip
from nats_trust import serving


class Installation(NamedTuple):
    """A broker with the streams, and how each role reaches it."""

    address_of: Callable[[Role], Address]

    @contextlib.asynccontextmanager
    async def connected(self, role: Role) -> AsyncGenerator[Connection, None]:
        connection = await Connection.open(self.address_of(role), f"test-{role}")
        try:
            yield connection
        finally:
            await connection.close()


@contextlib.asynccontextmanager
async def embedded(directory: Path) -> AsyncGenerator[Installation, None]:
    async with bare_broker(directory) as broker:
        yield await _with_streams(Installation(broker.address_of))


@contextlib.asynccontextmanager
async def three_servers(directory: Path) -> AsyncGenerator[Installation, None]:
    """Clients are connected to different servers."""
    async with running_cluster(directory) as servers:
        several = list(servers.values())
        order = {role: several[number % 3] for number, role in enumerate(Role)}
        yield await _with_streams(Installation(lambda role: order[role].address_of(role)), 3)


@contextlib.asynccontextmanager
async def external(directory: Path) -> AsyncGenerator[Installation, None]:
    """Its accounts are what `joulie grant all` prints."""
    async with _served(directory, await asyncio.to_thread(_granted)) as installation:
        yield installation


@contextlib.asynccontextmanager
async def chart(directory: Path) -> AsyncGenerator[Installation, None]:
    """Clients are connected to different servers, with the passwords of the chart. Needs helm."""
    program_or_skip(HELM)
    (directory / "home").mkdir(parents=True)
    async with chart_broker(directory / "home", directory, "--set", "nats.replicas=3") as broker:
        order = {role: broker.servers[number % 3].port for number, role in enumerate(Role)}
        made = Installation(lambda role: _address_in(broker, role, order[role]))
        yield await _with_streams(made, 3)


def _address_in(broker: ChartBroker, role: Role, port: int) -> Address:
    passwords = secret(broker.trees, "joulie-nats-users")
    return Address(
        url=f"tls://localhost:{port}",
        user=role,
        password=passwords[f"NATS_{role.upper()}"].decode(),
        ca_file=str(broker.place / "ca.crt"),
        inbox=inbox(role),
        direct=role not in CORE_ROLES,
    )


def _granted() -> str:
    command = [sys.executable, "-m", "joulie_cli.main", "grant", "all"]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


@contextlib.asynccontextmanager
async def _served(directory: Path, users: str) -> AsyncGenerator[Installation, None]:
    directory.mkdir()
    users, limits = with_passwords(users)
    store = f'jetstream {{ store_dir: "{directory}/store", max_file_store: 32GB, {limits} }}\n'
    with serving(directory, store + users) as url:

        def address_of(role: Role) -> Address:
            return Address(
                url=url,
                user=role,
                password=password(role),
                inbox=inbox(role),
                direct=role not in CORE_ROLES,
            )

        yield await _with_streams(Installation(address_of))


def with_passwords(printed: str) -> tuple[str, str]:
    """What `joulie grant all` prints, with a password for each user; and the limits of JetStream
    that it recommends.
    """
    for role in Role:
        printed = printed.replace(f"$NATS_{role.upper()}", f'"{password(role)}"')
    return printed, "".join(re.findall(r"^# +(limits .*)$", printed, re.MULTILINE))


def password(role: Role) -> str:
    return f"secret-of-{role}"


async def _with_streams(installation: Installation, replicas: int = 1) -> Installation:
    async with installation.connected(Role.ADMIN) as connection:
        await ensure(connection, CLUSTER, replicas)
    return installation


INSTALLATIONS: Mapping[str, Callable[[Path], AbstractAsyncContextManager[Installation]]] = {
    "embedded": embedded,
    "three servers": three_servers,
    "external": external,
    "chart": chart,
}


@contextlib.asynccontextmanager
async def flat(directory: Path) -> AsyncGenerator[Installation, None]:
    """All users in one account, as versions without accounts had them. Attacks succeed there."""
    users = [user(role, password(role)) for role in Role]
    for each in users:
        if each["user"] in (Role.AUDITOR, Role.ARCHIVIST, Role.CONSOLE):
            each["permissions"]["publish"] = (*each["permissions"]["publish"], *FOLLOW)
    text = f"authorization {{ users: {json.dumps(users)} }}"
    async with _served(directory, text) as installation:
        yield installation
