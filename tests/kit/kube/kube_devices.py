"""Objects of dynamic resource allocation (DRA), and the part of the controllers that tests need."""

from collections.abc import Sequence
from typing import Any

from joulie_operator.kube.api_client import object_path
from joulie_operator.resources.device_objects import CLAIMS as OF_CLAIMS
from joulie_operator.resources.device_objects import CLASSES as OF_CLASSES
from joulie_operator.resources.device_objects import GROUP, TAINT_RULES
from joulie_operator.resources.device_objects import SLICES as OF_SLICES
from joulie_operator.resources.device_objects import TEMPLATES as OF_TEMPLATES
from kube_api import ApiServer
from kube_builders import asking, schedulable
from kube_conditions import NODES, PODS
from kube_fields import Kind
from kube_real import Running, all_of

Tree = dict[str, Any]
RESOURCES = "/apis/resource.k8s.io/v1"
SLICES, CLASSES = f"{RESOURCES}/resourceslices", f"{RESOURCES}/deviceclasses"
CLAIMS = f"{RESOURCES}/namespaces/default/resourceclaims"
TEMPLATES = f"{RESOURCES}/namespaces/default/resourceclaimtemplates"
DRIVER = "gpu.nvidia.com"
MODEL, MEMORY = "NVIDIA H100 80GB HBM3", "81559Mi"
OF_TEMPLATE = "resource.kubernetes.io/pod-claim-name"


def serve_kinds(server: ApiServer, version: str = "v1") -> None:
    """The stand-in has the API of DRA, without objects."""
    of_cluster = {
        OF_SLICES: "ResourceSlice",
        OF_CLASSES: "DeviceClass",
        TAINT_RULES: "DeviceTaintRule",
    }
    for plural, kind in of_cluster.items():
        server.objects.kinds[GROUP, plural] = Kind(GROUP, version, plural, kind)
    for plural, kind in ((OF_CLAIMS, "ResourceClaim"), (OF_TEMPLATES, "ResourceClaimTemplate")):
        server.objects.kinds[GROUP, plural] = Kind(GROUP, version, plural, kind, namespaced=True)


def device(name: str, *, uuid: str = "", **fields: Any) -> Tree:
    attributes: Tree = {"productName": {"string": MODEL}, "type": {"string": "gpu"}}
    named = {"uuid": {"string": uuid}} if uuid else {}
    capacity = {"memory": {"value": MEMORY}}
    return {"name": name, "attributes": attributes | named, "capacity": capacity, **fields}


def eight(node: str) -> list[Tree]:
    return [device(f"gpu-{at}", uuid=f"GPU-{node}-{at}") for at in range(8)]


def resource_slice(
    node: str,
    devices: list[Tree],
    *,
    driver: str = DRIVER,
    generation: int = 1,
    number: int = 0,
    of: int = 1,
) -> Tree:
    """One of the slices of a generation of the pool of a node."""
    return {
        "metadata": {"name": f"{node}-{driver}-{generation}-{number}"},
        "spec": {
            "driver": driver,
            "nodeName": node,
            "pool": {"name": node, "generation": generation, "resourceSliceCount": of},
            "devices": devices,
        },
    }


def taint_rule(name: str, **selector: Any) -> Tree:
    taint = {"key": "example.com/repair", "value": "fan", "effect": "NoSchedule"}
    return {"metadata": {"name": name}, "spec": {"deviceSelector": selector, "taint": taint}}


def device_class(name: str = DRIVER) -> Tree:
    expression = f"device.driver == '{DRIVER}'"
    return {
        "metadata": {"name": name},
        "spec": {"selectors": [{"cel": {"expression": expression}}]},
    }


def requests(count: int, *, of: str = DRIVER) -> Tree:
    exactly = {"deviceClassName": of, "count": count}
    return {"devices": {"requests": [{"name": "gpus", "exactly": exactly}]}}


def template(name: str, count: int) -> Tree:
    return {"metadata": {"name": name, "namespace": "default"}, "spec": {"spec": requests(count)}}


def claim(name: str, count: int) -> Tree:
    return {"metadata": {"name": name, "namespace": "default"}, "spec": requests(count)}


def claiming(name: str, source: str, *, cores: int = 8, **annotations: str) -> Tree:
    """A pod of the namespace `default`; `source` is "template/NAME" or "claim/NAME"."""
    made = asking(name, cpu=str(cores), memory="16Mi")
    made["metadata"]["annotations"] = annotations
    kind, _, of = source.partition("/")
    field = "resourceClaimName" if kind == "claim" else "resourceClaimTemplateName"
    made["spec"]["resourceClaims"] = [{"name": "gpus", field: of}]
    made["spec"]["terminationGracePeriodSeconds"] = 0
    return made


async def put_nodes_of_eight(
    server: Running, names: Sequence[str], templates: Sequence[tuple[str, int]]
) -> None:
    """Nodes with eight devices each, their class, and templates by name for so many devices."""
    await all_of(server.put(NODES, schedulable(name)) for name in names)
    await server.put(CLASSES, device_class())
    await server.put(TEMPLATES, *[template(name, count) for name, count in templates])
    await all_of(server.put(SLICES, resource_slice(name, eight(name))) for name in names)


async def put_claiming(server: Running, *pods: Tree) -> None:
    """Creates pods, and what the controller of claims makes of their templates."""
    templates = await server.all(TEMPLATES)

    async def one(pod: Tree) -> None:
        await server.put(PODS, pod)
        source = pod["spec"]["resourceClaims"][0].get("resourceClaimTemplateName")
        if source is None:
            return
        name = pod["metadata"]["name"]
        made = f"{name}-gpus"
        uid = (await server.all(PODS))[name]["metadata"]["uid"]
        owner = {"apiVersion": "v1", "kind": "Pod", "name": name, "uid": uid, "controller": True}
        meta: Tree = {
            "name": made,
            "annotations": {OF_TEMPLATE: "gpus"},
            "ownerReferences": [owner],
        }
        await server.put(CLAIMS, {"metadata": meta, "spec": templates[source]["spec"]["spec"]})
        status = {"resourceClaimStatuses": [{"name": "gpus", "resourceClaimName": made}]}
        body = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "status": status}
        await server.api.apply(object_path(PODS, name, "status"), body)

    await all_of(map(one, pods))


async def end_claiming(server: Running, name: str) -> None:
    """Deletes a pod, and its claim as the controllers do."""
    await server.api.delete(object_path(PODS, name))
    await freed(server, f"{name}-gpus")
    await server.api.delete(object_path(CLAIMS, f"{name}-gpus"))


async def freed(server: Running, name: str) -> None:
    """The claim is reserved for no pod any more, and not allocated."""
    found = (await server.all(CLAIMS))[name]
    await server.api.replace(object_path(CLAIMS, name, "status"), found | {"status": {}})
