"""Builders: facts about nodes and the building."""

from msgspec.structs import replace

from joulie_bus.events import (
    CardRead,
    FacilityPolled,
    HardwareDiscovered,
    InventoryRead,
    NodeSeen,
    TelemetrySampled,
)


def power(node: str, watts: float) -> TelemetrySampled:
    return TelemetrySampled(node=node, power_mw=round(watts * 1000))


def node_seen(node: str, *, cores: int = 96, gpus: int = 0, **labels: str) -> NodeSeen:
    """Managed, ready, schedulable; `power_profile="eco"` is the label joulie.io/power-profile."""
    return NodeSeen(
        node=node,
        uid=f"uid-{node}",
        labels={"joulie.io/managed": "true"}
        | {f"joulie.io/{key.replace('_', '-')}": value for key, value in labels.items()},
        cpu_milli=cores * 1000,
        gpus=gpus,
    )


def hardware(node: str, *, cores: int = 96, watts: int = 720, gpus: int = 0) -> HardwareDiscovered:
    """One socket; GPUs of 700 W."""
    return HardwareDiscovered(
        node=node,
        cpu_model="AMD EPYC 9654",
        cpu_sockets=1,
        cpu_cores=cores,
        cpu_max_mw_per_socket=watts * 1000,
        gpu_model="NVIDIA H100 SXM5" if gpus else "",
        gpu_count=gpus,
        gpu_max_mw=700_000 if gpus else 0,
    )


def polled(*, ambient_c: float | None = None, it_w: float | None = None) -> FacilityPolled:
    """A value that is absent stands for a failed reading."""
    return FacilityPolled(
        facility="hall",
        ambient_mdeg=None if ambient_c is None else round(ambient_c * 1000),
        it_mw=None if it_w is None else round(it_w * 1000),
    )


def inventory(node: str, *cards: str, owner: str = "", problem: str = "") -> InventoryRead:
    """What an agent found: these cards, all held by one pod or by none; two cards if none is
    named."""
    found = cards or (f"GPU-{node}-0", f"GPU-{node}-1")
    return InventoryRead(
        node=node,
        hardware=replace(hardware(node, gpus=len(found)), source="agent"),
        cards=tuple(
            CardRead(
                uuid=uuid,
                model="NVIDIA H100 SXM5",
                total_mb=81_559,
                problem=problem,
                link_group="link-0",
                owner=owner,
            )
            for uuid in found
        ),
    )
