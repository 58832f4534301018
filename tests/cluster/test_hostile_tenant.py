"""A tenant that creates objects at the ends of what a real kube-apiserver accepts."""

import asyncio
from pathlib import Path

import pytest

from hostile import HostileTenant
from joulie_cli.data import DataDirectory
from joulie_demo import told_by
from joulie_process import joulie
from joulie_projections.history import History
from kube_builders import pod
from kube_real import Running
from kube_seen import PATIENCE_S, PODS, are, so

ONLY_REAL = pytest.mark.parametrize("server", ["real"], indirect=True)


@pytest.mark.anyio
@pytest.mark.parametrize(
    "seconds",
    [
        pytest.param(20.0, marks=pytest.mark.timeout(300)),
        pytest.param(600.0, marks=[pytest.mark.drill, pytest.mark.timeout(1800)]),
    ],
)
@ONLY_REAL
async def test_a_hostile_tenant_stops_no_part_and_the_log_replays(
    server: Running, tmp_path: Path, seconds: float
) -> None:
    data = DataDirectory(tmp_path / "data")
    tenant = HostileTenant(server, seed=1)
    async with joulie("up", server.kubeconfig("operator"), data.path, PATIENCE_S):
        await so(are(server, performance=2, eco=2))
        attack = asyncio.create_task(tenant.run())
        await asyncio.sleep(seconds)
        attack.cancel()
        honest = pod("honest", namespace="default") | {"kind": "Pod"}
        honest["spec"] = {"nodeName": "n1", "containers": [{"name": "c", "image": "none"}]}
        await server.put(PODS, honest)
        await so(lambda: asyncio.to_thread(is_known, data, "honest"))
        found = data.running()
        assert found is not None
        restarts = dict(found.restarts)

    assert sum(tenant.attempts.values()) > seconds
    assert restarts == dict.fromkeys(restarts, 0)
    code, again = await asyncio.to_thread(told_by, "replay", "--data", data.path)
    assert (code, again["mismatches"]) == (0, 0)


def is_known(data: DataDirectory, name: str) -> bool:
    with History.of(data.database) as history:
        return any(state.pod.name == name and state.node for state in history.world().pods.values())
