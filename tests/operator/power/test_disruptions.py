"""Pods that have to stay, and how many of each PodDisruptionBudget may be evicted."""

from typing import Any

import msgspec
import pytest

from joulie_operator.power.disruptions import DisruptionBudget, disruptions_of
from joulie_operator.power.evictable import LivePod

REPLICA_SET = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web", "controller": True}


def pod(uid: str, namespace: str = "team", **metadata: Any) -> LivePod:
    owned = {"ownerReferences": [REPLICA_SET], "labels": {"app": uid[0]}}
    tree = {
        "metadata": {"name": uid, "uid": uid, "namespace": namespace} | owned | metadata,
        "spec": {"nodeName": "n1", "containers": [{"name": "c"}]},
        "status": {"phase": "Running"},
    }
    return msgspec.convert(tree, LivePod)


def budget(selector: dict[str, Any] | None, allowed: int | None = 1) -> DisruptionBudget:
    spec = {} if selector is None else {"selector": selector}
    status = {} if allowed is None else {"disruptionsAllowed": allowed}
    tree = {"metadata": {"name": "b", "namespace": "team"}, "spec": spec, "status": status}
    return msgspec.convert(tree, DisruptionBudget)


PODS = [pod("a1"), pod("a2"), pod("b1"), pod("a3", "other")]


def expression(operator: str, *values: str, key: str = "app") -> dict[str, Any]:
    return {"matchExpressions": [{"key": key, "operator": operator, "values": list(values)}]}


@pytest.mark.parametrize(
    ("selector", "uids"),
    [
        (None, ""),
        ({}, "a1 a2 b1"),
        ({"matchLabels": {"app": "a"}}, "a1 a2"),
        (expression("In", "a", "c"), "a1 a2"),
        (expression("NotIn", "a"), "b1"),
        (expression("Exists"), "a1 a2 b1"),
        (expression("DoesNotExist"), ""),
        (expression("DoesNotExist", key="other"), "a1 a2 b1"),
        (expression("NoSuchOperator"), "a1 a2 b1"),
    ],
)
def test_a_budget_counts_the_pods_of_its_namespace_that_its_selector_names(
    selector: dict[str, Any] | None, uids: str
) -> None:
    [allowed] = disruptions_of(PODS, [budget(selector)], {}).allowed

    assert allowed.budget == "team/b"
    assert sorted(allowed.uids) == uids.split()


def test_a_budget_that_nobody_has_counted_yet_allows_no_eviction() -> None:
    assert disruptions_of(PODS, [budget({}, None)], {}).allowed[0].evictions == 0
    assert disruptions_of(PODS, [budget({}, 2)], {}).allowed[0].evictions == 2


def test_pods_stay_for_the_reasons_for_which_they_are_not_evicted() -> None:
    bare = pod("bare", ownerReferences=[])
    ending = pod("ending", deletionTimestamp="2026-01-01T00:00:00Z")
    found = disruptions_of([*PODS, bare, ending], [], {"other": "performance"}).stays

    assert found == {
        "a3": "it is of class performance",
        "bare": "it has no controller that would replace it",
        "ending": "it is being deleted",
    }
