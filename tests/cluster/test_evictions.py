"""Pods of nodes that are to sleep, evicted through the Eviction API of a real kube-apiserver."""

from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any, cast

import pytest
import yaml  # type: ignore[import-untyped]
from msgspec.structs import replace

from bus_kit import NOON, plan_made
from joulie_bus.runtime import metrics
from joulie_operator.kube.api_client import ApiServer, object_path
from joulie_operator.planning.rules import Rules, values_of
from joulie_operator.power.evictions import Evictor
from joulie_process import joulie
from joulie_projections.state.state import CLUSTER, ClusterRow, ClusterState, NodeState
from joulie_projections.view.view import View
from kube_conditions import NODES, PODS, TIMEOUT_S, Condition, profiles_are, wait_until
from kube_real import DEPLOY, PLACES, Running, Tree

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.timeout(600),
    pytest.mark.parametrize("server", ["real"], indirect=True),
]
BUDGETS = "/apis/policy/v1/namespaces/default/poddisruptionbudgets"
EVENTS = "/apis/events.k8s.io/v1/namespaces/default/events"
OWNER = {
    "apiVersion": "apps/v1",
    "kind": "ReplicaSet",
    "name": "web",
    "uid": "6f1a6a5e-0000-4000-8000-000000000000",
    "controller": True,
}
EMPTIED = NodeState(
    ordinal=0, at=NOON, present=True, power_state="asleep", power_at=NOON, evict_at=NOON, pods=1
)


class Known:
    """A view in which n0 is to be emptied."""

    is_ready, age_s = True, 0.0

    def __init__(self, per_min: float = 60.0, **fields: Any) -> None:
        self.cluster_state = ClusterState()
        self.cluster_state.nodes["n0"] = replace(EMPTIED, **fields)
        numbers = f"empty_below=0.5,evict_per_min={per_min:g}"
        rules = Rules(policy="consolidate_and_sleep", policy_numbers=numbers)
        made = replace(plan_made(), settings=values_of(rules))
        self.cluster_state.cluster[CLUSTER] = ClusterRow(plan=made)


class Seconds:
    """A clock that tests turn."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
async def operator(server: Running) -> AsyncGenerator[ApiServer, None]:
    async with ApiServer.of(server.kubeconfig("operator")) as api:
        yield api


async def may_evict(server: Running) -> None:
    """Grants the right of deploy/rbac-evictions.yaml."""
    for tree in yaml.safe_load_all((DEPLOY / "rbac-evictions.yaml").read_text()):
        await server.put(PLACES[tree["kind"]].format(namespace=""), tree)


def web(name: str, owner: Tree | None = OWNER, on: str = "n0", **metadata: Any) -> Tree:
    owners = {"ownerReferences": [owner]} if owner else {}
    return {
        "metadata": {"name": name, "labels": {"app": "web"}, **owners, **metadata},
        "spec": {"nodeName": on, "containers": [{"name": "c", "image": "none"}]},
    }


async def budget(server: Running, allowed: int) -> None:
    """A budget as the disruption controller writes it."""
    spec = {"minAvailable": 1, "selector": {"matchLabels": {"app": "web"}}}
    tree: Tree = {"metadata": {"name": "web"}, "spec": spec}
    if "web" not in await server.all(BUDGETS):
        await server.put(BUDGETS, tree)
    found = (await server.all(BUDGETS))["web"]
    status = {
        "observedGeneration": found["metadata"]["generation"],
        "disruptionsAllowed": allowed,
        "currentHealthy": 1 + allowed,
        "desiredHealthy": 1,
        "expectedPods": 1 + allowed,
    }
    await server.api.replace(object_path(BUDGETS, "web", "status"), found | {"status": status})


async def becomes_ready(server: Running, name: str) -> None:
    """As a kubelet reports it: a budget does not protect pods that do not run."""
    pod = (await server.all(PODS))[name]
    ready = {"type": "Ready", "status": "True"}
    status = {"phase": "Running", "conditions": [ready]}
    await server.api.replace(object_path(PODS, name, "status"), pod | {"status": status})


async def left(server: Running) -> list[str]:
    pods = (await server.all(PODS)).values()
    return [p["metadata"]["name"] for p in pods if "deletionTimestamp" not in p["metadata"]]


async def notes(server: Running) -> list[str]:
    events = (await server.all(EVENTS)).values()
    return [each["note"] for each in events if each["reason"] == "PodNotEvicted"]


def evictor(api: ApiServer, view: Known, seconds: Seconds) -> Evictor:
    return Evictor(api, cast(View, view), lambda: NOON, seconds)


def count(outcome: str) -> float:
    return float(metrics.EVICTIONS.labels(outcome=outcome)._value.get())


async def test_pods_are_evicted_one_after_the_other_at_the_rate_of_the_plan(
    server: Running, operator: ApiServer
) -> None:
    await may_evict(server)
    await server.put(PODS, web("a"), web("b"), web("elsewhere", on="n1"))
    seconds, before = Seconds(), count("evicted")
    made = evictor(operator, Known(per_min=2), seconds)

    await made.evict_once()
    await made.evict_once()
    assert len(await left(server)) == 2
    seconds.now = 30.0
    await made.evict_once()

    assert await left(server) == ["elsewhere"]
    assert count("evicted") == before + 2


async def test_a_budget_refuses_and_the_pod_is_evicted_when_it_allows(
    server: Running, operator: ApiServer
) -> None:
    await may_evict(server)
    await server.put(PODS, web("a"))
    await becomes_ready(server, "a")
    await budget(server, allowed=0)
    seconds, before = Seconds(), count("refused")
    made = evictor(operator, Known(), seconds)

    for seconds.now in (0.0, 5.0, 11.0):  # the second one within the pause
        await made.evict_once()
    assert await left(server) == ["a"]
    assert count("refused") == before + 2
    [note] = await notes(server)
    assert "default/a is not evicted" in note
    assert "disruption budget" in note

    await budget(server, allowed=1)
    seconds.now = 60.0
    await made.evict_once()
    assert await left(server) == []


async def test_an_eviction_ends_though_the_plan_allows_none_meanwhile(
    server: Running, operator: ApiServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    await may_evict(server)
    await server.put(PODS, web("a"))
    view, create = Known(), operator.create

    async def create_and_withdraw(path: str, body: Tree) -> Any:
        answer = await create(path, body)
        view.cluster_state.cluster.clear()
        return answer

    monkeypatch.setattr(operator, "create", create_and_withdraw)
    await evictor(operator, view, Seconds()).evict_once()

    assert await left(server) == []


@pytest.mark.parametrize(
    ("pod", "why"),
    [
        pytest.param(web("z", None), "no controller", id="bare"),
        pytest.param(
            web("z", annotations={"joulie.io/workload-class": "performance"}),
            "class performance",
            id="performance",
        ),
        pytest.param(web("z", OWNER | {"kind": "DaemonSet"}), "a DaemonSet", id="DaemonSet"),
    ],
)
async def test_a_node_with_a_pod_that_has_to_stay_keeps_all_its_pods(
    pod: Tree, why: str, server: Running, operator: ApiServer
) -> None:
    await may_evict(server)
    await server.put(PODS, web("a"), pod)
    made = evictor(operator, Known(pods=2), Seconds())

    await made.evict_once()
    await made.evict_once()

    assert sorted(await left(server)) == ["a", "z"]
    [note] = await notes(server)
    assert note.startswith("default/z is not evicted: ")
    assert why in note


@pytest.mark.parametrize(
    "state",
    [
        pytest.param({"schedulable": True}, id="not cordoned"),
        pytest.param({"power_state": ""}, id="awake"),
        pytest.param({"evict_at": 0}, id="not ordered"),
        pytest.param({"daemon_pods": 1}, id="empty"),
        pytest.param({"per_min": 0}, id="not allowed any more"),
    ],
)
async def test_without_an_order_no_pod_is_evicted(
    state: dict[str, Any], server: Running, operator: ApiServer
) -> None:
    await may_evict(server)
    await server.put(PODS, web("a"))

    await evictor(operator, Known(**state), Seconds()).evict_once()

    assert await left(server) == ["a"]


async def test_without_the_right_the_event_names_what_is_missing(
    server: Running, operator: ApiServer
) -> None:
    await server.put(PODS, web("a"))

    await evictor(operator, Known(), Seconds()).evict_once()

    assert await left(server) == ["a"]
    [note] = await notes(server)
    assert "operator.evictions=true" in note


async def test_the_operator_empties_a_nearly_empty_node(server: Running, tmp_path: Path) -> None:
    """From the plan to the eviction, with the rights of the manifests."""
    await may_evict(server)
    for number, cores in enumerate((1, 8, 8, 8)):
        pod = web(f"p{number}", on=f"n{number}")
        pod["spec"]["containers"][0]["resources"] = {"requests": {"cpu": str(cores)}}
        await server.put(PODS, pod)
    numbers = "reserve=0,sleep_after_s=1,empty_below=0.2,evict_per_min=60,evict_after_s=1"
    settings = {
        "POLICY_TYPE": "consolidate_and_sleep",
        "QUEUE_HP_BASE_FRAC": "0",
        "QUEUE_HP_MIN": "0",
        "POLICY_NUMBERS": numbers,
    }
    config = server.kubeconfig("operator")
    async with joulie("up", config, tmp_path / "data", TIMEOUT_S, **settings):
        await wait_until(profiles_are(server, eco=4))
        await wait_until(_has_left(server, "p1", "p2", "p3"))
        node = (await server.all(NODES))["n0"]

    assert node["spec"]["unschedulable"] is True
    assert node["metadata"]["labels"]["joulie.io/power-state"] == "asleep"


def _has_left(server: Running, *names: str) -> Condition:
    async def condition() -> bool:
        return sorted(await left(server)) == [*names]

    return condition
