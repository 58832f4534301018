"""What nodes are made of: as their agents found it, else as their labels say. Pure.

The catalog is looked at here, before anything is published: what a plan or a score rests on is in
the log.
"""

from collections.abc import Callable, Mapping
from typing import NamedTuple

from msgspec.structs import replace

from joulie_bus.events import HardwareDiscovered
from joulie_operator.kube.custom_resources import (
    CapRangePerGpu,
    CapRangePerSocket,
    HardwareCpu,
    HardwareGpu,
    NodeHardware,
)
from joulie_operator.observe.facts_from_objects import Node, NodeKind, Told
from joulie_projections.hardware.catalog import (
    EMPTY,
    GPU_MODELS,
    Catalog,
    from_labels,
    invalid_counts,
    with_catalog_figures,
)
from joulie_projections.hardware.gpu_resources import GPU_RESOURCES
from joulie_projections.hardware.models import vendor_of
from joulie_projections.state.state import ClusterState

Hear = Callable[[HardwareDiscovered], None]
Complain = Callable[[str, str], None]  # about a node, in words


class GpuNames(NamedTuple):
    """By what a node's cards are known."""

    resources: tuple[str, ...] = GPU_RESOURCES
    model_labels: tuple[str, ...] = GPU_MODELS


class Inventory(NamedTuple):
    """By what hardware is known."""

    catalog: Catalog = EMPTY
    gpus: GpuNames = GpuNames()


def no_one_hears(_: HardwareDiscovered) -> None:
    pass


def no_one_complains(_: str, __: str) -> None:
    pass


class HardwareKind:
    """`heard` learns of every description, told or not."""

    def __init__(self, catalog: Catalog, heard: Hear = no_one_hears) -> None:
        self._catalog = catalog
        self._heard = heard

    def key(self, seen: NodeHardware, /) -> str:
        return seen.metadata.name

    def version(self, seen: NodeHardware, /) -> str:
        return seen.metadata.resource_version

    def fact(self, seen: NodeHardware, /) -> HardwareDiscovered | None:
        described = _described(seen, self._catalog)
        if described is None:
            return None  # its agent has not said anything yet
        found = with_catalog_figures(described, self._catalog)
        self._heard(found)
        return found

    def gone(self, _: str, /) -> None:
        return None  # the machine is still what it was; when the node goes, all of it goes


def _described(seen: NodeHardware, catalog: Catalog) -> HardwareDiscovered | None:
    if seen.spec is None or seen.status is None:
        return None
    if seen.status.cpu is None and seen.status.gpu is None:
        return None
    cpu, gpu = seen.status.cpu or HardwareCpu(), seen.status.gpu or HardwareGpu()
    sockets = cpu.sockets or 1
    per_socket = cpu.cap_range or CapRangePerSocket()
    per_card = gpu.cap_range_per_gpu or CapRangePerGpu()
    gpu_model = _known(gpu.model, gpu.raw_model, catalog.gpu)
    return HardwareDiscovered(
        node=seen.spec.node_name,
        cpu_model=_known(cpu.model, cpu.raw_model, catalog.cpu),
        cpu_sockets=sockets,
        cpu_cores=cpu.total_cores or cpu.cores_per_socket * sockets,
        cpu_max_mw_per_socket=_milliwatts(per_socket.max_watts_per_socket),
        cpu_min_mw_per_socket=_milliwatts(per_socket.min_watts_per_socket),
        gpu_model=gpu_model,
        gpu_count=gpu.count,
        gpu_max_mw=_milliwatts(per_card.max_watts),
        gpu_min_mw=_milliwatts(per_card.min_watts),
        memory_bytes=seen.status.memory.total_bytes if seen.status.memory else 0,
        gpu_vendor=vendor_of(gpu.vendor, gpu_model),
    )


def _known(model: str, raw: str, find: Callable[[str], object]) -> str:
    """The one that the catalog knows; else the agent's own reading of it, if it has one."""
    named = [name for name in (model.strip(), raw.strip()) if name]
    return next((name for name in named if find(name) is not None), next(iter(named), ""))


class MachineKind:
    """A node's hardware out of the Node object: by its labels, while no agent has described it.

    A node that went and came back has lost its description in the log; it is told again with it.
    """

    def __init__(
        self,
        catalog: Catalog,
        descriptions: Mapping[str, HardwareDiscovered],
        complain: Complain = no_one_complains,
        gpus: GpuNames = GpuNames(),  # noqa: B008
    ) -> None:
        self._described = dict(descriptions)
        self._catalog = catalog
        self._gpus = gpus
        self._complain = complain
        self._complaints: dict[str, dict[str, str]] = {}
        self._nodes = NodeKind(gpus.resources)

    def described(self, found: HardwareDiscovered) -> None:
        self._described[found.node] = found

    def key(self, seen: Node, /) -> str:
        return seen.metadata.name

    def version(self, seen: Node, /) -> str:
        return seen.metadata.resource_version

    def fact(self, seen: Node, /) -> HardwareDiscovered | None:
        described = self._described.get(seen.metadata.name)
        if described is not None:
            return described
        # All labels: those of device plugins are looked at here, and are no part of a node's fact.
        node = replace(self._nodes.fact(seen), labels=seen.metadata.labels or {})
        self._complain_of(node.node, invalid_counts(node.labels))
        return from_labels(node, self._catalog, self._gpus.model_labels)

    def gone(self, key: str, /) -> None:
        self._complaints.pop(key, None)

    def _complain_of(self, node: str, labels: dict[str, str]) -> None:
        """Once, until it changes."""
        if labels and self._complaints.get(node) != labels:
            told = ", ".join(f"{label}={value!r}" for label, value in labels.items())
            self._complain(node, f"{told}: not a number; what can be allocated stands in for it")
        self._complaints[node] = labels


def believed_hardware(cluster_state: ClusterState) -> dict[str, HardwareDiscovered]:
    """What the log holds of it already."""
    found = ((name, node.hardware) for name, node in cluster_state.nodes.items())
    return {name: hardware for name, hardware in found if hardware is not None}


def machines_told(
    catalog: Catalog,
    cluster_state: ClusterState,
    complain: Complain = no_one_complains,
    gpus: GpuNames = GpuNames(),  # noqa: B008
) -> tuple[Told[Node], Told[NodeHardware]]:
    """By Node objects and by descriptions. What one of them told, the other one knows."""
    known = believed_hardware(cluster_state)
    descriptions = {node: it for node, it in known.items() if it.source != "labels"}
    machine = MachineKind(catalog, descriptions, complain, gpus)
    labelled = Told[Node](machine, known)

    def heard(found: HardwareDiscovered) -> None:
        machine.described(found)
        labelled.heard(found)

    return labelled, Told(HardwareKind(catalog, heard), descriptions)


def _milliwatts(watts: float) -> int:
    return round(watts * 1000)
