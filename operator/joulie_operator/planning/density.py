"""The compute density and the hardware family of a node, as policies see them.

A third of the density is cores, two thirds are cards, each part from 0 to 1 relative to a
reference. Half of the part of a card is that it is one, the other half is the square root of its
catalog TFLOPS: generations of cards differ by factors, and cores do not. Eight cards of any model
are therefore denser than any node without cards.
"""

import math
from collections.abc import Mapping
from functools import lru_cache
from typing import NamedTuple

from joulie_bus.events import HardwareDiscovered
from joulie_projections.hardware.models import card_name, processor
from joulie_projections.state.state import NodeState
from joulie_projections.twin.twin import Hardware, hardware_of

MOST_CORES = 192  # 2 x 96
MOST_CARDS = 8
MOST_TFLOPS = 2500  # of a card, FP16, without sparsity: the Blackwell generation
UNKNOWN_TFLOPS = 181  # for cards outside the catalog: the middle of the catalog


# Every plan asks for these of every node, and hardware hardly ever changes.
_remembered = lru_cache(maxsize=16_384)


class _Hardware(NamedTuple):
    """What density and family depend on."""

    found: HardwareDiscovered | None
    cpu_milli: int
    gpus: int
    gpu_units: int
    gpu_vendor: str

    @classmethod
    def of(cls, node: NodeState) -> "_Hardware":
        return cls(node.hardware, node.cpu_milli, node.gpus, node.gpu_units, node.gpu_vendor)

    def resolved(self) -> Hardware:
        return hardware_of(
            NodeState(
                ordinal=0,
                at=0,
                hardware=self.found,
                cpu_milli=self.cpu_milli,
                gpus=self.gpus,
                gpu_units=self.gpu_units,
                gpu_vendor=self.gpu_vendor,
            )
        )


def density(node: NodeState, density_rules: int) -> float:
    """From 0 to 1."""
    return _density(_Hardware.of(node), density_rules)


@_remembered
def _density(node: _Hardware, density_rules: int) -> float:
    hardware, figures = node.resolved(), node.found.figures if node.found else None
    tflops = (figures.gpu_tflops if figures else 0) or UNKNOWN_TFLOPS
    cores = min(1.0, _cores(node.found, hardware.cores) / MOST_CORES)
    if density_rules == 1:
        share = hardware.cards * tflops / (MOST_CARDS * MOST_TFLOPS)
        return (cores + math.sqrt(min(1.0, share))) / 2
    model = (1 + math.sqrt(min(1.0, tflops / MOST_TFLOPS))) / 2
    return (cores + 2 * min(1.0, hardware.cards / MOST_CARDS) * model) / 3


def _cores(found: HardwareDiscovered | None, counted: float) -> float:
    """Physical cores, where the model is known: Kubernetes counts threads."""
    if found is None or not found.figures.cores_per_socket:
        return counted
    return min(counted, found.figures.cores_per_socket * found.cpu_sockets)


def families(nodes: Mapping[str, NodeState]) -> dict[str, str]:
    """The GPU model of each node, or the CPU model of nodes without GPUs.

    Different spellings of a model are one family, named by the alphabetically first spelling.
    """
    models = {name: _model(_Hardware.of(node)) for name, node in nodes.items()}
    named: dict[str, str] = {}
    for key, spelled in models.values():
        named[key] = min(named.get(key, spelled), spelled)
    return {name: named[key] for name, (key, _) in models.items()}


@_remembered
def _model(node: _Hardware) -> tuple[str, str]:
    """A key that all spellings of the model share, and this spelling."""
    found = node.found
    if found is not None and found.gpu_model:
        return f"gpu {card_name(found.gpu_model).text}", found.gpu_model
    if node.resolved().cards:
        vendor = (found.gpu_vendor if found is not None else "") or node.gpu_vendor
        unknown = f"{vendor} gpu".strip()
        return unknown, unknown
    if found is not None and found.cpu_model:
        return f"cpu {' '.join(processor(found.cpu_model))}", found.cpu_model
    return "cpu", "cpu"
