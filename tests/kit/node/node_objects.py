"""Objects of a cluster with containers, and a list of all that it holds."""

import asyncio

from node_cluster import PATIENCE_S, STORAGE, Cluster, Tree
from node_network import Node
from node_programs import FAKE

DEFAULT = "default"
PASSING = {"events", "events.events.k8s.io"}  # the API server deletes them after an hour


def container(cpu: str = "1m") -> Tree:
    named = {"name": "pause", "image": "localhost/pause:1", "imagePullPolicy": "Never"}
    return named | {"resources": {"requests": {"cpu": cpu}}}


def waiting_pod(name: str, namespace: str) -> Tree:
    """A pod that runs until it is deleted."""
    metadata = {"name": name, "namespace": namespace}
    spec = {"containers": [container()], "terminationGracePeriodSeconds": 1}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


def deployment(name: str, namespace: str, replicas: int, cpu: str = "1m") -> Tree:
    labels = {"app": name}
    spec = {"containers": [container(cpu)], "terminationGracePeriodSeconds": 1}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": spec},
        },
    }


def claims(projectors: int = 1, brokers: int = 1, extenders: int = 1) -> dict[str, str]:
    """The claims of the chart and their sizes; tests/deploy/test_volumes.py compares."""
    sizes = {"joulie-projector-keys": "16Mi", "joulie-archive": "64Gi", "joulie-ledger": "2Gi"}
    counted = {"data-joulie-projector": (projectors, "20Gi"), "data-joulie-nats": (brokers, "32Gi")}
    counted["spool-joulie-extender"] = (extenders, "1Gi")
    for name, (count, size) in counted.items():
        sizes |= {f"{name}-{number}": size for number in range(count)}
    return sizes


async def volumes(cluster: Cluster, **replicas: int) -> None:
    """A volume of each claim's size on each node, whichever node its pod gets."""
    for node in cluster.nodes:
        for name, size in claims(**replicas).items():
            await cluster.apply(volume(name, size, node))


def volume(name: str, size: str, node: Node) -> Tree:
    """A volume on the disk of the node."""
    path = node.place / "volumes" / name
    path.mkdir(parents=True)
    here = {"key": "kubernetes.io/hostname", "operator": "In", "values": [node.name]}
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": f"{node.name}-{name}"},
        "spec": {
            "capacity": {"storage": size},
            "accessModes": ["ReadWriteOnce"],
            "storageClassName": STORAGE["metadata"]["name"],
            "persistentVolumeReclaimPolicy": "Retain",
            "local": {"path": str(path)},
            "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [here]}]}},
        },
    }


async def everything(cluster: Cluster, namespace: str = "") -> set[str]:
    """Every object that the API server lists, as kind/namespace/name."""
    kinds = ["api-resources", "--verbs=list", "-o", "name"]
    listed = (await cluster.told(*kinds)).split()
    wanted = ",".join(kind for kind in listed if kind not in PASSING)
    where = ["-n", namespace] if namespace else ["--all-namespaces"]
    names = "{range .items[*]}{.kind}/{.metadata.namespace}/{.metadata.name}{'\\n'}{end}"
    return set((await cluster.told("get", wanted, *where, "-o", f"jsonpath={names}")).split())


async def settled(cluster: Cluster) -> set[str]:
    """Everything, once controllers and kubelets have made what they make by themselves."""
    before, found = {""}, set[str]()
    made = {f"Lease/kube-node-lease/{node.name}" for node in cluster.nodes}
    made.add(f"ConfigMap/{DEFAULT}/kube-root-ca.crt")
    async with asyncio.timeout(PATIENCE_S):
        while before != found or not made <= found:
            await asyncio.sleep(3)
            before, found = found, await everything(cluster)
    return found


# Of the taint of nodes without a kubelet.
TOLERATION = {"key": "type", "operator": "Equal", "value": FAKE["type"], "effect": "NoSchedule"}


def fake_node(name: str) -> Tree:
    """A node without a kubelet; only pods that tolerate it go there."""
    room = {"cpu": "64", "memory": "256Gi", "pods": "110"}
    taint = {"key": "type", "value": FAKE["type"], "effect": "NoSchedule"}
    labels = {"kubernetes.io/hostname": name, "joulie.io/managed": "true", **FAKE}
    return {
        "metadata": {"name": name, "labels": labels},
        "spec": {"taints": [taint]},
        "status": {"allocatable": room, "capacity": room},
    }


def fake_pod(name: str, namespace: str, **annotations: str) -> Tree:
    """A pod for the nodes without a kubelet."""
    tree = waiting_pod(name, namespace)
    tree["metadata"]["annotations"] = annotations
    tree["spec"] |= {
        "containers": [container("100m")],
        "nodeSelector": FAKE,
        "tolerations": [TOLERATION],
    }
    return tree
