"""Autoscalers that read or write the requests of pods, by the name of what they scale."""

from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from joulie_bus.core.undecodable import UNDECODABLE
from joulie_operator.planning.resizes import WhyNot
from joulie_projections.pods.kubernetes_pod import Pod

HPAS = "/apis/autoscaling/v2/horizontalpodautoscalers"  # KEDA makes such ones
VPAS = "/apis/autoscaling.k8s.io/v1/verticalpodautoscalers"
EVERY = ""


class Scaler(NamedTuple):
    namespace: str  # EVERY: what is known of it does not say which
    scaled: str  # the name of a Deployment, a StatefulSet or another controller; EVERY likewise
    refusal: WhyNot


class _Ref(msgspec.Struct):
    name: str = ""


class _Meta(msgspec.Struct):
    name: str = ""
    namespace: str = ""


class _Target(msgspec.Struct):
    type: str = ""


class _OfResource(msgspec.Struct):
    target: _Target = msgspec.field(default_factory=_Target)


class _Metric(msgspec.Struct, rename="camel"):
    resource: _OfResource | None = None
    container_resource: _OfResource | None = None


class _HpaSpec(msgspec.Struct, rename="camel"):
    scale_target_ref: _Ref = msgspec.field(default_factory=_Ref)
    metrics: list[_Metric] | None = None


class _Hpa(msgspec.Struct):
    metadata: _Meta
    spec: _HpaSpec


class _UpdatePolicy(msgspec.Struct, rename="camel"):
    update_mode: str | None = None


class _VpaSpec(msgspec.Struct, rename="camel"):
    target_ref: _Ref | None = None
    update_policy: _UpdatePolicy | None = None


class _Vpa(msgspec.Struct):
    metadata: _Meta
    spec: _VpaSpec


class _Names(msgspec.Struct):
    metadata: _Meta = msgspec.field(default_factory=_Meta)


_read_names = msgspec.json.Decoder(_Names).decode
_read_hpa = msgspec.json.Decoder(_Hpa).decode
_read_vpa = msgspec.json.Decoder(_Vpa).decode


def of_hpa(raw: bytes | msgspec.Raw) -> Scaler | None:
    """None if none of its targets is relative to the requests."""
    hpa = _read_hpa(raw)
    parts = [part for each in hpa.spec.metrics or () for part in _resources(each)]
    if not any(each.target.type == "Utilization" for each in parts):
        return None
    meta = hpa.metadata
    why = f"the HorizontalPodAutoscaler {meta.name} scales by the use of its requests"
    return Scaler(meta.namespace, hpa.spec.scale_target_ref.name, WhyNot("hpa", why))


def of_vpa(raw: bytes | msgspec.Raw) -> Scaler | None:
    vpa = _read_vpa(raw)
    policy, target = vpa.spec.update_policy, vpa.spec.target_ref
    if target is None or (policy is not None and policy.update_mode == "Off"):
        return None
    why = f"the VerticalPodAutoscaler {vpa.metadata.name} sets its requests (mode not Off)"
    return Scaler(vpa.metadata.namespace, target.name, WhyNot("vpa", why))


def of_unreadable(raw: bytes | msgspec.Raw, kind: str, error: Exception) -> Scaler:
    """It may read the requests of any pod of its namespace, or of all without a readable one."""
    try:
        meta = _read_names(raw).metadata
    except UNDECODABLE:
        meta = _Meta()
    why = f"the {kind} {meta.name or 'without a name'} cannot be read, and may use them: {error}"
    return Scaler(meta.namespace or EVERY, EVERY, WhyNot("autoscaler-unreadable", why))


def scaler_of(pod: Pod, scalers: Sequence[Scaler]) -> WhyNot | None:
    """A ReplicaSet has the name of what controls it and a suffix. Kinds do not count: a pod that is
    taken for one of another controller keeps its requests."""
    meta = pod.metadata
    owners = [each.name or "" for each in meta.owner_references or () if each.controller]
    names = {meta.name or "", *owners, *(owner.rpartition("-")[0] for owner in owners)} - {""}
    for each in scalers:
        is_named = each.scaled == EVERY or each.scaled in names
        if is_named and each.namespace in (EVERY, meta.namespace):
            return each.refusal
    return None


def _resources(metric: _Metric) -> list[_OfResource]:
    return [each for each in (metric.resource, metric.container_resource) if each is not None]
