"""PRESET=savings from end to end: a node is eco while a writer on it can set its caps."""

import asyncio
import contextlib
import json
import os
from collections.abc import AsyncGenerator, Callable
from pathlib import Path
from typing import Any

import pytest

import host_trees
from joulie_bus.broker.embedded import Embedded
from joulie_bus.jetstream.log import JetStreamLog
from joulie_bus.runtime.ports import free_port
from joulie_bus.streams.roles import Role
from joulie_bus.testing import CLUSTER, connected, node_seen, running_broker
from joulie_bus.testing.stamping import Voices
from joulie_forked import Command, joulie

pytestmark = [pytest.mark.anyio, pytest.mark.slow, pytest.mark.timeout(300)]
PATIENCE_S = 90.0
SAVINGS = {"PRESET": "savings", "POLICY_TYPE": "static_partition", "STATIC_HP_FRAC": "0"}
SHORT = {  # three minutes and one, in seconds
    "joulie_operator.planning.power.consent.SIGN_OF_LIFE_S": 6.0,
    "joulie_agent.caps.service.REPEAT_S": 1.0,
    "joulie_agent.caps.service.CHECK_S": 0.5,
}


class Cluster:
    """A broker and a data directory, in which components run as processes."""

    def __init__(self, path: Path, broker: Embedded) -> None:
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
            "NATS_URL": address.url,
            "NATS_USER": address.user,
            "NATS_PASSWORD": address.password,
            "NATS_INBOX": address.inbox,
            "METRICS_ADDR": f"127.0.0.1:{free_port()}",
            **settings,
        }
        told = [str(role), "--data", self.data, *words]
        command = Command(told, environ, kept, constants=SHORT)
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
        return {int(file.read_text()) // 1_000_000 for file in files}

    def twin(self, node: str) -> dict[str, Any]:
        """Empty before anything is known."""
        said = joulie("twin", node, "--json", "--data", self.data)
        found: dict[str, Any] = json.loads(said.stdout)["twin"] if said.returncode == 0 else {}
        return found

    async def until(self, **classes: str) -> None:
        def met() -> bool:
            return all(self.twin(node).get("node_class") == of for node, of in classes.items())

        await in_thread(met, lambda: f"{classes}: {joulie('plans', '--data', self.data).stdout}")


async def in_thread(condition: Callable[[], bool], what: Callable[[], str] = str) -> None:
    try:
        async with asyncio.timeout(PATIENCE_S):
            while not await asyncio.to_thread(condition):
                await asyncio.sleep(0.2)
    except TimeoutError:
        pytest.fail(await asyncio.to_thread(what))


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncGenerator[Cluster, None]:
    """Two nodes that agreed to caps; n1 has an agent that found its hardware."""
    await asyncio.to_thread(joulie, "migrate", "--data", tmp_path / "data")
    async with running_broker(tmp_path / "broker") as broker:
        made = Cluster(tmp_path, broker)
        async with (
            connected(broker, "nodes", Role.OPERATOR) as connection,
            JetStreamLog.over(connection) as bus,
            made.running(Role.PROJECTOR),
            made.running(Role.OPERATOR, **SAVINGS),
            made.agent(),
        ):
            voices = Voices("nodes", CLUSTER, lambda: 0)
            seen = [node_seen(name, caps="enforce") for name in ("n1", "n2")]
            await bus.publish([voices.stamp(each) for each in seen])
            yield made


async def test_a_node_is_eco_while_its_writer_runs(cluster: Cluster) -> None:
    await cluster.until(n1="performance", n2="performance")
    async with cluster.writer():
        await cluster.until(n1="eco", n2="performance")
        await in_thread(lambda: cluster.limits_w() == {210})
        text = joulie("twin", "n1", "--data", cluster.data).stdout
    assert cluster.limits_w() == {350}  # given back by the time that the writer has ended
    await cluster.until(n1="performance", n2="performance")

    assert "can cap    CPU, reported" in text
    gone = joulie("twin", "n1", "--data", cluster.data).stdout
    assert "can cap    nothing" in gone
    assert "the writer has ended" in gone
    never = joulie("twin", "n2", "--data", cluster.data).stdout
    assert "no writer has reported" in never


async def test_a_node_leaves_eco_when_its_writer_was_killed(cluster: Cluster) -> None:
    async with cluster.writer() as killed:
        await cluster.until(n1="eco")
        killed.kill()
        await cluster.until(n1="performance")
    async with cluster.writer():  # the next life
        await cluster.until(n1="eco")
