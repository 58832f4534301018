"""Hardware: the agent's word, else the labels', with the catalog's figures where they have none."""

import msgspec
import pytest
from msgspec.structs import replace

from joulie_bus.events import Fact, HardwareDiscovered
from joulie_bus.testing import hardware, node_seen, noon
from joulie_operator.kube.custom_resources import NodeHardware
from joulie_operator.observe.facts_from_objects import ChangeFilter, Node
from joulie_operator.observe.hardware_inventory import (
    HardwareKind,
    LabelledHardwareKind,
    hardware_filters,
)
from joulie_projections.fold.registry import evolve
from joulie_projections.hardware.catalog import EMPTY, Catalog, parsed
from joulie_projections.state.state import ClusterState
from joulie_projections.state.state_changes import Draft

CATALOG: Catalog = parsed(
    b"""
[[cpu]]
model = "AMD EPYC 9654"
source = "a book"
tdp_w = 360
cores = 96
[[gpu]]
model = "NVIDIA L40S"
source = "a book"
tdp_w = 350
cap_w = [200, 350]
memory_gb = 48
""",
    "a test",
)
BY_LABELS = HardwareDiscovered(
    node="n",
    cpu_model="",
    cpu_sockets=1,
    cpu_cores=96,
    cpu_max_mw_per_socket=0,
    gpu_model="NVIDIA L40S",
    gpu_count=2,
    gpu_max_mw=350_000,
    gpu_min_mw=200_000,
    gpu_by_catalog=True,
    source="labels",
    gpu_vendor="nvidia",
)


def node(version: str = "1", **labels: str) -> Node:
    """With two cards of a model that the catalog knows."""
    ours = {"gpu_model": "NVIDIA-L40S"} | labels
    told = {f"joulie.io/hw.{key.replace('_', '-')}": value for key, value in ours.items()}
    return msgspec.convert(
        {
            "metadata": {"name": "n", "resourceVersion": version, "labels": told},
            "status": {"allocatable": {"cpu": "96", "nvidia.com/gpu": "2"}},
        },
        Node,
    )


def described(version: str = "1", **gpu: object) -> NodeHardware:
    cpu = {"rawModel": "AMD EPYC 9654", "sockets": 2}
    said = {"spec": {"nodeName": "n"}, "status": {"cpu": cpu, "gpu": gpu or None}}
    meta = {"name": "n", "resourceVersion": version}
    return msgspec.convert({"metadata": meta, **said}, NodeHardware)


def told_of(
    *facts: Fact, catalog: Catalog = CATALOG
) -> tuple[ChangeFilter[Node], ChangeFilter[NodeHardware]]:
    draft = Draft(cluster_state := ClusterState())
    for number, fact in enumerate(facts):
        evolve(draft, fact, noon(number))
    draft.commit()
    return hardware_filters(catalog, cluster_state)


@pytest.mark.parametrize(
    "said",
    [
        {"spec": {"nodeName": "n"}},
        {"spec": {"nodeName": "n"}, "status": {}},
        {"status": {"cpu": {"sockets": 2}}},
    ],
    ids=["no status", "an empty status", "no spec"],
)
def test_hardware_that_its_agent_has_not_described_is_nothing_to_tell(said: object) -> None:
    assert HardwareKind(CATALOG).fact(msgspec.convert(said, NodeHardware)) is None


def test_hardware_with_the_least_that_an_agent_knows() -> None:
    cpu = {"rawModel": "AMD EPYC 9654", "coresPerSocket": 96, "sockets": 2}
    said = {"spec": {"nodeName": "n"}, "status": {"cpu": cpu}}

    assert HardwareKind(EMPTY).fact(msgspec.convert(said, NodeHardware)) == HardwareDiscovered(
        node="n",
        cpu_model="AMD EPYC 9654",
        cpu_sockets=2,
        cpu_cores=192,
        cpu_max_mw_per_socket=0,
    )


def test_what_the_agent_does_not_know_is_looked_up() -> None:
    found = HardwareKind(CATALOG).fact(described(model="NVIDIA L40S", count=4))

    assert found is not None
    assert (found.cpu_cores, found.cpu_max_mw_per_socket) == (192, 360_000)
    assert (found.gpu_min_mw, found.gpu_max_mw, found.gpu_by_catalog) == (200_000, 350_000, True)


def test_the_range_that_an_agent_gives_is_the_range() -> None:
    limits = {"minWatts": 100, "maxWatts": 300}
    found = HardwareKind(CATALOG).fact(described(model="L40S", count=4, capRangePerGpu=limits))

    assert found is not None
    assert (found.gpu_min_mw, found.gpu_max_mw, found.gpu_by_catalog) == (100_000, 300_000, False)


def test_labels_tell_of_a_node_that_no_agent_describes() -> None:
    labelled, _ = told_of()

    assert labelled.seen(node()) == BY_LABELS


def test_labels_are_silent_once_an_agent_has_spoken() -> None:
    labelled, descriptions = told_of()
    descriptions.seen(described())

    assert labelled.seen(node("2")) is None


def test_an_operator_that_starts_again_tells_neither_again() -> None:
    own = HardwareKind(CATALOG).fact(described())
    assert own is not None

    for known in (BY_LABELS, own):
        labelled, descriptions = told_of(node_seen("n"), known)
        assert labelled.seen(node()) is None
        assert (descriptions.seen(described()) is None) == (known is own)


def test_a_node_that_went_and_came_back_is_described_again() -> None:
    labelled, descriptions = told_of()
    labelled.seen(node())
    own = descriptions.seen(described())
    labelled.deleted(node())

    assert labelled.seen(node("3")) == own
    assert labelled.seen(node("4")) is None


def test_a_catalog_that_was_changed_is_news() -> None:
    labelled, _ = told_of(node_seen("n"), replace(hardware("n"), source="labels"))

    assert labelled.seen(node()) == BY_LABELS


def test_a_label_that_holds_no_number_is_told_once_and_not_replaced_in_silence() -> None:
    complaints: list[tuple[str, str]] = []
    kind = LabelledHardwareKind(CATALOG, {}, lambda *told: complaints.append(told))
    for version in ("1", "2"):
        kind.fact(node(version, gpu_count="eight"))
    kind.fact(node("3", gpu_count="8"))

    assert complaints == [
        (
            "n",
            "joulie.io/hw.gpu-count='eight': not a number; what can be allocated stands in for it",
        )
    ]
