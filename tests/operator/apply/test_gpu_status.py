"""GPU resources report the claims of their cards; resources of other managers are left alone."""

import contextlib
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

import bus_kit
from bus_kit import CLUSTER, claim, confirmed, noon, producer, released
from bus_kit import card as shown
from joulie_bus.events import Fact
from joulie_bus.jetstream.log import JetStreamLog
from joulie_bus.runtime.tasks import background
from joulie_operator.apply.gpu_status import GpuStatusWriter
from joulie_operator.kube.api_client import ApiServer as Api
from joulie_operator.observe.watch import ObservedCluster, watch_cluster
from joulie_operator.resources.custom_resources import (
    MANAGER,
    Gpu,
    GpuSpec,
    GpuStatus,
    ManagedFields,
    ObjectMeta,
)
from joulie_operator.resources.gpu_objects import FREE, RepeatedWrites, StatusWrite, status_write_of
from joulie_projections.fold.registry import evolve
from joulie_projections.state.cards import CardState
from joulie_projections.state.state import ClusterState
from joulie_projections.state.state_changes import Draft
from joulie_projections.view.view import View
from kube_api import ApiServer
from kube_builders import card, joulie_server, node

pytestmark = pytest.mark.anyio
PATIENCE_S = 120
TAKEN = GpuStatus(
    allocated_vram_mb=20_000,
    pod_namespace="team",
    pod_name="a",
    pod_uid="a",
    phase="Reserved",
)


def folded(*facts: Fact) -> CardState | None:
    draft = Draft(cluster_state := ClusterState())
    for number, fact in enumerate((shown("G"), *facts)):
        evolve(draft, fact, noon(number))
    draft.commit()
    return cluster_state.gpus.get("G")


def gpu(status: GpuStatus | None = None, manager: str = "another") -> Gpu:
    managed = [ManagedFields(manager=manager)]
    meta = ObjectMeta(name="g", managed_fields=managed)
    return Gpu(metadata=meta, spec=GpuSpec(node_name="n1", uuid="G"), status=status)


@pytest.mark.parametrize(
    ("facts", "expected"),
    [
        ([claim("G", "a")], TAKEN),
        ([claim("G", "a"), confirmed("G", "a")], replace(TAKEN, phase="Allocated")),
        ([claim("G", "b"), claim("G", "a")], replace(TAKEN, allocated_vram_mb=40_000)),
    ],
    ids=["claimed", "confirmed", "shared"],
)
async def test_a_claimed_card_names_its_pod(facts: list[Fact], expected: GpuStatus) -> None:
    assert status_write_of(gpu(), folded(*facts)) == StatusWrite("g", expected)


@pytest.mark.parametrize(
    ("seen", "facts"),
    [
        (gpu(), []),
        (gpu(replace(TAKEN, phase="Allocated")), []),
        (gpu(FREE, MANAGER), []),
        (gpu(TAKEN), [claim("G", "a")]),
        (gpu(replace(TAKEN, healthy=False)), [claim("G", "a")]),
        (gpu(replace(TAKEN, pod_uid="")), [claim("G", "a")]),
    ],
    ids=[
        "free",
        "allocated by another manager",
        "written as free already",
        "written already",
        "only the health differs",
        "the CRD has no field for the uid",
    ],
)
async def test_a_status_that_is_up_to_date_is_not_written(seen: Gpu, facts: list[Fact]) -> None:
    assert status_write_of(seen, folded(*facts)) is None


@pytest.mark.parametrize("card", [folded(), None], ids=["released", "unknown"])
async def test_a_status_of_the_operator_is_cleared_with_the_last_claim(
    card: CardState | None,
) -> None:
    assert status_write_of(gpu(TAKEN, MANAGER), card) == StatusWrite("g", FREE)


async def test_another_writer_is_overwritten_with_growing_backoff() -> None:
    truces, write = RepeatedWrites(), StatusWrite("g", TAKEN)
    let = [second for second in range(20) if truces.allows(write, second)]

    assert let == [0, 2, 6, 14]
    assert truces.allows(StatusWrite("g", FREE), 15), "another status does not wait"


# --- against an API server --------------------------------------------------------------------


@contextlib.asynccontextmanager
async def writing(
    server: ApiServer, bus: JetStreamLog, view: View, tmp: Path
) -> AsyncGenerator[None, None]:
    cluster = ObservedCluster.empty()
    async with (
        server.listening(),
        Api.of(server.kubeconfig(tmp)) as api,
        background(watch_cluster(api, bus, CLUSTER, view, cluster), "watch"),
        background(GpuStatusWriter(api, view, cluster, 10).run(), "cards"),
    ):
        await bus_kit.until(lambda: len(view.cluster_state.gpus) == 2, PATIENCE_S)
        yield


async def test_claims_are_written_and_cleared_and_other_cards_left_alone(
    bus: JetStreamLog, view: View, tmp_path: Path
) -> None:
    server, says = joulie_server(), producer("extender")
    server.put("nodes", node("n1", gpus=2))
    for uuid in ("GPU-1", "GPU-2"):
        server.put("gpus", card(uuid, "n1"))

    def status(name: str = "gpu-1") -> dict[str, Any]:
        found: dict[str, Any] = server.all("gpus")[name]["status"]
        return found

    async def tell(*facts: Fact) -> None:
        await bus.publish([says.stamp(fact) for fact in facts])

    async with writing(server, bus, view, tmp_path):
        await tell(claim("GPU-1", "p1"))
        await bus_kit.until(lambda: status()["phase"] == "Reserved", PATIENCE_S)
        taken = status()
        server.put("gpus", card("GPU-1", "n1"))  # another writer ignores the claim
        await tell(confirmed("GPU-1", "p1"))
        await bus_kit.until(lambda: status()["phase"] == "Allocated", PATIENCE_S)
        await tell(released("GPU-1", "p1"))
        await bus_kit.until(lambda: "podUID" not in status(), PATIENCE_S)

    assert (taken["allocatedVRAMmb"], taken["podUID"]) == (20_000, "p1")
    assert [asked.name for asked in server.writes() if asked.name != "gpu-1"] == []
