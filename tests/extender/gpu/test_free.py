"""Cores and cards of a node that no bound pod requests."""

import numpy as np
from msgspec.structs import replace

from bus_kit import NOON, hardware
from joulie_extender.gpu.free import free_cards, free_cores, free_cores_of
from joulie_projections.pods.load import Load
from joulie_projections.state.state import NodeState
from joulie_projections.twin.columns import TwinColumns

ROW = np.array([1])


def node(*, cores: int = 8, watts: int = 100, gpus: int = 0, taken_milli: int = 0) -> NodeState:
    known = hardware("n0", cores=cores, watts=watts, gpus=gpus)
    return NodeState(ordinal=0, at=NOON, hardware=known, load=Load(cpu_milli=taken_milli))


def test_cores_are_free_as_far_as_pods_do_not_request_them() -> None:
    half, slow = node(taken_milli=4000), node(watts=1)

    assert free_cores(TwinColumns.of({"n0": half}, 0), ROW).tolist() == [4.0]
    assert free_cores(TwinColumns.of({"n0": slow}, 0), ROW).tolist() == [8.0]


def test_no_core_of_unknown_hardware_is_free() -> None:
    none, eight = np.zeros(1), np.full(1, 8.0)

    assert free_cores_of(eight, none, none).tolist() == [0.0]


def test_cards_are_free_as_far_as_pods_do_not_request_them_whatever_their_power() -> None:
    weak = replace(hardware("n0", gpus=2), gpu_max_mw=1000)
    used = Load(gpu_standard_milli=1000)
    nodes = {
        "n0": replace(node(), hardware=weak),
        "n1": replace(node(), ordinal=1, hardware=weak, load=used),
        "n2": replace(node(), ordinal=2),
    }

    assert free_cards(TwinColumns.of(nodes, 0), np.arange(4)).tolist() == [0.0, 2.0, 1.0, 0.0]
