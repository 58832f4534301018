"""Gives pods their own requests back, before the operator goes."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import NamedTuple

from joulie_bus.errors import KubernetesRefused
from joulie_operator.apply.resize_writer import ResizeWriter
from joulie_operator.facts.resizable_pods import Surroundings, resizable
from joulie_operator.kube.api_client import NOT_FOUND, ApiServer, Query, object_path
from joulie_operator.observe.consenting_pods import WITH_OTHER_REQUESTS, listed_pods
from joulie_operator.observe.watch import ALIVE, NAMESPACES, PODS
from joulie_operator.planning.resizes import UNREADABLE, ResizablePod

NOTHING = Surroundings({}, {}, ())
ANSWER_S = 10.0  # in which kubelets answer


class RequestsBack(NamedTuple):
    """How many pods got their own requests back, and those that did not, with the reason."""

    pods: int
    left: list[str]


async def give_requests_back(api: ApiServer) -> RequestsBack:
    """A pod that ends meanwhile is as good as given back. Ends when kubelets have answered."""
    writer, given, left = ResizeWriter(api), list[ResizablePod](), list[str]()
    for pod in [pod async for pod in _listed(api, PODS, WITH_OTHER_REQUESTS)]:
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
        given.append(pod)
    if given:
        await asyncio.sleep(ANSWER_S)
    return RequestsBack(len(given), sorted([*left, *[each async for each in _pending(api, given)]]))


async def _pending(api: ApiServer, pods: Sequence[ResizablePod]) -> AsyncIterator[str]:
    """Those whose requests the kubelet does not change."""
    uids = {pod.uid for pod in pods}
    for namespace in {pod.namespace: None for pod in pods}:
        async for pod in _listed(api, object_path(NAMESPACES, namespace, "pods"), ALIVE):
            if pod.uid in uids and pod.pending:
                yield f"{_named(pod)} (the kubelet answers {pod.pending})"


async def _listed(api: ApiServer, path: str, query: Query) -> AsyncIterator[ResizablePod]:
    async for listed in listed_pods(api, path, query):
        if (pod := resizable(listed, NOTHING)) is not None:
            yield pod


def _named(pod: ResizablePod) -> str:
    return f"{pod.namespace}/{pod.name}"
