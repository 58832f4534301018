"""Nodes and pods as an API server lists them, for trials; tests state only what matters."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

Tree = dict[str, Any]
HOST, ZONE = "kubernetes.io/hostname", "topology.kubernetes.io/zone"


def node(
    name: str,
    *,
    cores: int = 64,
    gpus: int = 0,
    zone: str = "a",
    labels: Mapping[str, str] = MappingProxyType({}),
) -> Tree:
    room = {"cpu": str(cores), "memory": "256Gi", "pods": "110"}
    room |= {"nvidia.com/gpu": str(gpus)} if gpus else {}
    return {
        "metadata": {"name": name, "labels": {HOST: name, ZONE: zone, **labels}},
        "spec": {},
        "status": {"allocatable": room, "conditions": [{"type": "Ready", "status": "True"}]},
    }


def pod(name: str, on: str, *, cores: int = 1, kind: str = "ReplicaSet", **spec: Any) -> Tree:
    """A pod of a controller of this kind; without a kind, of none. Its name is its uid."""
    group = {"Job": "batch/v1"}.get(kind, "apps/v1")
    owner = {"apiVersion": group, "kind": kind, "name": "o", "uid": "o", "controller": True}
    return {
        "metadata": {
            "name": name,
            "namespace": "team",
            "uid": name,
            "labels": {"app": "web"},
            "creationTimestamp": "2026-11-29T10:00:00Z",
            **({"ownerReferences": [owner]} if kind else {}),
        },
        "spec": {
            "containers": [{"name": "c", "resources": {"requests": {"cpu": str(cores)}}}],
            **({"nodeName": on} if on else {}),
            **spec,
        },
        "status": {"phase": "Running" if on else "Pending"},
    }


def daemon(name: str, on: str) -> Tree:
    """As the DaemonSet controller makes it: with affinity to its node."""
    field = {"key": "metadata.name", "operator": "In", "values": [on]}
    required = {"nodeSelectorTerms": [{"matchFields": [field]}]}
    made = pod(name, on, kind="DaemonSet")
    made["spec"]["affinity"] = {
        "nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}
    }
    return made
