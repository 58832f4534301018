"""The compute density and the hardware family of a node, as policies see them.

Half of the density is cores, half is cards, each from 0 to 1 relative to the densest node on the
market. Cards count by the square root of their catalog TFLOPS, because generations of cards differ
by factors and cores do not: eight cards of an older generation still count at least as much as
cores.
"""

import math
from collections.abc import Mapping

from joulie_bus.events import HardwareDiscovered
from joulie_projections.hardware.models import card_name, processor
from joulie_projections.state.state import NodeState
from joulie_projections.twin.twin import hardware_of

MOST_CORES = 192  # 2 x 96
MOST_TFLOPS = 8 * 2500  # FP16, without sparsity: eight cards of the Blackwell generation
UNKNOWN_TFLOPS = 181  # for cards outside the catalog: the middle of the catalog


def density(node: NodeState) -> float:
    """From 0 to 1."""
    hardware, figures = hardware_of(node), node.hardware.figures if node.hardware else None
    tflops = hardware.cards * ((figures.gpu_tflops if figures else 0) or UNKNOWN_TFLOPS)
    cards = math.sqrt(min(1.0, tflops / MOST_TFLOPS))
    return (min(1.0, _cores(node.hardware, hardware.cores) / MOST_CORES) + cards) / 2


def _cores(found: HardwareDiscovered | None, counted: float) -> float:
    """Physical cores, where the model is known: Kubernetes counts threads."""
    if found is None or not found.figures.cores_per_socket:
        return counted
    return min(counted, found.figures.cores_per_socket * found.cpu_sockets)


def families(nodes: Mapping[str, NodeState]) -> dict[str, str]:
    """The GPU model of each node, or the CPU model of nodes without GPUs.

    Different spellings of a model are one family, named by the alphabetically first spelling.
    """
    models = {name: _model(node) for name, node in nodes.items()}
    named: dict[str, str] = {}
    for key, spelled in models.values():
        named[key] = min(named.get(key, spelled), spelled)
    return {name: named[key] for name, (key, _) in models.items()}


def _model(node: NodeState) -> tuple[str, str]:
    """A key that all spellings of the model share, and this spelling."""
    found = node.hardware
    if found is not None and found.gpu_model:
        return f"gpu {card_name(found.gpu_model).text}", found.gpu_model
    if hardware_of(node).cards:
        vendor = (found.gpu_vendor if found is not None else "") or node.gpu_vendor
        unknown = f"{vendor} gpu".strip()
        return unknown, unknown
    if found is not None and found.cpu_model:
        return f"cpu {' '.join(processor(found.cpu_model))}", found.cpu_model
    return "cpu", "cpu"
