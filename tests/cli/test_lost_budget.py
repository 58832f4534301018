"""A power target whose operator or broker is gone: the caps fall to the safe level."""

import asyncio
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import NamedTuple

import pytest

from bus_kit import CLUSTER, connected, node_seen, running_broker
from bus_kit.stamping import Voices
from capped_cluster import CappedCluster, in_thread
from joulie_bus.broker.embedded import Embedded
from joulie_bus.jetstream.log import JetStreamLog
from joulie_bus.streams.roles import Role
from joulie_forked import joulie

pytestmark = [pytest.mark.anyio, pytest.mark.slow, pytest.mark.timeout(300)]
# 700 W of two sockets, of which a target of 500 W leaves 98.5 % of 500: 70 %, or 246 W a socket.
BUDGET = {
    "STATIC_HP_FRAC": "0",
    "CPU_ECO_CAP_PCT_OF_MAX": "90",
    "POLICY_NUMBERS": "power_target_w=500",
    "RECONCILE_INTERVAL": "2s",
}
FULL, PLANNED, SAFE = {350}, {315}, {245}
SHORT = {  # a minute, five seconds and ten, in seconds
    "joulie_agent.caps.service.LEASE_S": 3.0,
    "joulie_agent.caps.service.CHECK_S": 0.5,
    "joulie_operator.apply.cap_orders.REPEAT_S": 0.5,
}


class Site(NamedTuple):
    cluster: CappedCluster
    broker: Embedded

    async def until_limits(self, watts: set[int]) -> None:
        def seen() -> str:
            found = self.cluster.limits_w()
            return f"{found}: {joulie('plans', '--data', self.cluster.data).stdout}"

        await in_thread(lambda: self.cluster.limits_w() == watts, seen)


@pytest.fixture
async def site(tmp_path: Path) -> AsyncGenerator[Site, None]:
    await asyncio.to_thread(joulie, "migrate", "--data", tmp_path / "data")
    async with running_broker(tmp_path / "broker") as broker:
        made = CappedCluster(tmp_path, broker, SHORT)
        async with (
            connected(broker, "nodes", Role.OPERATOR) as connection,
            JetStreamLog.over(connection) as bus,
            made.running(Role.PROJECTOR),
            made.agent(),
        ):
            voices = Voices("nodes", CLUSTER, lambda: 0)
            await bus.publish([voices.stamp(node_seen("n1", caps="enforce"))])
            yield Site(made, broker)


@pytest.mark.long
async def test_the_caps_fall_to_the_safe_level_when_the_operator_is_killed(site: Site) -> None:
    async with site.cluster.writer():
        async with site.cluster.running(Role.OPERATOR, **BUDGET) as operator:
            await site.until_limits(PLANNED)
            operator.kill()
        await site.until_limits(SAFE)
        async with site.cluster.running(Role.OPERATOR, **BUDGET):
            await site.until_limits(PLANNED)
    assert site.cluster.limits_w() == FULL


@pytest.mark.long
async def test_the_caps_fall_to_the_safe_level_when_the_broker_is_gone(site: Site) -> None:
    async with site.cluster.writer(), site.cluster.running(Role.OPERATOR, **BUDGET):
        await site.until_limits(PLANNED)
        await site.broker.stop()
        await site.until_limits(SAFE)
        await site.broker.start()
        await site.until_limits(PLANNED)


async def test_without_a_target_the_limits_are_given_back(site: Site) -> None:
    async with site.cluster.writer():
        async with site.cluster.running(
            Role.OPERATOR, **{**BUDGET, "POLICY_NUMBERS": ""}
        ) as operator:
            await site.until_limits(PLANNED)
            operator.kill()
        await site.until_limits(FULL)
