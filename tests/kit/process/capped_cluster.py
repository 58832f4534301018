"""Nodes with agents and writers of caps, whose components run as processes."""

import asyncio
import contextlib
import json
import os
from collections.abc import AsyncGenerator, Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

import host_trees
from bus_kit import CLUSTER
from joulie_bus.broker.embedded import Embedded
from joulie_bus.runtime.ports import free_port
from joulie_bus.streams.roles import Role
from joulie_forked import Command, joulie

PATIENCE_S = 90.0


class CappedCluster:
    """A broker and a data directory, in which components run as processes."""

    def __init__(self, path: Path, broker: Embedded, constants: Mapping[str, object]) -> None:
        """`constants` replaces constants of modules, such as how long an order holds."""
        self._constants = constants
        self.data, self.host = path / "data", host_trees.xeon(path / "host")
        self._path, self._broker = path, broker

    @contextlib.asynccontextmanager
    async def running(
        self, role: Role, *words: str | Path, **settings: str
    ) -> AsyncGenerator[Command, None]:
        kept = self._path / f"kept-{free_port()}"
        kept.mkdir()
        address = self._broker.address_of(role)
        environ = {
            **os.environ,
            "JOULIE_CLUSTER": CLUSTER.cluster,
            **address.as_settings(),
            "METRICS_ADDR": f"127.0.0.1:{free_port()}",
            **settings,
        }
        told = [str(role), "--data", self.data, *words]
        command = Command(told, environ, kept, constants=self._constants)
        try:
            yield command
        finally:
            await asyncio.to_thread(command.stop)

    def agent(self, *words: str) -> contextlib.AbstractAsyncContextManager[Command]:
        return self.running(Role.AGENT, "--node", "n1", "--host-root", self.host, *words)

    def writer(self) -> contextlib.AbstractAsyncContextManager[Command]:
        return self.agent("--caps", "--limits", str(self._path / "limits.json"))

    def limits_w(self) -> set[int]:
        files = self.host.glob("sys/class/powercap/intel-rapl:?/constraint_0_power_limit_uw")
        written = (file.read_text() for file in files)
        # A file of the tree is empty while it is written, which one of the kernel never is.
        return {int(text) // 1_000_000 for text in written if text}

    def twin(self, node: str) -> dict[str, Any]:
        """Empty before anything is known."""
        said = joulie("twin", node, "-o", "json", "--data", self.data)
        found: dict[str, Any] = json.loads(said.stdout)["node"] if said.returncode == 0 else {}
        return found

    async def until(self, **classes: str) -> None:
        def met() -> bool:
            return all(self.twin(node).get("class") == of for node, of in classes.items())

        await in_thread(met, lambda: f"{classes}: {joulie('plans', '--data', self.data).stdout}")


async def in_thread(condition: Callable[[], bool], what: Callable[[], str] = str) -> None:
    try:
        async with asyncio.timeout(PATIENCE_S):
            while not await asyncio.to_thread(condition):
                await asyncio.sleep(0.2)
    except TimeoutError:
        pytest.fail(await asyncio.to_thread(what))
