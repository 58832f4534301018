"""An installation with a broker of its own, whose components are replaced one by one."""

import asyncio
import contextlib
import os
import sys
from collections.abc import AsyncGenerator, Mapping, Sequence
from pathlib import Path

from broker_installations import password, with_passwords
from joulie_bus.broker.checksum import server_binary
from joulie_bus.errors import JoulieError
from joulie_bus.jetstream.connection import Address, Connection
from joulie_bus.runtime.ports import free_port
from joulie_bus.streams.roles import Role, inbox
from joulie_projections.store.database import Place
from programs import Command, Ended, Program
from seen_positions import read_by_extender

TOKEN = "a-token-of-the-test-only"
EXTENDERS = ("e0", "e1")
COMPONENTS = {
    "projector": Role.PROJECTOR,
    "e0": Role.EXTENDER,
    "e1": Role.EXTENDER,
    "operator": Role.OPERATOR,
    "console": Role.CONSOLE,
    "ledger": Role.AUDITOR,
}
_COMMANDS = {
    "migrate": Role.ADMIN,
    "rebuild": Role.PROJECTOR,
    "verify": Role.AUDITOR,
    "replay": Role.AUDITOR,
    "dead": Role.AUDITOR,
    "grant": Role.ADMIN,
    "archive": Role.ARCHIVIST,
}


# The setting by which a component reaches the API server.
CLUSTERS = {Role.OPERATOR: "KUBECONFIG", Role.EXTENDER: "EXTENDER_BINDS"}


class Failed(Exception):
    """A command that ended with another exit code than it should."""


class Site:
    """A broker of the operator's own, a database, and the components beside it."""

    def __init__(
        self,
        place: Path,
        database_url: str = "",
        kubeconfigs: Mapping[Role, Path] = {},  # of an API server, if there is one
        extenders: Sequence[str] = EXTENDERS,
    ) -> None:
        self.place, self.data = place, place / "data"
        self._kubeconfigs = kubeconfigs
        self.database: Place = database_url or self.data / "joulie.db"
        self.ended: list[Ended] = []
        self._url = f"nats://127.0.0.1:{free_port()}"
        roles = COMPONENTS | dict.fromkeys(extenders, Role.EXTENDER)
        self._roles, self._extenders = roles, extenders
        self._ports = {part: (free_port(), free_port()) for part in roles}
        self.data.mkdir(parents=True)
        (place / "token").write_text(TOKEN)
        (place / "token").chmod(0o600)
        words = [server_binary(""), "-c", str(place / "nats.conf")]
        self.broker = Program(Command("broker", 0, words, {}, place), self.ended)
        self.components = {part: Program(self._component(part), self.ended) for part in roles}

    @property
    def extenders(self) -> Mapping[str, tuple[str, int]]:
        return {part: ("127.0.0.1", self._ports[part][0]) for part in self._extenders}

    def address_of(self, role: Role) -> Address:
        return Address(url=self._url, user=role, password=password(role), inbox=inbox(role))

    def configure_broker(self, users: str, limits: str) -> None:
        self._granted = users, limits
        store = f'jetstream {{ store_dir: "{self.place}/store", max_file_store: 32GB, {limits} }}'
        listen = f'listen: "{self._url.removeprefix("nats://")}"'
        (self.place / "nats.conf").write_text("\n".join([listen, store, users]))

    async def with_accounts(self) -> None:
        self.configure_broker(*with_passwords(await self.run("grant", "all", data=False)))

    @contextlib.asynccontextmanager
    async def broker_out_of_reach(self) -> AsyncGenerator[None, None]:
        """For this block the broker has an address that running components do not know."""
        known = self._url
        await self.broker.stop()
        self._url = f"nats://127.0.0.1:{free_port()}"
        await self.start_broker()
        try:
            yield
        finally:
            await self.broker.stop()
            self._url = known
            await self.start_broker()

    async def start_broker(self) -> None:
        self.configure_broker(*self._granted)
        self.broker.is_held = False
        await self.until_broker_answers()

    async def until_broker_answers(self) -> None:
        async with asyncio.timeout(60):
            while True:
                with contextlib.suppress(JoulieError, OSError):
                    await (await Connection.open(self.address_of(Role.ADMIN), "test")).close()
                    return
                await asyncio.sleep(0.1)

    def environment(self, role: Role, name: str) -> dict[str, str]:
        address = self.address_of(role)
        port, metrics = self._ports.get(name, (0, 0))
        clean = {key: value for key, value in os.environ.items() if not key.startswith("NATS_")}
        place = {"DATABASE_URL": self.database} if isinstance(self.database, str) else {}
        found = self._kubeconfigs.get(role)
        cluster = {CLUSTERS[role]: str(found), "POD_NAMESPACE": "joulie-system"} if found else {}
        return clean | {
            **place,
            **cluster,
            **address.as_settings(),
            "METRICS_ADDR": f"127.0.0.1:{metrics or free_port()}",
            "EXTENDER_ADDR": f"127.0.0.1:{port}",
            "EXTENDER_REPLICA": name,
            "EXTENDER_ALLOW_UNAUTHENTICATED": "true",
            "CONSOLE_ADDR": f"127.0.0.1:{port}",
            "CONSOLE_TOKEN_FILE": str(self.place / "token"),
            "TWIN_STALENESS_THRESHOLD": "1h",
            "RECONCILE_INTERVAL": "1s",
            "PROJECTOR_SNAPSHOT_EVERY": "200",  # a trim requires one
        }

    def _component(self, part: str) -> Command:
        command = "extender" if part in self._extenders else part
        words = [*_joulie(command), "--data", str(self.data)]
        return Command(part, 0, words, self.environment(self._roles[part], part), self.place)

    async def replace(self, part: str) -> None:
        """Stops the component in order, and starts it again."""
        program = self.components[part]
        await program.stop()
        self.start(part)

    def start(self, part: str) -> None:
        program = self.components[part]
        program.command = self._component(part)
        program.is_held = False

    async def run(self, command: str, *options: str, or_code: int = 0, data: bool = True) -> str:
        """A command to its end. It ends with 0, or with this code."""
        where = ("--data", str(self.data)) if data else ()
        process = await asyncio.create_subprocess_exec(
            *(*_joulie(command), *options, *where),
            env=self.environment(_COMMANDS[command], command),
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        out, error = await process.communicate()
        if process.returncode not in (0, or_code):
            printed = (out + error).decode()
            raise Failed(f"{command}: {process.returncode}\n{printed}")
        return out.decode()

    async def position(self, extender: str) -> int:
        """What the extender has read of the facts."""
        host, port = self.extenders[extender]
        return await read_by_extender(f"{host}:{port}")


def _joulie(command: str) -> Sequence[str]:
    return (sys.executable, "-m", "joulie_cli.main", command)
