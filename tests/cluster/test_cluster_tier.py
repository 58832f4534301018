"""The operator with a real kube-apiserver, if available, and with the stand-in, which checks the
test itself.
"""

from pathlib import Path

import pytest

from joulie_operator.resources.custom_resources import NODETWINS
from joulie_process import joulie
from kube_builders import node
from kube_conditions import NODES, TIMEOUT_S, has_twins, profiles_are, wait_until
from kube_real import Running

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(600)]


@pytest.mark.long
async def test_from_nodes_to_applied_twins_and_back(server: Running, tmp_path: Path) -> None:
    operator = server.kubeconfig("operator")
    async with joulie("up", operator, tmp_path / "data", TIMEOUT_S) as process:
        await wait_until(profiles_are(server, performance=2, eco=2))
        await server.put(NODES, node("n4"), node("n5"))
        await wait_until(profiles_are(server, performance=3, eco=3))
        await server.api.delete(f"{NODES}/n5")
        await wait_until(profiles_are(server, performance=3, eco=2))
        await wait_until(has_twins(server, "n0", "n1", "n2", "n3", "n4"))
    assert process.returncode == 0

    twins = await server.all(NODETWINS)
    generations = {
        (twin["status"]["observedGeneration"], twin["metadata"]["generation"])
        for twin in twins.values()
    }
    assert all(observed == generation for observed, generation in generations)
