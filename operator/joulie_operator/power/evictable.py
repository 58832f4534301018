"""Which pods may be evicted to empty a node.

Only pods that their controller replaces on another node, and that lose nothing: never class
performance, pods without a controller, pods of DaemonSets and Jobs, and pods with data on the node.
"""

from typing import Any

import msgspec

from joulie_projections.pods.classify import classify, exemption
from joulie_projections.pods.kubernetes_pod import Metadata, Pod, Spec
from joulie_projections.pods.replacement import DO_NOT_DISRUPT, REPLACING, SAFE, controller_of

_FINISHED = ("Succeeded", "Failed")
_BELONGS = ("daemonset", "mirror")


class LiveMetadata(Metadata, rename="camel"):
    deletion_timestamp: str | None = None


class Volume(msgspec.Struct, rename="camel"):
    empty_dir: dict[str, Any] | None = None
    host_path: dict[str, Any] | None = None


class LiveSpec(Spec, rename="camel"):
    volumes: list[Volume] | None = None
    termination_grace_period_seconds: int | None = None


class LivePod(Pod):
    """A pod as the API server has it, with the fields that an eviction depends on."""

    metadata: LiveMetadata = msgspec.field(  # pyright: ignore[reportIncompatibleVariableOverride]
        default_factory=LiveMetadata
    )
    spec: LiveSpec = msgspec.field(  # pyright: ignore[reportIncompatibleVariableOverride]
        default_factory=LiveSpec
    )

    @property
    def is_ending(self) -> bool:
        return self.metadata.deletion_timestamp is not None


def named(pod: LivePod) -> str:
    return f"{pod.metadata.namespace}/{pod.metadata.name}"


def has_ended(pod: Pod) -> bool:
    """Whether the pod keeps its node awake no more, or never did: it is finished, or stays with the
    node."""
    phase = pod.status.phase if pod.status else None
    return phase in _FINISHED or exemption(pod) in _BELONGS


def why_it_stays(pod: LivePod, namespace_class: str | None) -> str:
    """The reason why the pod is not evicted; empty if it may be."""
    if pod.is_ending:
        return ""
    if exemption(pod):
        return "it is critical for the system"
    if classify(pod, namespace_class).workload == "performance":
        return "it is of class performance"
    return _unmovable(pod) or _protected(pod)


def _unmovable(pod: LivePod) -> str:
    controller = controller_of(pod)
    if controller is None:
        return "it has no controller that would replace it"
    if controller not in REPLACING:
        return f"a {controller.kind} controls it, which does not continue its work elsewhere"
    return ""


def _protected(pod: LivePod) -> str:
    annotations = pod.metadata.annotations or {}
    if annotations.get(SAFE) == "false":
        return f"its annotation {SAFE} is false"
    if annotations.get(DO_NOT_DISRUPT) == "true":
        return f"its annotation {DO_NOT_DISRUPT} is true"
    volumes = pod.spec.volumes or []
    is_local = any((each.empty_dir, each.host_path) != (None, None) for each in volumes)
    if is_local and annotations.get(SAFE) != "true":
        return f"it has data on its node, and no annotation {SAFE}=true"
    return ""
