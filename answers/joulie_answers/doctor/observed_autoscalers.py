"""Observes cluster-autoscaler, and the nodes that may sleep beside it."""

import math
from collections.abc import AsyncIterator
from typing import Any

import msgspec

from joulie_answers.doctor.judgement.autoscalers import (
    NAME,
    PROTECTED,
    Autoscaler,
    BesideSleepers,
    Sleepers,
    flags_in,
)
from joulie_bus.errors import KubernetesRefused
from joulie_operator.kube.api_client import NOT_FOUND, ApiServer
from joulie_operator.observe.watch import NODES
from joulie_operator.planning.sleep import SLEEPING_POLICY
from joulie_operator.resources.custom_resources import ANNOTATION_MANAGER, NODETWINS
from joulie_projections.pods.classify import PROFILE_LABEL

DEPLOYMENTS = "/apis/apps/v1/deployments"
Tree = dict[str, Any]
_read = msgspec.json.Decoder(Tree).decode


async def beside_sleepers(api: ApiServer, max_share: float) -> BesideSleepers | None:
    """None if no node sleeps by the policy of the plans. `max_share` is a number of this policy."""
    if not await _lets_nodes_sleep(api):
        return None
    found = [each async for tree in _list(api, DEPLOYMENTS) if (each := _autoscaler(tree))]
    return BesideSleepers(found, await _sleepers(api, max_share)) if found else BesideSleepers(())


async def _lets_nodes_sleep(api: ApiServer) -> bool:
    """By the NodeTwins of a page: each names the policy of its plan."""
    try:
        async for page in api.pages(NODETWINS):
            named = [_read(item).get("spec", {}).get("policy") or {} for item in page.items]
            return any(each.get("name") == SLEEPING_POLICY for each in named)
    except KubernetesRefused as error:
        if error.code != NOT_FOUND:  # the kind is not installed
            raise
    return False


async def _list(api: ApiServer, path: str) -> AsyncIterator[Tree]:
    async for page in api.pages(path):
        for item in page.items:
            yield _read(item)


def _autoscaler(deployment: Tree) -> Autoscaler | None:
    """By the name of the Deployment or of an image."""
    meta, containers = deployment["metadata"], deployment["spec"]["template"]["spec"]["containers"]
    ours = [each for each in containers if NAME in each.get("image", "")]
    if NAME in meta["name"]:
        ours = ours or containers
    if not ours or deployment["spec"].get("replicas") == 0:
        return None
    words = [*ours[0].get("command", ()), *ours[0].get("args", ())]
    return Autoscaler(f"{meta['namespace']}/{meta['name']}", flags_in(words))


async def _sleepers(api: ApiServer, max_share: float) -> Sleepers:
    """Nodes of plans, without those that our operator leaves to an autoscaler: it removes them."""
    metas = [tree["metadata"] async for tree in _list(api, NODES)]
    planned = [each for each in metas if PROFILE_LABEL in each.get("labels", {})]
    planned = [each for each in planned if not _is_left_to_one(each)]
    unprotected = [each["name"] for each in planned if not _is_protected(each)]
    return Sleepers(len(metas), math.floor(max_share * len(planned)), unprotected)


def _is_left_to_one(meta: Tree) -> bool:
    return any(each.get("manager") == ANNOTATION_MANAGER for each in meta.get("managedFields", ()))


def _is_protected(meta: Tree) -> bool:
    return bool(meta.get("annotations", {}).get(PROTECTED) == "true")
