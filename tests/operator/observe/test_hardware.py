"""From objects of the cluster to watts: the hardware of a node, by every source."""

from typing import Any

import msgspec
import numpy as np
import pytest

from bus_kit import NOON
from joulie_bus.events import HardwareDiscovered, PodAsk
from joulie_operator.facts.facts_from_objects import Node, NodeKind, PodKind
from joulie_operator.facts.hardware_inventory import HardwareKind, LabelledHardwareKind
from joulie_operator.resources.custom_resources import NodeHardware
from joulie_projections.catalog_file import shipped_catalog
from joulie_projections.fold.registry import evolve
from joulie_projections.hardware.catalog import EMPTY, Catalog
from joulie_projections.pods.demand import ask_of
from joulie_projections.pods.kubernetes_pod import Pod
from joulie_projections.state.state import ClusterState, NodeState
from joulie_projections.state.state_changes import Draft
from joulie_projections.twin.power import Coefficients, Rated, marginal_w
from joulie_projections.twin.twin import Hardware, hardware_of

CATALOG = shipped_catalog()
EPYC = {"joulie.io/hw.cpu-model": "AMD EPYC 9654"}
MODEL, PRODUCT, GFD = "joulie.io/hw.gpu-model", "joulie.io/gpu.product", "nvidia.com/gpu.product"


def node(labels: dict[str, str] | None = None, **allocatable: object) -> Node:
    """Resources by their names, with `_` for `/`."""
    named = {name.replace("_", "/", 1): str(count) for name, count in allocatable.items()}
    status = {"allocatable": {"cpu": "64"} | named}
    return msgspec.convert({"metadata": {"name": "n", "labels": labels}, "status": status}, Node)


def with_gpus(resources: dict[str, int], labels: dict[str, str] | None = None) -> Node:
    return node(labels, **{name.replace("/", "_", 1): count for name, count in resources.items()})


def described(**status: object) -> NodeHardware:
    described_by = {"metadata": {"name": "n"}, "spec": {"nodeName": "n"}, "status": status}
    return msgspec.convert(described_by, NodeHardware)


def state_of(
    seen: Node, described_by: NodeHardware | None = None, catalog: Catalog = CATALOG
) -> NodeState:
    """The state of the node after all facts."""
    draft = Draft(cluster_state := ClusterState())
    hardware = LabelledHardwareKind(catalog, {}).fact(seen)
    found = HardwareKind(catalog).fact(described_by) if described_by is not None else None
    for fact in (NodeKind().fact(seen), hardware, found):
        if fact is not None:
            evolve(draft, fact, NOON)
    draft.commit()
    return cluster_state.nodes["n"]


def hardware(seen: Node, **parts: Any) -> Hardware:
    return hardware_of(state_of(seen, **parts))


def marginal(wants: dict[str, str], on: Hardware) -> float:
    """Watts of a standard pod."""
    manifest = {"spec": {"containers": [{"name": "c", "resources": {"limits": wants}}]}}
    parts = (np.array([value]) for value in (on.cores, on.cpu_max_w, on.gpus, on.gpu_max_w))
    rated = Rated(*parts)
    return float(marginal_w(ask_of(msgspec.convert(manifest, Pod)), rated, Coefficients())[0])


# --- vendors ----------------------------------------------------------------------------------

AMD_GPU = {"present": True, "count": 1, "model": "Instinct Unheard-of"}


@pytest.mark.parametrize(
    ("seen", "described_by"),
    [
        (with_gpus({"amd.com/gpu": 1}), None),
        (with_gpus({"amd.com/gpu": 1}), described(cpu={"totalCores": 64}, gpu={"count": 1})),
        (with_gpus({}), described(cpu={"totalCores": 64}, gpu=AMD_GPU | {"vendor": "AMD"})),
        (with_gpus({}), described(cpu={"totalCores": 64}, gpu=AMD_GPU)),
        (
            with_gpus({}),
            described(
                cpu={"totalCores": 64},
                gpu={"count": 1, "vendor": "Advanced Micro Devices, Inc.", "model": "X"},
            ),
        ),
        (with_gpus({"amd.com/gpu": 1}, {"joulie.io/hw.cpu-sockets": "1"}), None),
    ],
    ids=["resource", "resource and no model", "vendor", "model", "vendor in full", "labels"],
)
def test_an_unknown_amd_card_has_the_default_watts_of_amd(
    seen: Node, described_by: NodeHardware | None
) -> None:
    wants = {"cpu": "2", "amd.com/gpu": "1"}
    on = hardware(seen, described_by=described_by)

    # 2 of 64 cores at max(150, 64 x 3.5) W, and a card of 400 W
    assert marginal(wants, on) == pytest.approx(0.7 * 2 / 64 * 224 + 0.65 * 400)


@pytest.mark.parametrize("resource", ["nvidia.com/gpu", "gpu.intel.com/i915"])
def test_unknown_cards_of_other_vendors_have_their_own_default(resource: str) -> None:
    assert hardware(with_gpus({resource: 1})).gpu_max_w == 350


# --- labels -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("labels", "watts"),
    [
        ({GFD: "NVIDIA-H100-80GB-HBM3"}, 700),
        ({GFD: "NVIDIA-H100-80GB-HBM3-SHARED"}, 700),
        ({MODEL: "", PRODUCT: "NVIDIA-H100-80GB-HBM3"}, 700),
        ({MODEL: "  ", PRODUCT: "", GFD: "NVIDIA-H100-80GB-HBM3"}, 700),
        ({MODEL: "NVIDIA-L4", GFD: "NVIDIA-H100-80GB-HBM3"}, 72),
        ({"amd.com/gpu.product-name": "AMD_Instinct_MI300X_OAM"}, 750),
        ({"beta.amd.com/gpu.product-name": "AMD_Instinct_MI210"}, 300),
        ({"gpu.intel.com/product": "Max_1550"}, 600),
    ],
)
def test_the_first_label_with_a_value_names_the_card(labels: dict[str, str], watts: int) -> None:
    assert hardware(with_gpus({"nvidia.com/gpu": 8}, labels)).gpu_max_w == watts


def test_sockets_and_cards_of_labels_count_without_a_model() -> None:
    labels = {"joulie.io/hw.cpu-sockets": "2", "joulie.io/hw.gpu-count": "4"}
    found = LabelledHardwareKind(CATALOG, {}).fact(with_gpus({}, labels))

    assert found is not None
    assert (found.cpu_sockets, found.gpu_count) == (2, 4)
    assert hardware(with_gpus({}, labels)).gpus == 4


def test_labels_without_a_value_are_ignored() -> None:
    empty = {"joulie.io/hw.cpu-model": "", MODEL: "", "joulie.io/hw.cpu-sockets": ""}

    assert LabelledHardwareKind(CATALOG, {}).fact(with_gpus({}, empty)) is None


def test_values_that_an_agent_leaves_out_come_from_allocatable_resources() -> None:
    described_by = described(cpu={"model": "Abacus", "sockets": 2})

    found = hardware(with_gpus({"nvidia.com/gpu": 8}), described_by=described_by)

    assert (found.cores, found.cpu_max_w, found.gpus, found.gpu_max_w) == (64, 224, 8, 350)


def test_an_agent_may_report_only_cards() -> None:
    described_by = described(gpu={"present": True, "count": 4, "model": "NVIDIA L4"})

    found = hardware(with_gpus({"nvidia.com/gpu": 4}), described_by=described_by)

    assert (found.cores, found.gpus, found.gpu_max_w) == (64, 4, 72)


def test_the_raw_model_is_used_if_the_catalog_does_not_know_the_normalized_one() -> None:
    described_by = described(
        cpu={"model": "genoa", "rawModel": "AMD EPYC 9654 96-Core", "sockets": 2}
    )

    assert hardware(node(), described_by=described_by).cpu_max_w == 720


# --- SMT --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("cpus", "labels", "sockets", "watts"),
    [
        ("384", {}, 2, 720),
        ("380", {}, 2, 720),
        ("192", {}, 1, 360),
        ("8", {}, 1, 360),
        ("192", {"joulie.io/hw.cpu-sockets": "2"}, 2, 720),
        ("192", {"joulie.io/hw.cpu-sockets": "many"}, 1, 360),
        ("288", {"joulie.io/hw.cpu-model": "Intel Xeon 6780E"}, 2, 660),
    ],
    ids=["two", "two, a little reserved", "one", "a part", "no SMT", "unreadable", "E-cores"],
)
def test_sockets_are_computed_from_threads_unless_a_label_sets_them(
    cpus: str, labels: dict[str, str], sockets: int, watts: int
) -> None:
    seen = node(EPYC | labels, cpu=cpus)
    found = LabelledHardwareKind(CATALOG, {}).fact(seen)

    assert found is not None
    assert found.cpu_sockets == sockets
    assert hardware(seen).cpu_max_w == watts


# --- slices and shares ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("resources", "labels", "cards"),
    [
        ({"nvidia.com/mig-1g.5gb": 56}, {}, 8),
        ({"nvidia.com/mig-1g.5gb": 56}, {GFD: "NVIDIA-A100-SXM4-40GB"}, 8),
        ({"nvidia.com/mig-1g.10gb": 56}, {}, 8),
        ({"nvidia.com/mig-1g.10gb": 16}, {GFD: "NVIDIA-A100-SXM4-40GB"}, 4),
        ({"nvidia.com/mig-3g.20gb": 16}, {}, 8),
        ({"nvidia.com/mig-3g.20gb": 4, "nvidia.com/mig-2g.10gb": 4}, {}, 3),
        ({"nvidia.com/mig-1g.6gb": 8}, {}, 2),
        ({"nvidia.com/mig-4g.24gb": 2}, {}, 2),
        ({"nvidia.com/mig-1g.10gb.me": 1, "nvidia.com/mig-1g.10gb": 6}, {}, 1),
        ({"nvidia.com/mig-1c.3g.20gb": 6}, {}, 1),
        ({"nvidia.com/gpu": 4, "nvidia.com/mig-7g.80gb": 4}, {}, 8),
        (
            {"nvidia.com/mig-3g.20gb": 8},
            {GFD: "NVIDIA-A100-SXM4-40GB", "nvidia.com/gpu.count": "8"},
            8,
        ),
    ],
)
def test_the_cards_behind_slices_are_counted(
    resources: dict[str, int], labels: dict[str, str], cards: int
) -> None:
    assert NodeKind().fact(with_gpus(resources, labels)).gpus == cards


def test_a_slice_draws_its_share_of_a_card() -> None:
    labels = {GFD: "NVIDIA-A100-SXM4-40GB"}
    on = hardware(with_gpus({"nvidia.com/mig-1g.5gb": 56}, labels))

    watts = marginal({"cpu": "1", "nvidia.com/mig-1g.5gb": "1"}, on)

    assert (on.gpus, on.gpu_max_w) == (8, 400)
    assert watts == pytest.approx(0.7 / 64 * 224 + 0.65 * 0.143 * 400)


@pytest.mark.parametrize(
    ("labels", "described_by"),
    [
        ({GFD: "NVIDIA-A100-SXM4-40GB-MIG-1g.5gb"}, None),
        ({}, described(gpu={"count": 8, "model": "NVIDIA A100-SXM4-40GB"})),
    ],
    ids=["by the product", "by the agent"],
)
def test_a_pod_on_a_node_of_slices_draws_the_watts_of_a_slice(
    labels: dict[str, str], described_by: NodeHardware | None
) -> None:
    """The strategy `single` of the device plugin: nvidia.com/gpu counts slices."""
    on = hardware(with_gpus({"nvidia.com/gpu": 56}, labels), described_by=described_by)

    assert on.gpus * on.gpu_max_w == pytest.approx(8 * 400)
    assert on.cards == 8
    assert marginal({"cpu": "1", "nvidia.com/gpu": "7"}, on) == pytest.approx(
        0.7 / 64 * 224 + 0.65 * 400
    )


def test_time_sliced_cards_are_counted_once() -> None:
    labels = {GFD: "NVIDIA-L4-SHARED", "nvidia.com/gpu.replicas": "4"}
    seen = with_gpus({"nvidia.com/gpu": 16}, labels)

    assert (NodeKind().fact(seen).gpus, hardware(seen).cards) == (4, 4)
    assert hardware(seen).gpu_max_w == pytest.approx(72 / 4)


# --- other resources --------------------------------------------------------------------------


def test_the_setting_of_gpu_resources_applies_to_nodes_and_pods() -> None:
    names = ("nvidia.com/gpu", "vendor.example/gpu")
    wants = {"limits": {"vendor.example/gpu": "3"}}
    pod = msgspec.convert(
        {"metadata": {"uid": "u"}, "spec": {"containers": [{"name": "c", "resources": wants}]}}, Pod
    )
    ask = PodKind(resources=names).fact(pod).pod  # type: ignore[union-attr]

    assert NodeKind(names).fact(with_gpus({"vendor.example/gpu": 3})).gpus == 3
    assert NodeKind().fact(with_gpus({"vendor.example/gpu": 3})).gpus == 0
    assert isinstance(ask, PodAsk)
    assert (ask.gpu_milli, ask.gpu_cards) == (3000, 3)


# --- without a catalog ------------------------------------------------------------------------


def test_a_model_outside_the_catalog_keeps_its_name_and_gets_defaults() -> None:
    found = LabelledHardwareKind(EMPTY, {}).fact(
        with_gpus({"amd.com/gpu": 2}, {MODEL: "Instinct MI9"})
    )

    assert isinstance(found, HardwareDiscovered)
    assert (found.gpu_model, found.gpu_vendor, found.gpu_count) == ("Instinct MI9", "amd", 2)
