"""Hardware from the agent, else from labels, with the catalog's values for missing ones."""

import msgspec
import pytest
from msgspec.structs import replace

from bus_kit import hardware, node_seen, noon
from joulie_bus.events import Fact, HardwareDiscovered
from joulie_operator.facts.facts_from_objects import ChangeFilter, Node
from joulie_operator.facts.hardware_inventory import (
    HardwareKind,
    LabelledHardwareKind,
    hardware_filters,
)
from joulie_operator.resources.custom_resources import NodeHardware
from joulie_projections.fold.registry import evolve
from joulie_projections.hardware.catalog import EMPTY, Catalog, parse_catalog
from joulie_projections.state.state import ClusterState
from joulie_projections.state.state_changes import Draft

CATALOG: Catalog = parse_catalog(
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
    """A node with two cards of a catalog model."""
    chosen = {"gpu_model": "NVIDIA-L40S"} | labels
    labels = {f"joulie.io/hw.{key.replace('_', '-')}": value for key, value in chosen.items()}
    return msgspec.convert(
        {
            "metadata": {"name": "n", "resourceVersion": version, "labels": labels},
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
def test_hardware_without_a_description_makes_no_fact(said: object) -> None:
    assert HardwareKind(CATALOG).fact(msgspec.convert(said, NodeHardware)) is None


def test_hardware_with_a_minimal_description() -> None:
    cpu = {"rawModel": "AMD EPYC 9654", "coresPerSocket": 96, "sockets": 2}
    said = {"spec": {"nodeName": "n"}, "status": {"cpu": cpu}}

    assert HardwareKind(EMPTY).fact(msgspec.convert(said, NodeHardware)) == HardwareDiscovered(
        node="n",
        cpu_model="AMD EPYC 9654",
        cpu_sockets=2,
        cpu_cores=192,
        cpu_max_mw_per_socket=0,
    )


def test_missing_values_come_from_the_catalog() -> None:
    found = HardwareKind(CATALOG).fact(described(model="NVIDIA L40S", count=4))

    assert found is not None
    assert (found.cpu_cores, found.cpu_max_mw_per_socket) == (192, 360_000)
    assert (found.gpu_min_mw, found.gpu_max_mw, found.gpu_by_catalog) == (200_000, 350_000, True)


@pytest.mark.parametrize("field", ["capRangePerGpu", "capRange"])
def test_the_cap_range_of_the_agent_wins(field: str) -> None:
    limits = {"minWatts": 100, "maxWatts": 300}
    found = HardwareKind(CATALOG).fact(described("1", model="L40S", count=4, **{field: limits}))

    assert found is not None
    assert (found.gpu_min_mw, found.gpu_max_mw, found.gpu_by_catalog) == (100_000, 300_000, False)


def test_labels_describe_a_node_without_an_agent() -> None:
    labelled, _ = told_of()

    assert labelled.seen(node()) == BY_LABELS


def test_labels_are_ignored_once_an_agent_has_described_the_node() -> None:
    labelled, descriptions = told_of()
    descriptions.seen(described())

    assert labelled.seen(node("2")) is None


def test_a_restarted_operator_publishes_no_hardware_again() -> None:
    own = HardwareKind(CATALOG).fact(described())
    assert own is not None

    for known in (BY_LABELS, own):
        labelled, descriptions = told_of(node_seen("n"), known)
        assert labelled.seen(node()) is None
        assert (descriptions.seen(described()) is None) == (known is own)


def test_a_node_that_was_created_again_is_described_again() -> None:
    labelled, descriptions = told_of()
    labelled.seen(node())
    own = descriptions.seen(described())
    labelled.deleted(node())

    assert labelled.seen(node("3")) == own
    assert labelled.seen(node("4")) is None


def test_a_changed_catalog_is_published() -> None:
    labelled, _ = told_of(node_seen("n"), replace(hardware("n"), source="labels"))

    assert labelled.seen(node()) == BY_LABELS


def test_an_unreadable_label_is_reported_once() -> None:
    complaints: list[tuple[str, str]] = []
    kind = LabelledHardwareKind(CATALOG, {}, lambda *problem: complaints.append(problem))
    for version in ("1", "2"):
        kind.fact(node(version, gpu_count="eight"))
    kind.fact(node("3", gpu_count="8"))

    assert complaints == [
        (
            "n",
            "joulie.io/hw.gpu-count='eight': not a number; what can be allocated stands in for it",
        )
    ]
