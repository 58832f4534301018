"""Computes a pod's effective resource request as kube-scheduler does, in integers."""

from collections.abc import Iterable
from fractions import Fraction
from functools import lru_cache
from typing import NamedTuple

import msgspec

from joulie_bus.errors import BadAnnotation
from joulie_bus.events import DeviceAsk, GpuAsk, PodAsk, Ties
from joulie_bus.events.bounds import MOST_BYTES, MOST_CARDS, MOST_CPU_MILLI, MOST_GPU_MILLI
from joulie_projections.hardware.gpu_resources import GPU_RESOURCES, MIG
from joulie_projections.hardware.mig import fraction, profile_of
from joulie_projections.pods.classify import CLASS_ANNOTATIONS, classify, exemption
from joulie_projections.pods.devices import claims_of
from joulie_projections.pods.gpu_request import GPU_ANNOTATIONS, gpu_ask_of
from joulie_projections.pods.groups import group_of
from joulie_projections.pods.kubernetes_pod import (
    Affinity,
    Container,
    Metadata,
    Pod,
    Resources,
    Spec,
)
from joulie_projections.pods.resize import as_counted
from joulie_projections.quantities import Quantity, parse, rounded_up

TEAM_LABEL = "joulie.io/team"
CACHED_ASKS = 8192  # distinct asks, about 8 MiB; all pods of a deployment share one
_NO_TIES = PodAsk(uid="", namespace="", name="").ties  # the default itself: entries omit it
_READ_ANNOTATIONS = CLASS_ANNOTATIONS | GPU_ANNOTATIONS


class Demand(NamedTuple):
    cpu_milli: int
    memory_bytes: int
    gpu_milli: int
    gpu_cards: int = 0  # whole ones


class _AskInputs(msgspec.Struct, array_like=True):
    """The fields of a pod that its ask depends on, without the pod's identity: with the requests
    that count in place of its status, so that pods of a deployment stay equal."""

    annotations: dict[str, str] | None
    team: str
    containers: list[Container] | None
    init_containers: list[Container] | None
    overhead: dict[str, Quantity] | None
    resources: Resources | None
    node_selector: dict[str, str] | None
    affinity: Affinity | None

    @classmethod
    def of(cls, pod: Pod) -> "_AskInputs":
        metadata, spec = pod.metadata, as_counted(pod).spec
        annotations = metadata.annotations
        return cls(
            annotations and {n: text for n, text in annotations.items() if n in _READ_ANNOTATIONS},
            (metadata.labels or {}).get(TEAM_LABEL, ""),
            spec.containers,
            spec.init_containers,
            spec.overhead,
            spec.resources,
            spec.node_selector,
            spec.affinity,
        )

    def pod(self) -> Pod:
        metadata = Metadata(
            annotations=self.annotations,
            labels={TEAM_LABEL: self.team},
        )
        spec = Spec(
            containers=self.containers,
            init_containers=self.init_containers,
            overhead=self.overhead,
            resources=self.resources,
            node_selector=self.node_selector,
            affinity=self.affinity,
        )
        return Pod(metadata, spec)


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(_AskInputs).decode


def ask_of(
    pod: Pod, namespace_class: str | None = None, gpu_resources: tuple[str, ...] = GPU_RESOURCES
) -> PodAsk:
    """Everything that Joulie reads from a pod, in the form that facts carry."""
    metadata, inputs = pod.metadata, _AskInputs.of(pod)
    try:
        asked = _cached_ask(_encode(inputs), namespace_class, gpu_resources)
    except OverflowError:  # an integer that MessagePack cannot hold, as no API server sends
        asked = _ask_without_identity(inputs.pod(), namespace_class, gpu_resources)
    asked = msgspec.structs.replace(
        asked,
        uid=metadata.uid or "",
        namespace=metadata.namespace or "default",
        name=metadata.name or "",
        exempt=exemption(pod),
        ties=_ties(pod),
    )
    if not pod.spec.resource_claims:
        return asked
    return msgspec.structs.replace(asked, devices=DeviceAsk(claims=claims_of(pod)))


def _ties(pod: Pod) -> Ties:
    group = group_of(pod)
    return Ties(group=group) if group else _NO_TIES  # the common case


@lru_cache(maxsize=CACHED_ASKS)
def _cached_ask(kind: bytes, namespace_class: str | None, gpu_resources: tuple[str, ...]) -> PodAsk:
    """The ask without the pod's identity, cached: the exact arithmetic is slow, and all pods of a
    deployment share one ask."""
    return _ask_without_identity(_decode(kind).pod(), namespace_class, gpu_resources)


def _ask_without_identity(
    pod: Pod, namespace_class: str | None, gpu_resources: tuple[str, ...]
) -> PodAsk:
    workload, placement, rule = classify(pod, namespace_class)
    demand = demand_of(pod, gpu_resources)
    gpu = _gpu_ask(pod)
    return PodAsk(
        uid="",
        namespace="",
        name="",
        workload=workload,
        placement=placement,
        rule=rule,
        cpu_milli=demand.cpu_milli,
        memory_bytes=demand.memory_bytes,
        gpu_milli=demand.gpu_milli or gpu.share_milli,
        gpu_cards=demand.gpu_cards,
        gpu=gpu,
        team=(pod.metadata.labels or {}).get(TEAM_LABEL, ""),
    )


def _gpu_ask(pod: Pod) -> GpuAsk:
    """The GPU part of the ask; where an annotation is invalid, only the name of that annotation."""
    try:
        return gpu_ask_of(pod.metadata.annotations or {})
    except BadAnnotation as error:
        return GpuAsk(unreadable=error.name)


def demand_of(pod: Pod, gpu_resources: tuple[str, ...] = GPU_RESOURCES) -> Demand:
    pod = as_counted(pod)
    gpus = sum((effective(pod, name) for name in gpu_resources), Fraction())
    slices = sum(
        (effective(pod, name) * _slice_of(name) for name in sorted(_mig_names(pod))), Fraction()
    )
    # Kubernetes accepts requests larger than any machine. They are capped at what a fact can hold:
    # such a pod fits no node, and if it is bound anyway, the same number is added and subtracted.
    return Demand(
        cpu_milli=min(MOST_CPU_MILLI, rounded_up(effective(pod, "cpu") * 1000)),
        memory_bytes=min(MOST_BYTES, rounded_up(effective(pod, "memory"))),
        gpu_milli=min(MOST_GPU_MILLI, rounded_up((gpus + slices) * 1000)),
        gpu_cards=min(MOST_CARDS, rounded_up(gpus)),
    )


def effective(pod: Pod, resource: str) -> Fraction:
    """The larger of what runs concurrently and the peak during initialization."""
    running = sum((_request_of(c, resource) for c in pod.spec.containers or []), Fraction())
    sidecars, starting = Fraction(), Fraction()
    for container in pod.spec.init_containers or []:
        if container.is_sidecar:
            sidecars += _request_of(container, resource)
            starting = max(starting, sidecars)
        else:
            starting = max(starting, sidecars + _request_of(container, resource))
    of_containers = max(running + sidecars, starting)
    of_pod = _amount(pod.spec.resources, resource, "the pod's own resources")
    overhead = (pod.spec.overhead or {}).get(resource, 0)
    return (of_containers if of_pod is None else of_pod) + parse(overhead, f"overhead {resource}")


def _request_of(container: Container, resource: str) -> Fraction:
    where = f"container {container.name or '?'}"
    return _amount(container.resources, resource, where) or Fraction()


def _amount(resources: Resources | None, resource: str, where: str) -> Fraction | None:
    amount = None if resources is None else resources.requested(resource)
    return None if amount is None else parse(amount, f"{where}, {resource}")


def _mig_names(pod: Pod) -> set[str]:
    return {name for name in _names(pod) if name.startswith(MIG)}


def _names(pod: Pod) -> Iterable[str]:
    for container in [*(pod.spec.containers or []), *(pod.spec.init_containers or [])]:
        resources = container.resources or Resources()
        yield from resources.requests or {}
        yield from resources.limits or {}


def _slice_of(name: str) -> Fraction:
    profile = profile_of(name.removeprefix(MIG))
    return Fraction() if profile is None else fraction(profile)
