"""Gives pods back to the cluster's own scheduler, before ours goes.

A pod cannot change its scheduler. One that waits for ours is deleted if a controller creates it
again; the others are named.
"""

from collections.abc import AsyncIterator
from typing import NamedTuple

import msgspec

from joulie_bus.core.kube_names import path_segment
from joulie_operator.kube.api_client import ApiServer
from joulie_projections.pods.kubernetes_pod import Metadata

_ADMISSION = "/apis/admissionregistration.k8s.io"
# The policy is served by some API servers only; what is not there is deleted already.
CHANGES_PODS = (
    f"{_ADMISSION}/v1/mutatingwebhookconfigurations",
    *(
        f"{_ADMISSION}/{version}/{kind}"
        for version in ("v1", "v1beta1")
        for kind in ("mutatingadmissionpolicybindings", "mutatingadmissionpolicies")
    ),
)
PODS = "/api/v1/pods"
# Their controllers create a pod again. A Job counts a deleted pod as failed.
_REPLACED_BY = frozenset({"ReplicaSet", "StatefulSet", "ReplicationController"})


class Waiting(msgspec.Struct):
    """A pod, as far as this module reads it."""

    metadata: Metadata


class HandedBack(NamedTuple):
    """How many pods were deleted for their controllers, and the names of the others."""

    replaced: int
    waiting: list[str]


_read = msgspec.json.Decoder(Waiting).decode


async def stop_changing_pods(api: ApiServer, name: str) -> None:
    """Deletes the policy and the webhook of this name: new pods keep their scheduler."""
    for kind in CHANGES_PODS:
        await api.delete(f"{kind}/{name}")


async def hand_back(api: ApiServer, scheduler: str) -> HandedBack:
    """Pods that wait for this scheduler. It must not place pods any more."""
    replaced, waiting = 0, list[str]()
    async for pod in _waiting(api, scheduler):
        namespace, name = pod.metadata.namespace or "", pod.metadata.name or ""
        owners = pod.metadata.owner_references or []
        if any(owner.controller and owner.kind in _REPLACED_BY for owner in owners):
            path = f"/api/v1/namespaces/{path_segment(namespace)}/pods/{path_segment(name)}"
            await api.delete(path)
            replaced += 1
        else:
            waiting.append(f"{namespace}/{name}")
    return HandedBack(replaced, sorted(waiting))


async def _waiting(api: ApiServer, scheduler: str) -> AsyncIterator[Waiting]:
    selected = {"fieldSelector": f"spec.nodeName=,spec.schedulerName={scheduler}"}
    async for page in api.pages(PODS, selected):
        for item in page.items:
            yield _read(item)
