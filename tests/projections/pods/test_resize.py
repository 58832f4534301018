"""What a pod asks for while it is resized in place, as kube-scheduler counts it."""

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from joulie_projections.pods import demand
from joulie_projections.pods.demand import Demand, ask_of, demand_of
from joulie_projections.pods.kubernetes_pod import Pod
from joulie_projections.quantities import Quantity

GIB = 2**30
DEFERRED = {"type": "PodResizePending", "status": "True", "reason": "Deferred"}
INFEASIBLE = DEFERRED | {"reason": "Infeasible"}
Tree = dict[str, Any]


def asking(name: str = "main", **requests: Quantity) -> Tree:
    return {"name": name, "resources": {"requests": requests}}


def status_of(name: str, allocated: Tree | None, actual: Tree | None) -> Tree:
    found: Tree = {"name": name, "ready": True}
    if allocated is not None:
        found["allocatedResources"] = allocated
    if actual is not None:
        found["resources"] = {"requests": actual}
    return found


def running(
    *containers: Tree, statuses: list[Tree], conditions: list[Tree] | None = None, **spec: Any
) -> Pod:
    status = {"phase": "Running", "containerStatuses": statuses, "conditions": conditions or []}
    tree = {"spec": {"containers": list(containers), **spec}, "status": status}
    return msgspec.convert(tree, Pod)


def one(
    spec: Quantity, allocated: Quantity, actual: Quantity, conditions: list[Tree] | None = None
) -> int:
    """Of a pod with one container."""
    statuses = [status_of("main", {"cpu": allocated}, {"cpu": actual})]
    return demand_of(running(asking(cpu=spec), statuses=statuses, conditions=conditions)).cpu_milli


@pytest.mark.parametrize(
    ("spec", "allocated", "actual", "conditions", "milli"),
    [
        pytest.param("1", "1", "1", [], 1000, id="never resized"),
        pytest.param("4", "1", "1", [], 4000, id="asked to grow"),
        pytest.param("4", "1", "1", [DEFERRED], 4000, id="the node has no room now"),
        pytest.param("4", "1", "1", [INFEASIBLE], 1000, id="the node never has room"),
        pytest.param("4", "1", "2", [INFEASIBLE], 2000, id="in force from an earlier resize"),
        pytest.param("4", "4", "1", [], 4000, id="grown, not in force yet"),
        pytest.param("4", "4", "4", [], 4000, id="grown"),
        pytest.param("1", "4", "4", [], 4000, id="asked to shrink"),
        pytest.param("1", "1", "4", [], 4000, id="shrunk, not in force yet"),
        pytest.param("1", "1", "1", [DEFERRED], 1000, id="shrunk"),
        pytest.param("1500m", "1.5", "1", [], 1500, id="another text of the same amount"),
        pytest.param("0", "1", "1", [{"type": "Ready", "reason": "Infeasible"}], 1000, id="Ready"),
    ],
)
def test_the_largest_of_what_is_asked_allocated_and_in_force_counts(
    spec: Quantity, allocated: Quantity, actual: Quantity, conditions: list[Tree], milli: int
) -> None:
    assert one(spec, allocated, actual, conditions) == milli


def test_each_container_and_each_resource_counts_by_itself() -> None:
    grows, shrinks = asking("a", cpu="3", memory="1Gi"), asking("b", cpu="1", memory="2Gi")
    was = {"cpu": "2", "memory": "3Gi"}
    pod = running(grows, shrinks, statuses=[status_of(name, was, was) for name in "ab"])

    assert demand_of(pod) == Demand(3000 + 2000, 6 * GIB, 0)


@pytest.mark.parametrize(
    "statuses",
    [
        pytest.param([], id="none"),
        pytest.param([{"name": "main"}], id="of a kubelet that does not resize"),
        pytest.param([status_of("main", {"cpu": "8"}, None)], id="without what is in force"),
        pytest.param([status_of("other", {"cpu": "8"}, {"cpu": "8"})], id="of another container"),
        pytest.param([{"name": "main", "resources": {"requests": None}}], id="without requests"),
    ],
)
def test_without_a_status_of_it_the_spec_of_a_container_counts(statuses: list[Tree]) -> None:
    assert demand_of(running(asking(cpu="2"), statuses=statuses)).cpu_milli == 2000


def test_a_pod_that_waits_asks_for_what_its_spec_says() -> None:
    condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}
    status = {"phase": "Pending", "conditions": [condition]}
    tree = {"spec": {"containers": [asking(cpu="2")]}, "status": status}

    assert demand_of(msgspec.convert(tree, Pod)).cpu_milli == 2000


def test_the_status_of_a_sidecar_counts_and_that_of_another_init_container_does_not() -> None:
    sidecar = asking("sidecar", cpu="1") | {"restartPolicy": "Always"}
    init = asking("init", cpu="1")
    was = {"cpu": "4"}
    statuses = [status_of(name, was, was) for name in ("sidecar", "init")]
    tree = {
        "spec": {"containers": [asking(cpu="1")], "initContainers": [sidecar, init]},
        "status": {"initContainerStatuses": statuses},
    }

    assert demand_of(msgspec.convert(tree, Pod)).cpu_milli == 1000 + 4000


def test_the_requests_of_a_pod_as_a_whole_are_resized_as_well() -> None:
    """From Kubernetes 1.35 on its status has them; before, the spec counts."""
    same = {"cpu": "1", "memory": "1Gi"}
    tree: Tree = {
        "spec": {
            "containers": [asking(cpu="1", memory="1Gi")],
            "resources": {"requests": {"cpu": "3"}},
            "overhead": {"cpu": "250m"},
        },
        "status": {"containerStatuses": [status_of("main", same, same)]},
    }
    before = demand_of(msgspec.convert(tree, Pod))
    tree["status"] |= {"resources": {"requests": {"cpu": "2", "memory": "9Gi"}}}
    tree["status"] |= {"allocatedResources": {"cpu": "5", "memory": "9Gi"}}
    after = demand_of(msgspec.convert(tree, Pod))
    tree["status"]["conditions"] = [INFEASIBLE]
    tree["spec"]["resources"]["requests"]["cpu"] = "64"

    assert (before.cpu_milli, after.cpu_milli) == (3250, 5250)
    assert before.memory_bytes == after.memory_bytes == GIB
    assert demand_of(msgspec.convert(tree, Pod)).cpu_milli == 5250


def test_what_the_node_has_not_set_aside_counts_for_nothing_in_an_infeasible_resize() -> None:
    statuses = [status_of("main", {"memory": "1Gi"}, {"memory": "1Gi"})]
    pod = running(asking(cpu="64", memory="1Gi"), statuses=statuses, conditions=[INFEASIBLE])

    assert demand_of(pod) == Demand(0, GIB, 0)


def test_cards_are_those_of_the_spec() -> None:
    container = {"name": "main", "resources": {"limits": {"nvidia.com/gpu": "2", "cpu": "1"}}}
    was = {"cpu": "4", "nvidia.com/gpu": "8"}
    pod = running(container, statuses=[status_of("main", was, was)], conditions=[INFEASIBLE])

    assert demand_of(pod) == Demand(4000, 0, 2000, 2)


AMOUNTS = st.sampled_from(["100m", "0.1", "1", "1000m", "2", "3"])


@given(AMOUNTS, AMOUNTS, AMOUNTS, st.sampled_from([[], [DEFERRED], [INFEASIBLE]]))
def test_the_cached_ask_of_a_pod_is_its_demand(
    spec: str, allocated: str, actual: str, conditions: list[Tree]
) -> None:
    statuses = [status_of("main", {"cpu": allocated}, {"cpu": actual})]
    pod = running(asking(cpu=spec), statuses=statuses, conditions=conditions)

    assert ask_of(pod).cpu_milli == demand_of(pod).cpu_milli


def test_pods_of_a_deployment_share_one_cached_ask_before_and_after_they_have_a_status() -> None:
    demand._cached_ask.cache_clear()
    same = {"cpu": "1"}
    for statuses in ([], [status_of("main", same, same)]):
        ask_of(running(asking(cpu="1"), statuses=statuses))

    assert demand._cached_ask.cache_info().currsize == 1
