"""A hostile tenant of a real kube-apiserver, a hostile agent and hostile clients, concurrently."""

import asyncio
import contextlib
from collections.abc import AsyncGenerator
from pathlib import Path

import pytest

from hostile import Attacker, HostileAgent, HostileClient, HostileTenant, attacking
from joulie_bus.broker.embedded import address_within
from joulie_bus.jetstream.connection import Connection
from joulie_bus.streams.roles import Role
from joulie_bus.streams.subjects import Subjects
from joulie_demo import told_by
from joulie_process import joulie
from joulie_projections.component.data_directory import DataDirectory
from joulie_projections.history.history import History
from kube_builders import pod
from kube_conditions import PODS, TIMEOUT_S, profiles_are, wait_until
from kube_real import Running

ONLY_REAL = pytest.mark.parametrize("server", ["real"], indirect=True)


@contextlib.asynccontextmanager
async def attacked(server: Running, data: DataDirectory) -> AsyncGenerator[list[Attacker], None]:
    found = data.running()
    assert found is not None
    connection = await Connection.open(
        address_within(data.path, found.nats_url, Role.AGENT), "hostile"
    )
    doors = {name: url.removeprefix("http://") for name, url in found.endpoints.items()}
    attackers: list[Attacker] = [
        HostileTenant(server, seed=1),
        HostileAgent(connection, Subjects("local"), "hostile-node", ["n0", "n1"], seed=2),
        HostileClient(doors["extender"], ["/filter", "/prioritize", "/bind"], seed=3),
        HostileClient(doors["console"], ["/", "/v1/nodes", "/v1/stream"], seed=4),
    ]
    try:
        async with attacking(attackers):
            yield attackers
    finally:
        await connection.close()


@pytest.mark.anyio
@pytest.mark.parametrize(
    "seconds",
    [
        pytest.param(8.0, marks=pytest.mark.timeout(300)),
        pytest.param(600.0, marks=[pytest.mark.drill, pytest.mark.timeout(1800)]),
    ],
)
@ONLY_REAL
async def test_attackers_stop_no_component_and_the_log_replays(
    server: Running, tmp_path: Path, seconds: float
) -> None:
    data = DataDirectory(tmp_path / "data")
    async with joulie("up", server.kubeconfig("operator"), data.path, TIMEOUT_S):
        await wait_until(profiles_are(server, performance=2, eco=2))
        async with attacked(server, data) as attackers:
            await asyncio.sleep(seconds)
        honest = pod("honest", namespace="default") | {"kind": "Pod"}
        honest["spec"] = {"nodeName": "n1", "containers": [{"name": "c", "image": "none"}]}
        await server.put(PODS, honest)
        await wait_until(lambda: asyncio.to_thread(is_known, data, "honest"))
        found = data.running()
        assert found is not None
        restarts = dict(found.restarts)

    for attacker in attackers:
        assert sum(attacker.attempts.values()) > seconds
    accepted = attackers[0].attempts
    assert accepted["Pod"] > seconds / 2, accepted
    assert accepted["Node"] > 0, accepted
    assert restarts == dict.fromkeys(restarts, 0)
    code, again = await asyncio.to_thread(told_by, "replay", "--data", data.path)
    assert (code, again["mismatches"]) == (0, 0)


def is_known(data: DataDirectory, name: str) -> bool:
    with History.of(data.database) as history:
        return any(
            state.pod.name == name and state.node for state in history.cluster_state().pods.values()
        )
