"""Hands the nodes back: removes everything that the operator wrote to the API server.

The operator has to be stopped before, because it would write everything again.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from typing import NamedTuple

import msgspec

from joulie_bus.errors import KubernetesRefused
from joulie_operator.apply.gpu_status import CARD
from joulie_operator.apply.requests_back import RequestsBack, give_requests_back
from joulie_operator.cluster_settings import WRITES_AT_ONCE
from joulie_operator.desired.pending_writes import is_labelled
from joulie_operator.kube.api_client import NOT_FOUND, ApiServer, object_path
from joulie_operator.observe.watch import NODES
from joulie_operator.resources.custom_resources import (
    ANNOTATION_MANAGER,
    GPUS,
    MANAGER,
    NODETWINS,
    ObjectMeta,
)


class Described(msgspec.Struct, frozen=True):
    """Any object, as far as a release reads it."""

    metadata: ObjectMeta


class Released(NamedTuple):
    """How many objects were changed or deleted."""

    labels: int
    twins: int
    cards: int
    requests: RequestsBack


class Scale(msgspec.Struct, frozen=True):
    """The subresource `scale`; what it holds beside the replicas is sent back as it came."""

    metadata: dict[str, object]
    spec: dict[str, object]


_read = msgspec.json.Decoder(Described).decode
_read_scale = msgspec.json.Decoder(Scale).decode


async def stop_deployment(api: ApiServer, namespace: str, name: str) -> bool:
    """Sets the replicas of a Deployment to 0. Returns whether it exists."""
    path = f"/apis/apps/v1/namespaces/{namespace}/deployments/{name}/scale"
    found = await api.get(path)
    if found is None:
        return False
    scale = _read_scale(found)
    body = {"apiVersion": "autoscaling/v1", "kind": "Scale", "metadata": scale.metadata}
    await api.replace(path, body | {"spec": scale.spec | {"replicas": 0}})
    return True


async def release(api: ApiServer) -> Released:
    """Gives requests of pods back, then removes labels, then NodeTwins (and the caps in them), then
    statuses of cards."""
    requests = await give_requests_back(api)
    nodes = [meta.name async for meta in _ours(api, NODES) if is_labelled(meta)]
    kept_awake = [meta.name async for meta in _ours(api, NODES, ANNOTATION_MANAGER)]
    twins = [meta.name async for meta in _ours(api, NODETWINS)]
    cards = [meta.name async for meta in _ours(api, GPUS)]
    node = {"apiVersion": "v1", "kind": "Node"}
    await _each(nodes, lambda name: api.apply(object_path(NODES, name), _empty(node, name)))
    await _each(
        kept_awake,
        lambda name: api.apply(
            object_path(NODES, name), _empty(node, name), manager=ANNOTATION_MANAGER
        ),
    )
    await _each(twins, lambda name: api.delete(object_path(NODETWINS, name)))
    await _each(
        cards, lambda name: api.apply(object_path(GPUS, name, "status"), _empty(CARD, name))
    )
    return Released(len(nodes), len(twins), len(cards), requests)


def _empty(kind: dict[str, str], name: str) -> dict[str, object]:
    """Applied, it removes all fields that the operator owns, and no others."""
    return {**kind, "metadata": {"name": name}}


async def _ours(api: ApiServer, kind: str, manager: str = MANAGER) -> AsyncIterator[ObjectMeta]:
    """The objects that hold fields of the operator; none if the kind is not installed."""
    try:
        async for page in api.pages(kind):
            for item in page.items:
                meta = _read(item).metadata
                if meta.is_managed_by(manager):
                    yield meta
    except KubernetesRefused as error:
        if error.code != NOT_FOUND:
            raise


async def _each(names: Iterable[str], write: Callable[[str], Awaitable[object]]) -> None:
    """An object that has gone meanwhile is as good as released."""
    at_once = asyncio.Semaphore(WRITES_AT_ONCE)

    async def one(name: str) -> None:
        async with at_once:
            try:
                await write(name)
            except KubernetesRefused as error:
                if error.code != NOT_FOUND:
                    raise

    async with asyncio.TaskGroup() as tasks:
        for name in names:
            tasks.create_task(one(name))
