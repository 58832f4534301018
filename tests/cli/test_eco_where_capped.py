"""PRESET=savings from end to end: a node is eco while a writer on it can set its caps."""

import asyncio
from collections.abc import AsyncGenerator
from pathlib import Path

import pytest

from bus_kit import CLUSTER, connected, node_seen, running_broker
from bus_kit.stamping import Voices
from capped_cluster import CappedCluster, in_thread
from joulie_bus.jetstream.log import JetStreamLog
from joulie_bus.streams.roles import Role
from joulie_forked import joulie

pytestmark = [pytest.mark.anyio, pytest.mark.slow, pytest.mark.timeout(300)]
SAVINGS = {"PRESET": "savings", "POLICY_TYPE": "static_partition", "STATIC_HP_FRAC": "0"}
SHORT = {  # three minutes and one, in seconds
    "joulie_operator.planning.power.consent.SIGN_OF_LIFE_S": 6.0,
    "joulie_agent.caps.service.REPEAT_S": 1.0,
    "joulie_agent.caps.service.CHECK_S": 0.5,
}


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncGenerator[CappedCluster, None]:
    """Two nodes that agreed to caps; n1 has an agent that found its hardware."""
    await asyncio.to_thread(joulie, "migrate", "--data", tmp_path / "data")
    async with running_broker(tmp_path / "broker") as broker:
        made = CappedCluster(tmp_path, broker, SHORT)
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


@pytest.mark.long
async def test_a_node_is_eco_while_its_writer_runs(cluster: CappedCluster) -> None:
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


@pytest.mark.long
async def test_a_node_leaves_eco_when_its_writer_was_killed(cluster: CappedCluster) -> None:
    async with cluster.writer() as killed:
        await cluster.until(n1="eco")
        killed.kill()
        await cluster.until(n1="performance")
    async with cluster.writer():  # the next life
        await cluster.until(n1="eco")
