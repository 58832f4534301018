"""Pods whose requests may change, as the API server has them: consent, requests, what forbids it.

The label `joulie.io/right-size` of the pod counts, else that of its namespace. While a pod has
other requests than its own, an annotation keeps its own, and a label finds it.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import msgspec

from joulie_bus.core.undecodable import UNDECODABLE
from joulie_bus.errors import BadQuantity
from joulie_bus.events import ContainerRequest, Requests
from joulie_operator.facts.scalers import Scaler, scaler_of
from joulie_operator.planning.resizes import NOT_LISTED, UNREADABLE, ResizablePod, WhyNot
from joulie_projections.pods.classify import classify, exemption
from joulie_projections.pods.kubernetes_pod import Container, Metadata, Pod, Spec, Status
from joulie_projections.quantities import Quantity, parse, rounded_up

CONSENT = "joulie.io/right-size"
RESIZED = "joulie.io/right-sized"  # the label of a pod with other requests than its own
OWN = "joulie.io/own-requests"  # the annotation with them
OFF = "off"
PENDING = "PodResizePending"
_UNITS = ((1 << 30, "Gi"), (1 << 20, "Mi"), (1 << 10, "Ki"), (1, ""))


class ResizePolicy(msgspec.Struct, rename="camel"):
    restart_policy: str = ""


class SizedContainer(Container, rename="camel"):
    resize_policy: list[ResizePolicy] | None = None


class SizedSpec(Spec, rename="camel"):
    containers: list[SizedContainer] | None = None  # type: ignore[assignment] # pyright: ignore[reportIncompatibleVariableOverride]


class SizedStatus(Status, rename="camel"):
    qos_class: str | None = None


class SizedMetadata(Metadata, rename="camel"):
    deletion_timestamp: str | None = None


class SizedPod(Pod):
    """A pod with the fields that a resize depends on."""

    metadata: SizedMetadata = msgspec.field(  # pyright: ignore[reportIncompatibleVariableOverride]
        default_factory=SizedMetadata
    )
    spec: SizedSpec = msgspec.field(  # pyright: ignore[reportIncompatibleVariableOverride]
        default_factory=SizedSpec
    )
    status: SizedStatus | None = None  # pyright: ignore[reportIncompatibleVariableOverride]


class Kept(msgspec.Struct, frozen=True, rename="camel"):
    """The value of the annotation."""

    ordered_at: int  # nanoseconds
    requests: dict[str, dict[str, Quantity]]  # by the container, as in its spec


class Surroundings(NamedTuple):
    """What a decision about a pod depends on beside the pod."""

    consents: Mapping[str, str]  # of namespaces, by their names
    classes: Mapping[str, str]  # of namespaces that set a class
    scalers: Sequence[Scaler] | None  # None: without the right to list them


read_pod = msgspec.json.Decoder(SizedPod).decode
_read_kept = msgspec.json.Decoder(Kept).decode


def resizable(pod: SizedPod, around: Surroundings) -> ResizablePod | None:
    """None for a pod that runs nowhere or ends."""
    meta, status = pod.metadata, pod.status
    is_running = status is not None and status.phase == "Running" and pod.spec.node_name
    if not is_running or meta.deletion_timestamp is not None:
        return None
    consent, present = consent_of(pod, around.consents), requests_of(pod.spec.containers or ())
    found = ResizablePod(
        uid=meta.uid or "",
        namespace=meta.namespace or "",
        name=meta.name or "",
        node=pod.spec.node_name or "",
        consent=consent,
        present=present,
        forbids=_forbids(pod, around),
        pending=_pending(status),
    )
    return _with_own(found, (meta.annotations or {}).get(OWN))


def consent_of(pod: Pod, of_namespaces: Mapping[str, str]) -> str:
    own = (pod.metadata.labels or {}).get(CONSENT)
    given = of_namespaces.get(pod.metadata.namespace or "", "") if own is None else own
    return "" if given == OFF else given


def requests_of(containers: Iterable[Container]) -> Requests:
    return tuple(
        _request(each.name or "", (each.resources and each.resources.requests) or {})
        for each in containers
    )


def kept(own: Requests, ordered_at: int) -> str:
    """The annotation of a pod with other requests than its own."""
    requests = {each.name: amounts_of(each) for each in own}
    return msgspec.json.encode(Kept(ordered_at, requests)).decode()


def amounts_of(request: ContainerRequest) -> dict[str, Quantity]:
    """As in the spec of a container."""
    amounts = dict[str, Quantity]()
    if (milli := request.cpu_milli) is not None:
        amounts["cpu"] = f"{milli}m" if milli % 1000 else f"{milli // 1000}"
    if (size := request.memory_bytes) is not None:
        unit, suffix = next(each for each in _UNITS if size % each[0] == 0)
        amounts["memory"] = f"{size // unit}{suffix}"
    return amounts


def _request(name: str, amounts: Mapping[str, Quantity]) -> ContainerRequest:
    cpu, memory = amounts.get("cpu"), amounts.get("memory")
    return ContainerRequest(
        name,
        None if cpu is None else rounded_up(parse(cpu) * 1000),
        None if memory is None else rounded_up(parse(memory)),
    )


def _with_own(pod: ResizablePod, annotation: str | None) -> ResizablePod:
    if annotation is None:
        return pod
    try:
        read = _read_kept(annotation)
        own = tuple(_request(each.name, read.requests[each.name]) for each in pod.present)
    except (*UNDECODABLE, BadQuantity, KeyError) as error:
        why = f"its annotation {OWN} cannot be read ({error}); correct it or delete the pod"
        return pod._replace(forbids=WhyNot(UNREADABLE, why))
    return pod._replace(original=own, ordered_at=read.ordered_at)


def _pending(status: Status | None) -> str:
    found = (status.conditions if status else None) or ()
    return next((each.reason or "Deferred" for each in found if each.type == PENDING), "")


# --- what forbids a resize --------------------------------------------------------------------


def _forbids(pod: SizedPod, around: Surroundings) -> WhyNot | None:
    if why := _by_kind(pod) or _by_class(pod, around.classes):
        return why
    return NOT_LISTED if around.scalers is None else scaler_of(pod, around.scalers)


def _by_kind(pod: SizedPod) -> WhyNot | None:
    """What stays as long as the pod."""
    if exemption(pod) == "mirror":
        return WhyNot("static", "it is a static pod, which only its node changes")
    if pod.status is None or pod.status.qos_class != "Burstable":
        qos = (pod.status and pod.status.qos_class) or "unknown"
        return WhyNot("qos", f"its QoS class is {qos}, and only Burstable stays as it is")
    whole = pod.spec.resources
    if whole is not None and (whole.requests or whole.limits):
        return WhyNot("pod-level", "it has requests as a whole, beside those of its containers")
    restarts = [each.name for each in pod.spec.containers or () if _restarts(each)]
    if restarts:
        why = f"a resize would restart {restarts[0]} (resizePolicy RestartContainer)"
        return WhyNot("restart", why)
    return None


def _restarts(container: SizedContainer) -> bool:
    policies = container.resize_policy or ()
    return any(each.restart_policy == "RestartContainer" for each in policies)


def _by_class(pod: Pod, classes: Mapping[str, str]) -> WhyNot | None:
    """A pod of class performance has to consent itself."""
    itself = CONSENT in (pod.metadata.labels or {})
    of_namespace = classes.get(pod.metadata.namespace or "")
    if itself or classify(pod, of_namespace).workload != "performance":
        return None
    why = f"it is of class performance, and only its namespace consents: give the pod {CONSENT}"
    return WhyNot("performance", why)
