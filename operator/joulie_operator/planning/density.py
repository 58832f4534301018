"""The compute density and the hardware family of a node, as policies see them.

A third of the density is cores, two thirds are cards, each part from 0 to 1 relative to a
reference. Half of the part of a card is that it is one, the other half is the square root of its
catalog TFLOPS: generations of cards differ by factors, and cores do not. Eight cards of any model
are therefore denser than any node without cards.
"""

import math
from collections.abc import Mapping
from functools import lru_cache

from joulie_bus.events import HardwareDiscovered
from joulie_projections.hardware.models import card_name, processor
from joulie_projections.state.state import NodeState
from joulie_projections.twin.twin import node_cards, node_cores

MOST_CORES = 192  # 2 x 96
MOST_CARDS = 8
MOST_TFLOPS = 2500  # of a card, FP16, without sparsity: the Blackwell generation
UNKNOWN_TFLOPS = 181  # for cards outside the catalog: the middle of the catalog


# Every plan asks for these of every node. The keys are figures and not descriptions of hardware:
# those name their node, and are slower to hash than a density is to compute.
_remembered = lru_cache(maxsize=4096)


def density(node: NodeState) -> float:
    """From 0 to 1."""
    tflops = node.hardware.figures.gpu_tflops if node.hardware else 0
    cores = _cores(node.hardware, node_cores(node))
    return _density(cores, float(node_cards(node)), tflops or UNKNOWN_TFLOPS)


@_remembered
def _density(cores: float, cards: float, tflops: float) -> float:
    cores = min(1.0, cores / MOST_CORES)
    model = (1 + math.sqrt(min(1.0, tflops / MOST_TFLOPS))) / 2
    return (cores + 2 * min(1.0, cards / MOST_CARDS) * model) / 3


def _cores(found: HardwareDiscovered | None, counted: float) -> float:
    """Physical cores, where the model is known: Kubernetes counts threads."""
    if found is None or not found.figures.cores_per_socket:
        return counted
    return min(counted, found.figures.cores_per_socket * found.cpu_sockets)


def families(nodes: Mapping[str, NodeState]) -> dict[str, str]:
    """The GPU model of each node, or the CPU model of nodes without GPUs.

    Different spellings of a model are one family, named by the alphabetically first spelling.
    """
    models = {name: _model_of(node) for name, node in nodes.items()}
    named: dict[str, str] = {}
    for key, spelled in dict.fromkeys(models.values()):
        named[key] = min(named.get(key, spelled), spelled)
    return {name: named[key] for name, (key, _) in models.items()}


def _model_of(node: NodeState) -> tuple[str, str]:
    found, has_cards = node.hardware, node_cards(node) > 0
    if found is None:
        return _model("", "", node.gpu_vendor, has_cards)
    vendor = found.gpu_vendor or node.gpu_vendor
    return _model(found.gpu_model, found.cpu_model, vendor, has_cards)


@_remembered
def _model(gpu_model: str, cpu_model: str, vendor: str, has_cards: bool) -> tuple[str, str]:
    """A key that all spellings of the model share, and this spelling."""
    if gpu_model:
        return f"gpu {card_name(gpu_model).text}", gpu_model
    if has_cards:
        unknown = f"{vendor} gpu".strip()
        return unknown, unknown
    if cpu_model:
        return f"cpu {' '.join(processor(cpu_model))}", cpu_model
    return "cpu", "cpu"
