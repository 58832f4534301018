"""Three of everything on three machines: brokers, databases, projectors, extenders, consoles."""

import asyncio
import contextlib
import json
import os
import shutil
import sys
import tempfile
from collections.abc import AsyncGenerator, Mapping, Sequence
from pathlib import Path

from joulie_bus.streams.roles import Role
from joulie_projections.decision_log.heads import Signer
from machines import COUNT, Machines
from programs import Command, Ended, Program, kept
from servers import Databases, address_of, broker, until_copied

EXTENDER, CONSOLE, METRICS = 9876, 9880, 9877
TOKEN = "a-token-of-the-test-only"
_ROLES = {
    "migrate": Role.ADMIN,
    "projector": Role.PROJECTOR,
    "extender": Role.EXTENDER,
    "console": Role.CONSOLE,
    "ledger": Role.AUDITOR,
    "verify": Role.AUDITOR,
    "replay": Role.AUDITOR,
}
# Two machines suffice for what one leads, or what only shows.
COMPONENTS = {
    "projector": (0, 1),
    "extender": (0, 1, 2),
    "console": (1, 2),
    "ledger": (2,),
}
FEWER = {"projector": (0, 1), "extender": (0, 1)}


class Installation:
    """Everything that runs, by name."""

    def __init__(
        self,
        machines: Machines,
        place: Path,
        database: Path,
        copies: int,
        components: Mapping[str, Sequence[int]],
    ) -> None:
        self.machines, self.place = machines, place
        self.copies = copies  # of each stream
        self.ended: list[Ended] = []
        self.databases = Databases(machines, database, self.ended)
        self.brokers = [
            broker(machines, machine, place / f"broker{machine}", self.ended)
            for machine in range(COUNT)
        ]
        self._make_data()
        self.components = [
            self._component(part, machine)
            for part, where in components.items()
            for machine in where
        ]

    @property
    def programs(self) -> list[Program]:
        return [*self.databases.servers, *self.brokers, *self.components]

    def of(self, part: str) -> list[Program]:
        return [each for each in self.programs if each.name.rstrip("012") == part]

    def data(self, machine: int) -> Path:
        return self.place / f"data{machine}"

    def _make_data(self) -> None:
        """The projectors share one key."""
        for machine in range(COUNT):
            self.data(machine).mkdir()
        Signer.of(self.data(0) / "head.key")
        for machine in (1, 2):
            shutil.copy(self.data(0) / "head.key", self.data(machine))
        (self.place / "token").write_text(TOKEN)
        (self.place / "token").chmod(0o600)

    def environment(self, part: str, machine: int) -> Mapping[str, str]:
        address = address_of(self.machines, _ROLES[part], machine)
        host = self.machines.addresses[machine]
        port = METRICS + 10 * [*_ROLES].index(part)
        return {
            **address.as_settings(),
            "NATS_REPLICAS": str(self.copies),
            "DATABASE_URL": self.databases.url,
            "METRICS_ADDR": f"{host}:{port}",
            "EXTENDER_ADDR": f"{host}:{EXTENDER}",
            "EXTENDER_REPLICA": f"e{machine}",
            "EXTENDER_ALLOW_UNAUTHENTICATED": "true",
            "CONSOLE_ADDR": f"{host}:{CONSOLE}",
            "CONSOLE_TOKEN_FILE": str(self.place / "token"),
            "TWIN_STALENESS_THRESHOLD": "1h",
        }

    def _words(self, part: str, machine: int, *options: str) -> Sequence[str]:
        main = (sys.executable, "-m", "joulie_cli.main", part)
        return (*self.machines.words(machine), *main, *options, "--data", str(self.data(machine)))

    def _component(self, part: str, machine: int) -> Program:
        place = self.data(machine)
        environment = self.environment(part, machine)
        words = self._words(part, machine)
        return Program(Command(f"{part}{machine}", machine, words, environment, place), self.ended)

    async def run(self, part: str, *options: str) -> tuple[int, str]:
        """A command to its end, on the machine that has the keys: its exit code and output."""
        with (self.place / f"{part}.log").open("ab") as log:
            process = await asyncio.create_subprocess_exec(
                *self._words(part, 0, *options),
                env={**os.environ, **self.environment(part, 0)},
                stdout=asyncio.subprocess.PIPE,
                stderr=log,
            )
            out, _ = await process.communicate()
        assert process.returncode is not None
        return process.returncode, out.decode()

    async def until_whole(self) -> None:
        """Returns when the next fault is the only one: nothing is still recovering from the last.

        A connection that was cut for long sends again only after a pause of tens of seconds.
        """
        await self.databases.until_followed()
        await until_copied(self.machines)

    async def checked(self, part: str, *options: str) -> dict[str, object]:
        code, out = await self.run(part, "-o", "json", *options)
        assert code == 0, (part, out, (self.place / f"{part}.log").read_text()[-2000:])
        found: dict[str, object] = json.loads(out)
        return found


@contextlib.asynccontextmanager
async def installed(
    machines: Machines,
    place: Path,
    copies: int = COUNT,
    components: Mapping[str, Sequence[int]] = COMPONENTS,
) -> AsyncGenerator[Installation, None]:
    database = Path(tempfile.mkdtemp(prefix="joulie-pg-"))
    database.chmod(0o755)
    made = Installation(machines, place, database / "servers", copies, components)
    try:
        async with kept([*made.databases.servers, *made.brokers]):
            await made.databases.start()
            async with asyncio.timeout(120):
                while (await made.run("migrate"))[0]:
                    await asyncio.sleep(0.5)
            async with kept(made.components):
                yield made
    finally:
        shutil.rmtree(database, ignore_errors=True)
