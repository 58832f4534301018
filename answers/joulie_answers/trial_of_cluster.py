"""`joulie try --from kubeconfig`: lists a cluster once, with rights to read, and packs it again."""

import re
from collections.abc import Mapping
from pathlib import Path

import msgspec

from joulie_bus.errors import KubernetesRefused, NotTried, one_line
from joulie_operator.kube.api_client import (
    FORBIDDEN,
    NOT_FOUND,
    UNAUTHORIZED,
    ApiServer,
    ApiUnreachable,
)
from joulie_operator.kube.served import server_version
from joulie_operator.observe.watch import PODS
from joulie_operator.power.disruptions import BUDGETS, DisruptionBudget, disruptions_of
from joulie_operator.power.evictable import LivePod
from joulie_projections.hardware.catalog import Catalog
from joulie_projections.pods.classify import CLASS_ANNOTATION
from joulie_simulator.trial.moment import Listed, moment_of
from joulie_simulator.trial.packing import Trial, tried

NODES, NAMESPACES = "/api/v1/nodes", "/api/v1/namespaces"
RIGHTS = "deploy/rbac-try.yaml"
NO_BUDGET_LEFT = "a PodDisruptionBudget allows no disruption of it now"


class NamespaceMeta(msgspec.Struct):
    name: str = ""
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None


class Namespace(msgspec.Struct):
    metadata: NamespaceMeta = msgspec.field(default_factory=NamespaceMeta)


async def trial_of_cluster(kubeconfig: Path | None, context: str | None, catalog: Catalog) -> Trial:
    """Without a kubeconfig: by the account of the pod in which this runs. Raises NotTried."""
    async with ApiServer.of(kubeconfig, context) as api:
        try:
            listed = await lists_of(api)
        except ApiUnreachable as error:
            why = one_line(str(error) or type(error).__name__)
            raise NotTried(
                f"The API server cannot be reached: {why}",
                "Nothing was computed. Check the server and the context of the kubeconfig.",
            ) from error
    return tried(moment_of(listed, catalog), catalog)


async def lists_of(api: ApiServer) -> Listed:
    nodes, pods = await _required(api, NODES), await _required(api, PODS)
    namespaces = await _namespaces(api)
    budgets = await _allowed(api, BUDGETS)
    classes = {
        name: each.metadata.annotations.get(CLASS_ANNOTATION, "")
        for name, each in (namespaces or {}).items()
        if each.metadata.annotations
    }
    return Listed(
        nodes,
        pods,
        None
        if namespaces is None
        else {name: each.metadata.labels or {} for name, each in namespaces.items()},
        _stays(pods, budgets or [], classes),
        budgets is not None,
        await _minor(api),
    )


async def _items(api: ApiServer, path: str) -> list[msgspec.Raw]:
    return [item async for page in api.pages(path) for item in page.items]


async def _required(api: ApiServer, path: str) -> list[msgspec.Raw]:
    try:
        return await _items(api, path)
    except KubernetesRefused as error:
        what = path.rpartition("/")[2]
        if error.code not in (UNAUTHORIZED, FORBIDDEN):
            raise NotTried(f"The {what} could not be listed: {one_line(error.why)}") from error
        raise NotTried(
            f"This account may not list {what}: {one_line(error.why)}",
            f"Nothing was computed. The rights that this needs are in {RIGHTS}; or name another "
            "context of the kubeconfig with --context.",
        ) from error


async def _allowed(api: ApiServer, path: str) -> list[msgspec.Raw] | None:
    """None without the right, or where the server does not have them."""
    try:
        return await _items(api, path)
    except KubernetesRefused as error:
        if error.code in (UNAUTHORIZED, FORBIDDEN, NOT_FOUND):
            return None
        raise


async def _namespaces(api: ApiServer) -> dict[str, Namespace] | None:
    found = await _allowed(api, NAMESPACES)
    if found is None:
        return None
    read = (msgspec.json.decode(each, type=Namespace) for each in found)
    return {each.metadata.name: each for each in read}


async def _minor(api: ApiServer) -> int:
    digits = re.match(r"\d+", (await server_version(api)).minor)
    return int(digits.group()) if digits else 0


def _stays(
    pods: list[msgspec.Raw], budgets: list[msgspec.Raw], classes: Mapping[str, str]
) -> dict[str, str]:
    """Why a pod may not be moved, by its uid: as for evictions."""
    found = disruptions_of(
        [msgspec.json.decode(each, type=LivePod) for each in pods],
        [msgspec.json.decode(each, type=DisruptionBudget) for each in budgets],
        classes,
    )
    spent = {
        uid: NO_BUDGET_LEFT for each in found.allowed if not each.evictions for uid in each.uids
    }
    return {**spent, **found.stays}
