"""Each credential that `joulie grant` prints, in the hands of a hostile client, beside a projector.

JOULIE_DRILL_SECONDS sets for how long each of them attacks (60).
"""

import asyncio
import contextlib
import os
import re
import subprocess
import sys
from collections.abc import AsyncGenerator, Mapping
from pathlib import Path
from typing import NamedTuple

import pytest

from broker_attacks import Holdings, attack, grown, holdings
from bus_kit import CLUSTER, decided, node_seen, producer, until
from joulie_bus.jetstream.connection import Address, Connection
from joulie_bus.jetstream.publisher import Publisher
from joulie_bus.runtime.ports import free_port
from joulie_bus.streams.accounts import written
from joulie_bus.streams.batch_limits import BATCH_LIMITS
from joulie_bus.streams.roles import CORE_ROLES, NAMED, Role, grant_of, inbox, permissions
from joulie_projections.history.history import History
from nats_trust import serving
from one_broker import anyio_backend

__all__ = ["anyio_backend"]  # a fixture
pytestmark = [pytest.mark.anyio, pytest.mark.drill, pytest.mark.timeout(1800)]
SECONDS = float(os.environ.get("JOULIE_DRILL_SECONDS", "60"))
PASSWORD = "p"
MOST_KIB = 128 * 1024  # by which the memory of the broker may have grown after all attacks
JOULIE = (sys.executable, "-m", "joulie_cli.main")


class Credential(NamedTuple):
    role: Role
    name: str = ""  # of the node of an agent, or of the replica of an extender

    @property
    def login(self) -> str:
        return f"{self.role}-{self.name}" if self.name else str(self.role)

    def address(self, url: str) -> Address:
        is_outside = self.role not in CORE_ROLES
        login, listens = self.login, inbox(self.role, self.name)
        return Address(url=url, user=login, password=PASSWORD, inbox=listens, direct=is_outside)


EVERY = [*map(Credential, Role), *(Credential(role, "evil") for role in NAMED)]
HOSTILE = [each for each in EVERY if each.role not in CORE_ROLES]


def configuration(place: Path) -> str:
    users: dict[Role, list[Mapping[str, object]]] = {role: [] for role in Role}
    for each in EVERY:
        rights = permissions(grant_of(each.role, each.name))
        users[each.role].append({"user": each.login, "password": PASSWORD, "permissions": rights})
    store = f'jetstream {{ store_dir: "{place}/store", max_file_store: 32GB, {BATCH_LIMITS} }}\n'
    return f'{store}pid_file: "{place}/nats.pid"\n{written(users)}'


class Site(NamedTuple):
    url: str
    place: Path

    def environ(self, role: Role) -> dict[str, str]:
        return {
            **os.environ,
            "NATS_URL": self.url,
            "NATS_USER": role,
            "NATS_PASSWORD": PASSWORD,
            "NATS_INBOX": inbox(role),
            "JOULIE_CLUSTER": CLUSTER.cluster,
            "JOULIE_DATA": str(self.place / "data"),
            "METRICS_ADDR": f"127.0.0.1:{free_port()}",
        }

    async def joulie(self, role: Role, *words: str) -> subprocess.CompletedProcess[str]:
        environ = self.environ(role)
        command = [*JOULIE, *words]
        return await asyncio.to_thread(
            subprocess.run, command, env=environ, capture_output=True, text=True, check=False
        )

    @contextlib.asynccontextmanager
    async def projector(self) -> AsyncGenerator[None, None]:
        environ = self.environ(Role.PROJECTOR)
        with (self.place / "projector.log").open("ab") as log:
            running = subprocess.Popen([*JOULIE, "projector"], env=environ, stderr=log, stdout=log)
        try:
            yield
            assert running.poll() is None, (self.place / "projector.log").read_text()[-3000:]
        finally:
            running.terminate()
            await asyncio.to_thread(running.wait, 30)

    @contextlib.asynccontextmanager
    async def connected(self, credential: Credential) -> AsyncGenerator[Connection, None]:
        connection = await Connection.open(credential.address(self.url), credential.login)
        try:
            yield connection
        finally:
            await connection.close()

    def decisions(self) -> int:
        with History.of(self.place / "data" / "joulie.db") as history:
            return sum(entry.kind == "decision.filter" for entry in history.entries())

    async def decide(self, number: int) -> None:
        """An honest replica decides; returns when the log has it."""
        replica, operator = producer(f"honest-{number}"), producer(f"tester-{number}")
        facts = [replica.stamp(decided(f"pod-{number}")), operator.stamp(node_seen(f"n{number}"))]
        admin = Credential(Role.ADMIN)
        async with self.connected(admin) as connection, Publisher.on(connection) as publisher:
            await publisher.publish(facts)
        await until(lambda: self.decisions() >= number, 60)

    def memory_kib(self) -> int:
        pid = (self.place / "nats.pid").read_text().strip()
        return int(re.findall(r"VmRSS:\s+(\d+)", Path(f"/proc/{pid}/status").read_text())[0])


async def attacked(site: Site, credential: Credential) -> tuple[int, dict[str, object], Holdings]:
    """How much was sent, and what grew beside own messages and the heads of the projector."""
    grant = grant_of(credential.role, credential.name)
    async with site.connected(Credential(Role.ADMIN)) as admin:
        before = await holdings(admin)
        async with site.connected(credential) as hostile:
            sent = await attack(hostile, grant, SECONDS)
        after = await holdings(admin)
    for held in (before, after):
        held.messages["JOULIE_HEADS"].pop(CLUSTER.heads, None)
        held.consumers.clear()  # the projector replaces its own; they are bounded below
    return sent, grown(before, after, grant), after


async def consumers(site: Site) -> dict[str, int]:
    async with site.connected(Credential(Role.ADMIN)) as admin:
        return (await holdings(admin)).consumers


async def test_a_hostile_client_with_any_credential_leaves_a_log_that_is_valid_and_continues(
    tmp_path: Path,
) -> None:
    with serving(tmp_path, configuration(tmp_path)) as url:
        site = Site(url, tmp_path)
        migrated = await site.joulie(Role.ADMIN, "migrate")
        assert migrated.returncode == 0, migrated.stderr
        async with site.projector():
            await site.decide(1)
            memory, found = site.memory_kib(), dict[str, object]()
            for credential in HOSTILE:
                sent, more, _ = await attacked(site, credential)
                now = site.memory_kib()
                print(f"{credential.login}: {sent} messages, grown {more}, broker {now} KiB")
                found |= {credential.login: more} if more else {}
            assert found == {}
            await site.decide(2)
        async with site.projector():  # it starts again on what is there
            await site.decide(3)
            counted = await consumers(site)
        verified = await site.joulie(Role.AUDITOR, "verify")
        size = (tmp_path / "data" / "joulie.db").stat().st_size
        print(f"broker {memory} -> {site.memory_kib()} KiB, database {size} bytes, {counted}")
        print(verified.stdout)

        assert verified.returncode == 0, verified.stdout
        assert "Note: ignored" not in verified.stdout
        assert max(counted.values()) <= 2  # of the projector
        assert site.memory_kib() - memory < MOST_KIB
