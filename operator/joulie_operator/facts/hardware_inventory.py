"""The hardware of nodes: as discovered by their agents, else as read from their labels.

The catalog is applied here, before facts are published, so that the log contains everything that
plans and scores depend on.
"""

from collections.abc import Callable, Mapping
from typing import NamedTuple

from msgspec.structs import replace

from joulie_bus.events import Fact, HardwareDiscovered
from joulie_operator.facts.devices import DeviceObjects
from joulie_operator.facts.facts_from_objects import ChangeFilter, Node, NodeKind
from joulie_operator.resources.custom_resources import (
    AGENT_MANAGER,
    CapRangePerGpu,
    CapRangePerSocket,
    HardwareCpu,
    HardwareGpu,
    NodeHardware,
)
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

OnDescribed = Callable[[HardwareDiscovered], None]
OnProblem = Callable[[str, str], None]  # the node, and the problem


class GpuNames(NamedTuple):
    """The resources and labels by which GPUs are recognized."""

    resources: tuple[str, ...] = GPU_RESOURCES
    model_labels: tuple[str, ...] = GPU_MODELS


class Inventory(NamedTuple):
    """How hardware is recognized."""

    catalog: Catalog = EMPTY
    gpus: GpuNames = GpuNames()


def ignore_description(_: HardwareDiscovered) -> None:
    pass


def ignore_problem(_: str, __: str) -> None:
    pass


class HardwareKind:
    """The hardware of NodeHardware objects; `on_described` is called for every description."""

    def __init__(self, catalog: Catalog, on_described: OnDescribed = ignore_description) -> None:
        self._catalog = catalog
        self._on_described = on_described

    def key(self, seen: NodeHardware, /) -> str:
        return seen.metadata.name

    def version(self, seen: NodeHardware, /) -> str:
        return seen.metadata.resource_version

    def fact(self, seen: NodeHardware, /) -> HardwareDiscovered | None:
        if seen.metadata.is_managed_by(AGENT_MANAGER):
            return None  # it was written for a fact of an agent
        described = _described(seen, self._catalog)
        if described is None:
            return None  # its agent has not written the status yet
        found = with_catalog_figures(described, self._catalog)
        self._on_described(found)
        return found

    def gone(self, _: str, /) -> None:
        return None  # the hardware remains; the fact that removes the node removes it, too


def _described(seen: NodeHardware, catalog: Catalog) -> HardwareDiscovered | None:
    if seen.spec is None or seen.status is None:
        return None
    if seen.status.cpu is None and seen.status.gpu is None:
        return None
    cpu, gpu = seen.status.cpu or HardwareCpu(), seen.status.gpu or HardwareGpu()
    sockets = cpu.sockets or 1
    per_socket = cpu.cap_range or CapRangePerSocket()
    per_card = gpu.cap_range_per_gpu or gpu.cap_range or CapRangePerGpu()
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
    """The name that the catalog contains; else the agent's normalized name, else the raw one."""
    named = [name for name in (model.strip(), raw.strip()) if name]
    return next((name for name in named if find(name) is not None), next(iter(named), ""))


class _Labelled(NamedTuple):
    """What labels and allocatable resources show of a node."""

    hardware: HardwareDiscovered | None
    cores: int


class LabelledHardwareKind:
    """The hardware of Node objects: by their labels, while no agent has described them.

    For a node that was removed and is back, it publishes the agent's description again.
    """

    def __init__(
        self,
        catalog: Catalog,
        descriptions: Mapping[str, HardwareDiscovered],
        on_problem: OnProblem = ignore_problem,
        gpus: GpuNames = GpuNames(),  # noqa: B008
        devices: DeviceObjects | None = None,
    ) -> None:
        self._described = dict(descriptions)
        self._devices = devices or DeviceObjects()
        self._without_devices: dict[str, _Labelled] = {}
        self._catalog = catalog
        self._gpus = gpus
        self._on_problem = on_problem
        self._reported: dict[str, dict[str, str]] = {}
        self._nodes = NodeKind(gpus.resources)

    def note_described(self, found: HardwareDiscovered) -> None:
        self._described[found.node] = found

    def key(self, seen: Node, /) -> str:
        return seen.metadata.name

    def version(self, seen: Node, /) -> str:
        return seen.metadata.resource_version

    def fact(self, seen: Node, /) -> HardwareDiscovered | None:
        described = self._described.get(seen.metadata.name)
        if described is not None:
            return described
        # All labels: labels of device plugins are read here, but are not part of NodeSeen.
        node = replace(self._nodes.fact(seen), labels=seen.metadata.labels or {})
        self._report_labels(node.node, invalid_counts(node.labels))
        found = from_labels(node, self._catalog, self._gpus.model_labels)
        self._without_devices[node.node] = _Labelled(found, -(-node.cpu_milli // 1000))
        return self._with_devices(node.node)

    def gone(self, key: str, /) -> None:
        self._reported.pop(key, None)
        self._without_devices.pop(key, None)

    def renewed(self, node: str) -> HardwareDiscovered | None:
        """The hardware of a node whose devices have changed."""
        return self._described.get(node) or self._with_devices(node)

    def _with_devices(self, node: str) -> HardwareDiscovered | None:
        """Cards that DRA gives out are not allocatable, and have no label."""
        labelled, cards = self._without_devices.get(node), self._devices.on_node(node)
        if labelled is None or cards is None:
            return labelled.hardware if labelled else None
        found = labelled.hardware or HardwareDiscovered(
            node=node,
            cpu_model="",
            cpu_sockets=1,
            cpu_cores=labelled.cores,
            cpu_max_mw_per_socket=0,
            source="labels",
        )
        model, count = found.gpu_model or cards.model, max(found.gpu_count, cards.cards)
        return with_catalog_figures(replace(found, gpu_model=model, gpu_count=count), self._catalog)

    def _report_labels(self, node: str, labels: dict[str, str]) -> None:
        """Reports unreadable labels once, until they change."""
        if labels and self._reported.get(node) != labels:
            listed = ", ".join(f"{label}={value!r}" for label, value in labels.items())
            self._on_problem(
                node, f"{listed}: not a number; what can be allocated stands in for it"
            )
        self._reported[node] = labels


class NodeHardwareFilter(ChangeFilter[Node]):
    """What is published about a node depends on its devices, too."""

    def __init__(
        self, kind: LabelledHardwareKind, logged: Mapping[str, HardwareDiscovered]
    ) -> None:
        super().__init__(kind, logged)
        self._machines = kind

    def renewed(self, node: str) -> Fact | None:
        """The fact to publish about a node whose devices have changed."""
        return self.changed(node, self._machines.renewed(node))


def logged_hardware(cluster_state: ClusterState) -> dict[str, HardwareDiscovered]:
    """The hardware in the log, by node."""
    found = ((name, node.hardware) for name, node in cluster_state.nodes.items())
    return {name: hardware for name, hardware in found if hardware is not None}


def hardware_filters(
    catalog: Catalog,
    cluster_state: ClusterState,
    on_problem: OnProblem = ignore_problem,
    gpus: GpuNames = GpuNames(),  # noqa: B008
    devices: DeviceObjects | None = None,
) -> tuple[NodeHardwareFilter, ChangeFilter[NodeHardware]]:
    """One filter for Nodes, one for NodeHardwares; the first knows what the second publishes."""
    known = logged_hardware(cluster_state)
    descriptions = {node: it for node, it in known.items() if it.source != "labels"}
    machine = LabelledHardwareKind(catalog, descriptions, on_problem, gpus, devices)
    labelled = NodeHardwareFilter(machine, known)

    def note_published(found: HardwareDiscovered) -> None:
        machine.note_described(found)
        labelled.note_published(found)

    return labelled, ChangeFilter(HardwareKind(catalog, note_published), descriptions)


def _milliwatts(watts: float) -> int:
    return round(watts * 1000)
