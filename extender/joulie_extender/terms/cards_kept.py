"""Keeps pods without cards off nodes with free cards while other nodes have room."""

from dataclasses import dataclass

from joulie_bus.core.setting_fields import choice, setting


@dataclass(frozen=True, kw_only=True)
class CardsKeptSettings:
    cpu_pods_on_gpu_nodes: str = setting(
        choice("avoid", "allow"),
        "CPU_PODS_ON_GPU_NODES",
        "avoid",
        "avoid: a pod without a GPU request scores low on nodes with free cards while other "
        "nodes have room",
    )
