"""A real kube-apiserver that is stopped for ten minutes of real time."""

import asyncio
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from extender_kit import get
from joulie_operator.resources.custom_resources import NODETWINS
from joulie_process import joulie
from joulie_projections.component.data_directory import DataDirectory
from kube_builders import node
from kube_conditions import NODES
from kube_real import Running

pytestmark = [pytest.mark.anyio, pytest.mark.drill, pytest.mark.timeout(1800)]
PATIENCE_S = 120.0
OUTAGE_S = 600
STOPPED_S = 150  # planning has stopped by then
KINDS = 6
TWIN_WRITTEN = ("patch", "nodetwins")
AS_SHIPPED = {"LEASE_DURATION": "15s", "RECONCILE_INTERVAL": "1m"}


async def specs(server: Running) -> dict[str, Any]:
    return {name: twin["spec"] for name, twin in (await server.all(NODETWINS)).items()}


def supplied(spec: dict[str, Any]) -> tuple[str, int | None]:
    return spec.get("profile", ""), spec.get("cpu", {}).get("packagePowerCapPctOfMax")


async def settled(server: Running, each: int) -> dict[str, Any]:
    """Waits until `each` nodes are performance nodes and `each` are eco, with their caps."""
    wanted = {("performance", 100): each, ("eco", 60): each}
    async with asyncio.timeout(PATIENCE_S):
        while True:
            found = await specs(server)
            if Counter(map(supplied, found.values())) == wanted:
                return found
            await asyncio.sleep(0.2)


async def planning(data: Path) -> tuple[bool, float]:
    """Whether planning is stopped for a reported reason, and the number of plans."""
    directory = DataDirectory(data).running()
    assert directory is not None
    response = await get(int(directory.metrics["operator"].rpartition(":")[2]), "/metrics")
    families = text_string_to_metric_families(response.body.decode())
    samples = [sample for family in families for sample in family.samples]
    stopped = any(s.value for s in samples if s.name == "joulie_plans_stopped")
    return stopped, sum(s.value for s in samples if s.name == "joulie_plans_total")


@pytest.mark.parametrize("server", ["real"], indirect=True)
async def test_an_outage_of_ten_minutes_stops_plans_and_ends_without_a_burst_of_requests(
    server: Running, tmp_path: Path
) -> None:
    data = tmp_path / "data"
    operator = server.kubeconfig("operator")
    async with joulie("up", operator, data, PATIENCE_S, **AS_SHIPPED) as process:
        before = await settled(server, 2)
        asked = len(server.asked())
        async with server.gone():
            await asyncio.sleep(STOPPED_S)
            early = await planning(data)
            await asyncio.sleep(OUTAGE_S - STOPPED_S)
            late = await planning(data)
            assert process.returncode is None
        assert await specs(server) == before
        await server.put(NODES, *(node(f"n{number}") for number in range(4, 8)))
        await settled(server, 4)
        assert not (await planning(data))[0]
    assert process.returncode == 0

    assert (early[0], late) == (True, early), "planning is stopped, with a reason"
    again = [(each["verb"], each["objectRef"]) for each in server.asked()[asked:]]
    whole = [about["resource"] for verb, about in again if verb in ("list", "watch")]
    assert len(whole) <= 2 * KINDS, "one list per kind, and one retry"
    written = Counter(
        about["name"] for verb, about in again if (verb, about["resource"]) == TWIN_WRITTEN
    )
    stay = {name for name, spec in before.items() if spec["profile"] == "performance"}
    assert not stay & written.keys(), "objects that are up to date are not written"
    assert max(written.values()) <= 4, "class and caps, each in spec and status"
