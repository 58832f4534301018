"""Writes the requests of one pod, and the mark that keeps its own.

The mark is written before the requests change, and removed after they are the pod's own again: a
crash in between loses nothing. It is metadata that is written with the status, so that no right to
pods as a whole is needed; a policy of deploy/rbac.yaml allows these two names alone.
"""

from typing import Any

from joulie_bus.events import Requests, ResizeOrdered
from joulie_operator.facts.resizable_pods import OWN, RESIZED, amounts_of, kept
from joulie_operator.kube.api_client import ApiServer, object_path
from joulie_operator.observe.watch import NAMESPACES
from joulie_operator.planning.resizes import ResizablePod

FIELDS = "joulie-requests"  # the field manager


class ResizeWriter:
    def __init__(self, api: ApiServer) -> None:
        self._api = api

    async def carry_out(self, pod: ResizablePod, order: ResizeOrdered, now: int) -> None:
        """Raises KubernetesRefused; the mark may be left then, with the pod's own requests."""
        if order.change != "give-back":
            await self._mark(pod, kept(order.original, now))
        await self.write(pod, order.after)

    async def write(self, pod: ResizablePod, requests: Requests) -> None:
        containers = [
            {"name": each.name, "resources": {"requests": amounts_of(each)}} for each in requests
        ]
        await self._api.merge(
            _path(pod, "resize"), _body(pod) | {"spec": {"containers": containers}}
        )

    async def unmark(self, pod: ResizablePod) -> None:
        await self._api.apply(_path(pod, "status"), _body(pod), manager=FIELDS)

    async def _mark(self, pod: ResizablePod, annotation: str) -> None:
        body = _body(pod)
        body["metadata"] |= {"labels": {RESIZED: "true"}, "annotations": {OWN: annotation}}
        await self._api.apply(_path(pod, "status"), body, manager=FIELDS)


def _path(pod: ResizablePod, part: str) -> str:
    return object_path(object_path(NAMESPACES, pod.namespace, "pods"), pod.name, part)


def _body(pod: ResizablePod) -> dict[str, Any]:
    """With the uid: another pod of the same name is refused."""
    meta = {"name": pod.name, "namespace": pod.namespace, "uid": pod.uid}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": meta}
