"""GPU resource names, and the cards behind the allocatable resources of a node."""

import pytest

from joulie_bus.errors import SettingsError
from joulie_bus.runtime.settings import Source
from joulie_projections.catalog_file import GpuResourceSettings
from joulie_projections.hardware.gpu_resources import GPU_RESOURCES, CardCount, count_cards


def test_gpu_resources_are_a_setting() -> None:
    named = Source.of(GPU_RESOURCES="nvidia.com/gpu, vendor.example/gpu,nvidia.com/gpu")

    assert named.load(GpuResourceSettings).resources == ("nvidia.com/gpu", "vendor.example/gpu")
    assert Source.of().load(GpuResourceSettings).resources == GPU_RESOURCES


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "not a list of resource names"),
        ("gpu", "not a list of resource names"),
        ("a/b/c", "not a list of resource names"),
        ("nvidia.com/gpu other.example/ gpu", "not a list of resource names"),
        ("nvidia.com/mig-1g.5gb", "always count, as a share of a card"),
    ],
)
def test_an_invalid_resource_list_stops_the_start(text: str, why: str) -> None:
    source = Source.of(GPU_RESOURCES=text)
    source.load(GpuResourceSettings)

    with pytest.raises(SettingsError, match=why):
        source.finish()


def test_a_node_without_gpus_has_none() -> None:
    assert count_cards({"cpu": "4"}, {}, GPU_RESOURCES, "n") == CardCount()


def test_whole_and_sliced_cards_of_one_node_add_up() -> None:
    allocatable = {"nvidia.com/gpu": 2, "nvidia.com/mig-1g.5gb": 14}

    assert count_cards(allocatable, {}, GPU_RESOURCES, "n") == CardCount(4, 0, "nvidia")


def test_time_shared_slices_are_counted_once() -> None:
    labels = {"nvidia.com/mig-1g.5gb.replicas": "4"}

    assert count_cards({"nvidia.com/mig-1g.5gb": 28}, labels, GPU_RESOURCES, "n").cards == 1


def test_a_shared_resource_uses_the_labels_of_its_device() -> None:
    labels = {"nvidia.com/gpu.replicas": "4"}
    names = (*GPU_RESOURCES, "nvidia.com/gpu.shared")

    assert count_cards({"nvidia.com/gpu.shared": 8}, labels, names, "n") == CardCount(
        2, 8, "nvidia"
    )


@pytest.mark.parametrize("replicas", ["", "four", "0", "1"])
def test_an_invalid_replica_label_is_ignored(replicas: str) -> None:
    labels = {"nvidia.com/gpu.replicas": replicas}

    assert count_cards({"nvidia.com/gpu": 8}, labels, GPU_RESOURCES, "n") == CardCount(
        8, 0, "nvidia"
    )
