"""The NodeHardware and GPU objects of what agents found: which to write, and which to delete.

They belong to the field manager `joulie-agent`. Objects of the same name that another manager made
are left as they are, and the watchers take no facts from objects of this manager: the facts are in
the log already.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple

import msgspec

from joulie_bus.events import HardwareDiscovered
from joulie_operator.resources.custom_resources import (
    AGENT_MANAGER,
    GPU_GROUP,
    GPUS,
    GROUP,
    NODEHARDWARES,
    VERSION,
    CapRangePerGpu,
    CapRangePerSocket,
    Gpu,
    GpuSpec,
    GpuStatus,
    HardwareCpu,
    HardwareGpu,
    HardwareMemory,
    NodeHardware,
    NodeHardwareSpec,
    NodeHardwareStatus,
)
from joulie_projections.state.cards import CardState
from joulie_projections.state.state import ClusterState

SOURCE = "agent"


class Wanted(NamedTuple):
    """An object as it should be. `status` holds the fields of this manager only."""

    kind: str
    api: str
    path: str
    name: str
    spec: dict[str, Any]
    status: dict[str, Any]

    def body(self) -> dict[str, Any]:
        return self._head() | {"spec": self.spec}

    def status_body(self) -> dict[str, Any]:
        return self._head() | {"status": self.status}

    def _head(self) -> dict[str, Any]:
        return {"apiVersion": self.api, "kind": self.kind, "metadata": {"name": self.name}}


def wanted_objects(state: ClusterState) -> Iterator[Wanted]:
    for name, node in state.nodes.items():
        if node.present and node.hardware is not None and node.hardware.source == SOURCE:
            yield _hardware(name, node.hardware)
    for uuid, card in state.gpus.items():
        if card.source == SOURCE and card.node:
            yield _gpu(uuid, card)


def is_as_wanted(wanted: Wanted, seen: Gpu | NodeHardware) -> bool:
    spec = {} if seen.spec is None else msgspec.to_builtins(seen.spec)
    status = {} if seen.status is None else msgspec.to_builtins(seen.status)
    return spec == wanted.spec and wanted.status.items() <= status.items()


def is_of_agents(seen: Gpu | NodeHardware) -> bool:
    return seen.metadata.is_managed_by(AGENT_MANAGER)


def _hardware(name: str, found: HardwareDiscovered) -> Wanted:
    gpu = HardwareGpu(
        present=True,
        vendor=found.gpu_vendor,
        model=found.gpu_model,
        count=found.gpu_count,
        cap_range_per_gpu=CapRangePerGpu(
            min_watts=found.gpu_min_mw / 1000, max_watts=found.gpu_max_mw / 1000
        ),
    )
    status = NodeHardwareStatus(
        cpu=HardwareCpu(
            model=found.cpu_model,
            sockets=found.cpu_sockets,
            total_cores=found.cpu_cores,
            cap_range=CapRangePerSocket(
                min_watts_per_socket=found.cpu_min_mw_per_socket / 1000,
                max_watts_per_socket=found.cpu_max_mw_per_socket / 1000,
            ),
        ),
        gpu=gpu if found.gpu_count else None,
        memory=HardwareMemory(total_bytes=found.memory_bytes),
    )
    return Wanted(
        "NodeHardware",
        f"{GROUP}/{VERSION}",
        NODEHARDWARES,
        name,
        msgspec.to_builtins(NodeHardwareSpec(node_name=name)),
        msgspec.to_builtins(status),
    )


def _gpu(uuid: str, card: CardState) -> Wanted:
    spec = GpuSpec(
        node_name=card.node,
        uuid=uuid,
        model=card.model,
        total_vram_mb=card.total_mb,
        nvlink_group=card.nvlink_group,
    )
    status = {} if card.healthy else msgspec.to_builtins(GpuStatus(healthy=False))
    name = uuid.lower()
    return Wanted("GPU", f"{GPU_GROUP}/{VERSION}", GPUS, name, msgspec.to_builtins(spec), status)
