"""Three nats-servers of one cluster, and PostgreSQL: a primary and two standbys."""

import asyncio
import contextlib
import os
import shutil
import signal
from collections.abc import Sequence
from pathlib import Path
from typing import Any, LiteralString

import psycopg

import joulie_forked
from broker_installations import password, with_passwords
from joulie_bus.broker.checksum import server_binary
from joulie_bus.errors import JoulieError
from joulie_bus.jetstream.connection import Address, Connection
from joulie_bus.streams.roles import CORE_ROLES, Role, inbox
from joulie_bus.streams.subjects import Stream
from machines import COUNT, Machines
from programs import Command, Ended, Program
from projections_kit import postgres_programs, unprivileged_user

CLIENTS, ROUTES, DATABASE = 4222, 6222, 5432
NAME = "joulie"
_HBA = """local all all trust
host all all 0.0.0.0/0 trust
host replication all 0.0.0.0/0 trust
"""
# A commit waits for one of two standbys, so that a failover takes no commit back; it does with
# STANDBYS=asynchronous, and what it takes back is read from the streams again.
_WAITED_FOR = "" if os.environ.get("STANDBYS") == "asynchronous" else "ANY 1 (*)"
_POSTGRES = """port = {port}
unix_socket_directories = ''
max_connections = 200
synchronous_standby_names = '{waited_for}'
wal_keep_size = '1GB'
restart_after_crash = off
wal_sender_timeout = 5s
wal_receiver_timeout = 5s
wal_receiver_status_interval = 1s
wal_retrieve_retry_interval = 1s
"""


def broker(machines: Machines, machine: int, place: Path, ended: list[Ended]) -> Program:
    place.mkdir(parents=True)
    address = machines.addresses[machine]
    users, limits = with_passwords(joulie_forked.joulie("grant", "all").stdout)
    routes = [f"nats://{each}:{ROUTES}" for each in machines.addresses]
    (place / "nats.conf").write_text(
        f'server_name: n{machine}\nlisten: "{address}:{CLIENTS}"\nmax_payload: 8MB\n'
        f'cluster {{ name: three, listen: "{address}:{ROUTES}", routes: {routes} }}\n'
        f'jetstream {{ store_dir: "{place}/store", max_file_store: 32GB, '
        f"sync_interval: always, {limits} }}\n{users}"
    )
    words = [*machines.words(machine), server_binary(""), "-c", str(place / "nats.conf")]
    return Program(Command(f"broker{machine}", machine, words, {}, place), ended)


def address_of(machines: Machines, role: Role, first: int = 0) -> Address:
    """Of all servers, beginning with that of a machine."""
    order = machines.addresses[first:] + machines.addresses[:first]
    return Address(
        url=",".join(f"nats://{each}:{CLIENTS}" for each in order),
        user=role,
        password=password(role),
        inbox=inbox(role),
        direct=role not in CORE_ROLES,
    )


async def until_copied(machines: Machines) -> None:
    """Returns when each stream has a leader, and two copies as current as its own."""
    connection = await Connection.open(address_of(machines, Role.ADMIN), "test", 60.0)
    try:
        for stream in Stream:
            async with asyncio.timeout(120):
                while not await _is_copied(connection, stream):
                    await asyncio.sleep(0.2)
    finally:
        await connection.close()


async def _is_copied(connection: Connection, stream: Stream) -> bool:
    try:
        info = await connection.api(f"STREAM.INFO.{stream}")
    except JoulieError:
        return False
    copies = info["cluster"].get("replicas", ())
    return len(copies) == COUNT - 1 and all(each["current"] for each in copies)


class Databases:
    """The server of machine 0 is the primary at first."""

    def __init__(self, machines: Machines, place: Path, ended: list[Ended]) -> None:
        self._machines, self._place = machines, place
        self._bin, self._user = postgres_programs(), unprivileged_user()
        self.primary = 0
        place.mkdir()
        if self._user.uid is not None and self._user.gid is not None:
            os.chown(place, self._user.uid, self._user.gid)
        self.servers = [self._server(machine, ended) for machine in range(3)]
        self.url = f"postgresql://owner@{','.join(machines.addresses)}/{NAME}?connect_timeout=3"

    def _server(self, machine: int, ended: list[Ended]) -> Program:
        words = [*self._machines.words(machine), *self._as_user()]
        words += [str(self._bin / "postgres"), "-D", str(self._data(machine))]
        words += ["-c", f"listen_addresses={self._machines.addresses[machine]}"]
        made = Program(Command(f"postgres{machine}", machine, words, {}, self._place), ended)
        made.is_held = True
        return made

    def _as_user(self) -> Sequence[str]:
        if self._user.uid is None:
            return ()
        ids = ("--reuid", str(self._user.uid), "--regid", str(self._user.gid), "--clear-groups")
        return ("setpriv", *ids, "--pdeathsig", "KILL")

    def _data(self, machine: int) -> Path:
        return self._place / f"data{machine}"

    async def start(self) -> None:
        data = self._data(0)
        await self._run(0, "initdb", "-D", str(data), "-U", "owner", "-A", "trust", "-E", "UTF8")
        (data / "pg_hba.conf").write_text(_HBA)
        with (data / "postgresql.conf").open("a") as settings:
            settings.write(_POSTGRES.format(port=DATABASE, waited_for=_WAITED_FOR))
        self.servers[0].is_held = False
        await self.until_ready(0)
        for machine in (1, 2):
            await self.follow(machine)
        await self._execute(0, f"CREATE DATABASE {NAME}")

    async def follow(self, machine: int) -> None:
        """Makes the server of the machine a new standby of the primary."""
        shutil.rmtree(self._data(machine), ignore_errors=True)
        source = ("-h", self._machines.addresses[self.primary], "-p", str(DATABASE), "-U", "owner")
        to = ("-D", str(self._data(machine)), "-R", "-c", "fast")
        await self._run(machine, "pg_basebackup", *to, *source)
        with (self._data(machine) / "postgresql.auto.conf").open("a") as settings:
            hosts = ",".join(self._machines.addresses)
            settings.write(
                f"primary_conninfo = 'host={hosts} port={DATABASE} user=owner "
                "connect_timeout=3 target_session_attrs=primary'\n"
            )
        self.servers[machine].is_held = False
        await self.until_ready(machine)

    async def until_followed(self) -> None:
        """Returns when both standbys have received what the primary wrote a moment ago."""
        current = (
            "SELECT count(*) FROM pg_stat_replication WHERE state = 'streaming' "
            "AND flush_lsn >= %s::pg_lsn"
        )
        async with asyncio.timeout(120):
            written = await self._of_primary("SELECT pg_current_wal_lsn()::text")
            while await self._of_primary(current, written) < COUNT - 1:
                await asyncio.sleep(0.1)

    async def _of_primary(self, statement: LiteralString, *values: str) -> Any:
        return await asyncio.to_thread(self._asked, self.primary, statement, *values)

    def _asked(self, machine: int, statement: LiteralString, *values: str) -> Any:
        with self._connected(machine) as db:
            [found] = db.execute(statement, values).fetchone() or (None,)
        return found

    async def fail_over(self) -> int:
        """Kills the primary and promotes the standby that received most; returns the old primary,
        which stays down.
        """
        old, held = self.primary, self.servers[self.primary]
        held.is_held = True
        held.kill()
        received: dict[int, int] = {}
        for machine in {0, 1, 2} - {old}:
            await self.until_ready(machine)
            received[machine] = await asyncio.to_thread(self._received, machine)
        self.primary = max(received, key=lambda each: received[each])
        await self._execute(self.primary, "SELECT pg_promote()")
        return old

    def _received(self, machine: int) -> int:
        asks = "SELECT pg_wal_lsn_diff(pg_last_wal_receive_lsn(), '0/0')::bigint"
        return int(self._asked(machine, asks) or 0)

    async def until_ready(self, machine: int) -> None:
        async with asyncio.timeout(120):
            while True:
                with contextlib.suppress(psycopg.OperationalError):
                    return await self._execute(machine, "SELECT 1")
                await asyncio.sleep(0.1)

    async def _execute(self, machine: int, statement: str) -> None:
        def run() -> None:
            with self._connected(machine) as db:
                db.execute(statement.encode())

        await asyncio.to_thread(run)

    def _connected(self, machine: int) -> psycopg.Connection:
        host = self._machines.addresses[machine]
        where = f"host={host} port={DATABASE} user=owner dbname=postgres connect_timeout=3"
        return psycopg.connect(where, autocommit=True)

    async def _run(self, machine: int, program: str, *arguments: str) -> None:
        words = [*self._machines.words(machine), *self._as_user(), str(self._bin / program)]
        log = (self._place / f"{program}.log").open("ab")
        with log:
            process = await asyncio.create_subprocess_exec(
                *words, *arguments, cwd=self._place, stdout=log, stderr=log
            )
            code = await process.wait()
        assert code == 0, (self._place / f"{program}.log").read_text()

    async def stop(self) -> None:
        for server in self.servers:
            server.is_held = True
            server.kill(signal.SIGQUIT)
