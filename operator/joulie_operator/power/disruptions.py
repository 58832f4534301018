"""What the API server knows of evictions: pods that have to stay, and PodDisruptionBudgets."""

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import msgspec

from joulie_operator.kube.api_client import ApiServer
from joulie_operator.observe.watch import PODS
from joulie_operator.power.evictable import LivePod, has_ended, why_it_stays
from joulie_projections.pods.kubernetes_pod import Requirement

BUDGETS = "/apis/policy/v1/poddisruptionbudgets"


class Selector(msgspec.Struct, rename="camel"):
    match_labels: dict[str, str] | None = None
    match_expressions: list[Requirement] | None = None


class BudgetMeta(msgspec.Struct):
    name: str = ""
    namespace: str = ""


class BudgetSpec(msgspec.Struct):
    selector: Selector | None = None  # none selects no pod, and an empty one all


class BudgetStatus(msgspec.Struct, rename="camel"):
    disruptions_allowed: int = 0  # until the controller has counted, none is


class DisruptionBudget(msgspec.Struct):
    metadata: BudgetMeta = msgspec.field(default_factory=BudgetMeta)
    spec: BudgetSpec = msgspec.field(default_factory=BudgetSpec)
    status: BudgetStatus = msgspec.field(default_factory=BudgetStatus)


class Allowed(NamedTuple):
    """How many of these pods may be evicted now."""

    budget: str
    evictions: int
    uids: frozenset[str]


class Disruptions(NamedTuple):
    stays: Mapping[str, str]  # why, by uid
    allowed: Sequence[Allowed]


_read_pod = msgspec.json.Decoder(LivePod).decode
_read_budget = msgspec.json.Decoder(DisruptionBudget).decode


async def disruptions(api: ApiServer, namespaces: Mapping[str, str]) -> Disruptions:
    """`namespaces` are those that set a class for their pods."""
    pods = [_read_pod(item) async for page in api.pages(PODS) for item in page.items]
    budgets = [_read_budget(item) async for page in api.pages(BUDGETS) for item in page.items]
    return disruptions_of(pods, budgets, namespaces)


def disruptions_of(
    pods: Iterable[LivePod], budgets: Sequence[DisruptionBudget], namespaces: Mapping[str, str]
) -> Disruptions:
    live = [pod for pod in pods if not has_ended(pod)]
    return Disruptions(
        {pod.metadata.uid or "": why for pod in live if (why := _why(pod, namespaces))},
        [_allowed(budget, live) for budget in budgets],
    )


def _why(pod: LivePod, namespaces: Mapping[str, str]) -> str:
    if pod.is_ending:
        return "it is being deleted"
    return why_it_stays(pod, namespaces.get(pod.metadata.namespace or ""))


def _allowed(budget: DisruptionBudget, pods: Iterable[LivePod]) -> Allowed:
    meta, selector = budget.metadata, budget.spec.selector
    selected = frozenset(
        pod.metadata.uid or ""
        for pod in pods
        if selector is not None
        and pod.metadata.namespace == meta.namespace
        and _selects(selector, pod.metadata.labels or {})
    )
    name = f"{meta.namespace}/{meta.name}"
    return Allowed(name, max(0, budget.status.disruptions_allowed), selected)


def _selects(selector: Selector, labels: Mapping[str, str]) -> bool:
    wanted = selector.match_labels or {}
    return all(labels.get(key) == value for key, value in wanted.items()) and all(
        _meets(each, labels) for each in selector.match_expressions or ()
    )


def _meets(requirement: Requirement, labels: Mapping[str, str]) -> bool:
    value, values = labels.get(requirement.key), requirement.values or ()
    match requirement.operator:
        case "In":
            return value in values
        case "NotIn":
            return value not in values
        case "Exists":
            return value is not None
        case "DoesNotExist":
            return value is None
        case _:
            return True  # unknown: rather too few moves than too many
