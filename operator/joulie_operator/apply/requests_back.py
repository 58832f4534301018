"""Gives pods their own requests back, before the operator goes."""

from collections.abc import AsyncIterator
from typing import NamedTuple

from joulie_bus.errors import KubernetesRefused
from joulie_operator.apply.resize_writer import ResizeWriter
from joulie_operator.facts.resizable_pods import RESIZED, Surroundings, read_pod, resizable
from joulie_operator.kube.api_client import NOT_FOUND, ApiServer
from joulie_operator.observe.watch import PODS
from joulie_operator.planning.resizes import UNREADABLE, ResizablePod

NOTHING = Surroundings({}, {}, ())


class RequestsBack(NamedTuple):
    """How many pods got their own requests back, and those that did not, with the reason."""

    pods: int
    left: list[str]


async def give_requests_back(api: ApiServer) -> RequestsBack:
    """A pod that ends meanwhile is as good as given back."""
    writer, given, left = ResizeWriter(api), 0, list[str]()
    for pod in [pod async for pod in _resized(api)]:
        if pod.forbids is not None and pod.forbids.reason == UNREADABLE:
            left.append(f"{_named(pod)} ({pod.forbids.because})")
            continue
        try:
            await writer.write(pod, pod.own)
            await writer.unmark(pod)
        except KubernetesRefused as error:
            if error.code != NOT_FOUND:
                left.append(f"{_named(pod)} ({error.why})")
            continue
        given += 1
        if pod.pending:
            left.append(f"{_named(pod)} (the kubelet answers {pod.pending})")
    return RequestsBack(given, sorted(left))


async def _resized(api: ApiServer) -> AsyncIterator[ResizablePod]:
    async for page in api.pages(PODS, {"labelSelector": RESIZED}):
        for item in page.items:
            if (pod := resizable(read_pod(item), NOTHING)) is not None:
                yield pod


def _named(pod: ResizablePod) -> str:
    return f"{pod.namespace}/{pod.name}"
