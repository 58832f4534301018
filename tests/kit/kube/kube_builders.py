"""Builders of Kubernetes objects; tests state only the relevant fields."""

from pathlib import Path
from typing import Any

import yaml  # type: ignore[import-untyped]

from joulie_operator.resources.crds import DEFINITIONS, definition
from kube_api import ApiServer

DEPLOY = Path(__file__).parents[3] / "deploy"
Tree = dict[str, Any]
Right = tuple[str, str, str]  # group, resource, verb


def joulie_server() -> ApiServer:
    """A server with Joulie's CRDs installed."""
    server = ApiServer()
    server.install([definition(each) for each in DEFINITIONS])
    return server


def server_of_four(account: str, rights: set[Right]) -> ApiServer:
    """Four managed nodes, and one user with these rights."""
    made = joulie_server()
    made.users[account] = (f"system:serviceaccount:joulie-system:joulie-{account}", rights)
    for number in range(4):
        made.put("nodes", node(f"n{number}"))
    return made


def granted(manifest: str) -> set[Right]:
    """What a file of deploy/ allows."""
    return {
        (group, resource, verb)
        for document in yaml.safe_load_all((DEPLOY / manifest).read_text())
        for rule in document.get("rules", [])
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }


def node(name: str, *, cores: int = 96, gpus: int = 0, managed: bool = True, **labels: str) -> Tree:
    """A ready node; `power_profile="eco"` sets the label joulie.io/power-profile."""
    ours = {"joulie.io/managed": "true"} if managed else {}
    labelled = {f"joulie.io/{key.replace('_', '-')}": value for key, value in labels.items()}
    return {
        "metadata": {"name": name, "labels": ours | labelled},
        "status": {
            "allocatable": {"cpu": str(cores), "memory": "1Gi"}
            | ({"nvidia.com/gpu": str(gpus)} if gpus else {}),
            "conditions": [{"type": "Ready", "status": "True"}],
        },
    }


def schedulable(name: str, *, cores: int = 96, gpus: int = 0) -> Tree:
    """A node as its kubelet reports it to kube-scheduler."""
    made = node(name, cores=cores, gpus=gpus)
    made["metadata"]["labels"]["kubernetes.io/hostname"] = name
    room = made["status"]["allocatable"] | {"pods": "110"}
    made["status"] |= {"allocatable": room, "capacity": room}
    return made


def pod(
    name: str, *, node: str = "", workload: str = "", phase: str = "", namespace: str = "team"
) -> Tree:
    notes = {"annotations": {"joulie.io/workload-class": workload}} if workload else {}
    return {
        "metadata": {"name": name, "namespace": namespace, **notes},
        "spec": {"containers": [{"name": "c"}]} | ({"nodeName": node} if node else {}),
        "status": {"phase": phase or ("Running" if node else "Pending")},
    }


def asking(name: str, *, workload: str = "", **requests: str) -> Tree:
    """A pod of the namespace `default` with one container and these requests."""
    made = pod(name, workload=workload, namespace="default")
    container = {"name": "c", "image": "none", "resources": {"requests": requests}}
    made["spec"]["containers"] = [container]
    return made


def namespace(name: str, workload: str = "") -> Tree:
    notes = {"annotations": {"joulie.io/workload-class": workload}} if workload else {}
    return {"metadata": {"name": name, **notes}}


def node_hardware(name: str, *, watts: float = 360, gpus: int = 0) -> Tree:
    """A NodeHardware with two sockets of an EPYC 9654 and GPUs of 700 W."""
    status: Tree = {
        "cpu": {
            "model": "AMD EPYC 9654",
            "sockets": 2,
            "totalCores": 192,
            "capRange": {"maxWattsPerSocket": watts},
        }
    }
    if gpus:
        ranges = {"maxWatts": 700}
        status["gpu"] = {"model": "NVIDIA H100", "count": gpus, "capRangePerGpu": ranges}
    return {"metadata": {"name": name}, "spec": {"nodeName": name}, "status": status}


def card(uuid: str, node: str, *, used_mb: int = 0) -> Tree:
    spec = {"nodeName": node, "uuid": uuid, "model": "NVIDIA H100", "totalVRAMmb": 81_559}
    return {
        "metadata": {"name": uuid.lower()},
        "spec": spec,
        "status": {"allocatedVRAMmb": used_mb, "phase": "Available"},
    }


def articles_pod(
    name: str = "training-job-resnet50", model: str = "NVIDIA-H100", **annotations: str
) -> Tree:
    """The example pod of the article on GPUs."""
    return {
        "metadata": {
            "name": name,
            "namespace": "default",
            "annotations": {
                "gpu-extender.mle.com/model": model,
                "gpu-extender.mle.com/vram-mb": "30000",
                **annotations,
            },
        },
        "spec": {
            "containers": [
                {
                    "name": "training-container",
                    "image": "my-tf-image",
                    "resources": {"limits": {"nvidia.com/gpu": "1"}},
                }
            ]
        },
        "status": {"phase": "Pending"},
    }
