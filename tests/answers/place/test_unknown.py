"""What the log does not hold is named, and what it holds is compared."""

import json
import time
from typing import Any

import pytest
from msgspec.structs import replace

from bus_kit import NOON, ask, hardware
from joulie_answers.place.foretold import Question, foretold
from joulie_answers.place.manifest import read
from joulie_answers.place.placing import Moment
from joulie_answers.schema.responses import Foretold, PlacedPods
from joulie_answers.text.place import place_text
from joulie_bus.errors import NotAnswered
from joulie_bus.events import GpuAsk
from joulie_extender.catalogue.weights import Weights
from joulie_operator.planning.reconcile import LoadedPolicy, PlanBasis, plan
from joulie_operator.planning.rules import Rules
from joulie_operator.plugins import load_policy
from joulie_projections.fold.registry import evolve
from joulie_projections.state.state import ClusterState, NodeState, PodState, Sample
from joulie_projections.state.state_changes import Draft
from joulie_projections.twin.columns import TwinColumns

ZONE, HOST = "topology.kubernetes.io/zone", "kubernetes.io/hostname"


def node(ordinal: int, **values: Any) -> NodeState:
    usual: dict[str, Any] = {
        "at": NOON,
        "present": True,
        "ready": True,
        "schedulable": True,
        "cpu_milli": 8000,
        "memory_bytes": 32 << 30,
        "profile": "performance",
        "labels": {"joulie.io/managed": "true", ZONE: "a" if ordinal < 2 else "b"},
        "hardware": hardware(f"n{ordinal}", cores=8, watts=100),
        "samples": (Sample(NOON, 60_000),),
    }
    return NodeState(ordinal=ordinal, **{**usual, **values})


def cluster(*nodes: NodeState) -> ClusterState:
    state = ClusterState()
    state.nodes = {f"n{each.ordinal}": each for each in nodes}
    return state


THREE = (node(0), node(1), node(2))


def asked(
    spec: dict[str, Any],
    state: ClusterState,
    replicas: int = 1,
    policy: LoadedPolicy | None = None,
) -> Foretold:
    containers = [{"name": "c", "resources": {"requests": {"cpu": 1, **spec.pop("more", {})}}}]
    template = {
        "metadata": {"labels": {"app": "web"}},
        "spec": {"containers": spec.pop("containers", containers), **spec},
    }
    tree = {
        "kind": "ReplicaSet",
        "metadata": {"name": "web", "namespace": "team"},
        "spec": {"replicas": replicas, "template": template},
    }
    moment = Moment(state, TwinColumns.of_state(state), 7, NOON, Weights(scoring="energy"))
    question = Question(read(json.dumps(tree)), policy, is_declared=False)
    found = foretold(moment, question, lambda: False)
    return Foretold(position=7, at_ms=1, age_ms=0, behind_ms=0, **found)


def group(found: Foretold) -> PlacedPods:
    [only] = found.groups
    return only


def affinity(key: str, operator: str = "In", values: tuple[str, ...] = ("b",)) -> dict[str, Any]:
    requirement = {"key": key, "operator": operator, "values": list(values)}
    terms = [{"matchExpressions": [requirement]}]
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
    return {"affinity": {"nodeAffinity": required}}


def near(kind: str, key: str, app: str = "web") -> dict[str, Any]:
    term = {"topologyKey": key, "labelSelector": {"matchLabels": {"app": app}}}
    return {"affinity": {kind: {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}}


def spread(key: str) -> dict[str, Any]:
    one = {
        "maxSkew": 1,
        "topologyKey": key,
        "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchLabels": {"app": "web"}},
    }
    return {"topologySpreadConstraints": [one]}


UNKNOWN: dict[str, tuple[dict[str, Any], str]] = {
    "a label of nodes": ({"nodeSelector": {"disk": "ssd"}}, "the label disk of nodes"),
    "an affinity by such a label": (affinity("disk"), "a node affinity by the label disk"),
    "a spread by such a label": (spread("disk"), "a spread by the label disk"),
    "a volume": ({"volumes": [{"persistentVolumeClaim": {}}]}, "a volume that may be tied"),
    "a resource": ({"more": {"example.com/nic": 1}}, "the resource example.com/nic"),
    "storage": ({"more": {"ephemeral-storage": "1Gi"}}, "the resource ephemeral-storage"),
    "a gate": ({"schedulingGates": [{"name": "a"}]}, "a scheduling gate"),
    "another scheduler": ({"schedulerName": "volcano"}, "another scheduler places it"),
    "other pods to be near": (near("podAffinity", ZONE, "cache"), "an affinity to pods"),
    "other pods to be apart from": (
        near("podAntiAffinity", ZONE, "db"),
        "an anti-affinity to pods of other workloads",
    ),
    "a named node": ({"nodeName": "n1"}, "spec.nodeName is set"),
    "a slice": ({"more": {"nvidia.com/mig-1g.5gb": 1}}, "the slices nvidia.com/mig-1g.5gb"),
    "a claim": (
        {"resourceClaims": [{"name": "g", "resourceClaimName": "g"}]},
        "a claim of devices",
    ),
}


@pytest.mark.parametrize("what", UNKNOWN)
def test_what_the_log_does_not_hold_is_unknown_by_its_name(what: str) -> None:
    spec, named = UNKNOWN[what]
    found = asked(dict(spec), cluster(*THREE))

    assert any(named in each for each in group(found).unknown), group(found).unknown
    assert found.is_unsure
    assert f"UNKNOWN    {group(found).unknown[0]}" in place_text(found)


def test_a_pod_without_such_wishes_has_nothing_unknown_of_its_own() -> None:
    found = asked({"schedulerName": "joulie"}, cluster(*THREE))

    assert not group(found).unknown
    assert not found.is_unsure
    assert any("taints of nodes" in each for each in found.unknown)


@pytest.mark.parametrize(
    ("spec", "nodes"),
    [
        ({"nodeSelector": {ZONE: "b"}}, {"n2"}),
        (affinity(ZONE), {"n2"}),
        (affinity(ZONE, "NotIn"), {"n0", "n1"}),
        ({"nodeSelector": {HOST: "n1"}}, {"n1"}),
    ],
)
def test_known_labels_are_compared(spec: dict[str, Any], nodes: set[str]) -> None:
    found = asked(dict(spec), cluster(*THREE))

    assert {each.node for each in group(found).nodes} <= nodes
    assert group(found).placed == 1
    assert not group(found).unknown


def test_replicas_that_are_apart_take_a_node_each_and_the_next_one_waits() -> None:
    found = asked(near("podAntiAffinity", HOST), cluster(*THREE), replicas=5)

    assert [each.pods for each in group(found).nodes] == [1, 1, 1]
    assert [(each.reason, each.nodes) for each in group(found).refused] == [
        ("pod affinity or anti-affinity not met", 3)
    ]
    assert not group(found).unknown


def test_replicas_that_are_near_each_other_stay_in_the_zone_of_the_first() -> None:
    found = asked(near("podAffinity", ZONE), cluster(*THREE), replicas=20)
    zones = {THREE[int(each.node[1:])].labels[ZONE] for each in group(found).nodes}

    assert len(zones) == 1
    assert group(found).placed == 8 * (2 if zones == {"a"} else 1)


def test_a_hard_spread_counts_the_pods_of_the_manifest() -> None:
    found = asked(spread(ZONE), cluster(*THREE), replicas=40)

    assert group(found).placed == 8 + 9  # zone b is full, and a may have one more
    assert "topology spread not met" in {each.reason for each in group(found).refused}


def test_cards_of_another_vendor_do_not_count() -> None:
    state = cluster(node(0, gpus=8, gpu_vendor="amd"), node(1, gpus=8, gpu_vendor="nvidia"))

    assert group(asked({"more": {"nvidia.com/gpu": 8}}, state)).nodes[0].node == "n1"
    refused = group(asked({"more": {"nvidia.com/gpu": 9}}, state)).refused
    assert {each.reason: each.nodes for each in refused} == {
        "GPUs of another vendor": 1,
        "insufficient GPUs": 1,
    }


def test_a_large_pod_is_told_what_would_fit() -> None:
    state = cluster(node(0, gpus=6, gpu_vendor="nvidia"), node(1))
    found = asked({"more": {"nvidia.com/gpu": 8}}, state)

    assert [(each.resource, each.asked, each.fits) for each in group(found).nearest] == [
        ("GPUs", 8, 6)
    ]
    assert "6 of 8 GPUs, all else as it is" in place_text(found)


def test_watts_and_room_are_those_of_the_pods_that_are_placed() -> None:
    found = asked({"more": {"cpu": 4}}, cluster(*THREE), replicas=9)

    assert found.placed == 6
    assert found.free_before.cores - found.free_after.cores == 24
    assert found.added_w == group(found).added_w
    assert found.added_w is not None
    assert found.kwh_per_hour == found.added_w / 1000


def test_without_fresh_facts_the_watts_are_unknown_and_no_number() -> None:
    found = asked({}, cluster(node(0, at=NOON - 10**15, samples=())))

    assert (found.added_w, found.kwh_per_hour, group(found).unrated) == (None, None, 1)
    assert "watts that are not known" in place_text(found)


def test_memory_that_no_fact_has_is_unknown() -> None:
    found = asked({}, cluster(node(0, memory_bytes=0), node(1)))

    assert "the memory of 1 nodes" in found.unknown


def test_without_nodes_a_pod_waits() -> None:
    found = asked({}, cluster())

    assert (found.placed, group(found).refused) == (0, [])
    assert "there is no node" in place_text(found)


# --- nodes that sleep -------------------------------------------------------------------------

SLEEPING = Rules(policy="consolidate_and_sleep", policy_numbers="max_step=1,reserve=0")


def asleep(ordinal: int) -> NodeState:
    return node(
        ordinal, ready=False, schedulable=False, power_state="asleep", power_at=NOON - 10**13
    )


def planned(state: ClusterState) -> LoadedPolicy:
    """With a plan of these rules as the newest one."""
    policy = load_policy(SLEEPING.policy)
    made = plan(state, policy, SLEEPING, PlanBasis(6, NOON)).made
    draft = Draft(state)
    evolve(draft, made, NOON)
    draft.commit()
    return policy


def test_nodes_that_the_next_plan_would_wake_are_named_with_the_pods_that_fit_then() -> None:
    state = cluster(node(0), asleep(1), asleep(2))
    found = asked({"more": {"cpu": 8}}, state, replicas=2, policy=planned(state))

    assert found.placed == 1
    assert {each.reason: each.nodes for each in group(found).refused} == {
        "asleep": 2,
        "insufficient cpu": 1,
    }
    assert found.waked is not None
    assert (len(found.waked.nodes), found.waked.pods) == (1, 1)
    assert found.waked.nodes[0] in ("n1", "n2")
    assert "already or by the next plan; then 1 more pod fits" in place_text(found)


def test_a_node_that_wakes_up_already_counts() -> None:
    state = cluster(node(0), replace(asleep(1), power_state="waking"))
    found = asked({"more": {"cpu": 8}}, state, replicas=3, policy=planned(state))

    assert found.waked is not None
    assert (found.waked.nodes, found.waked.pods) == (["n1"], 1)


def test_no_node_is_woken_for_pods_that_fit_on_none() -> None:
    state = cluster(node(0), asleep(1))
    found = asked({"more": {"cpu": 9}}, state, policy=planned(state))

    assert found.waked is not None
    assert (found.waked.nodes, found.waked.pods) == ([], 0)


def test_an_answer_that_takes_too_long_is_refused() -> None:
    state = cluster(*THREE)
    moment = Moment(state, TwinColumns.of_state(state), 7, NOON, Weights())
    text = "kind: Pod\nmetadata: {name: a}\nspec: {containers: [{name: c}]}"
    with pytest.raises(NotAnswered, match="not computed in time"):
        foretold(moment, Question(read(text), None, is_declared=True), lambda: True)


def test_a_group_that_fits_in_part_says_what_others_would_make_of_it() -> None:
    tree = {
        "kind": "JobSet",
        "metadata": {"name": "train"},
        "spec": {"replicatedJobs": [{"name": "w", "template": {"spec": WIDE}}]},
    }
    state = cluster(*THREE)
    moment = Moment(state, TwinColumns.of_state(state), 7, NOON, Weights())
    question = Question(read(json.dumps(tree)), None, is_declared=True)
    [found] = foretold(moment, question, lambda: False)["groups"]

    assert (found.placed, found.pods) == (3, 4)
    assert ["places none" in note for note in found.notes] == [True]


CONTAINER = {"name": "c", "resources": {"requests": {"cpu": 6}}}
WIDE = {"parallelism": 4, "template": {"spec": {"containers": [CONTAINER]}}}


# --- what runs already ------------------------------------------------------------------------


def running(uid: str, *, cores: float = 0, cards: int = 0, **values: Any) -> PodState:
    pod = replace(ask(uid, cores=cores, gpus=cards), gpu_cards=cards)
    return PodState(pod=replace(pod, **values.pop("asks", {})), node="n0", bound_at=NOON, **values)


def with_pods(*pods: PodState) -> ClusterState:
    state = cluster(node(0, gpus=8, gpu_vendor="nvidia"))
    state.pods = {each.pod.uid: each for each in pods}
    return state


SHARED = {"gpu": GpuAsk(share_milli=500), "gpu_milli": 500}


@pytest.mark.parametrize(
    ("pods", "gpus"),
    [
        ((), 8),
        ((running("a", cards=6),), 2),
        ((running("a", cards=6, finished=True),), 8),
        ((running("a", cards=2), running("b", cards=3)), 3),
        ((running("a", asks=SHARED),), 8),  # kube-scheduler does not count it
    ],
)
def test_gpus_that_pods_request_are_not_free(pods: tuple[PodState, ...], gpus: int) -> None:
    found = asked({"more": {"nvidia.com/gpu": 9}}, with_pods(*pods))

    assert [each.fits for each in group(found).nearest] == [gpus]
    assert found.free_before.gpus == gpus


@pytest.mark.parametrize("used", [0, 1, 500, 1000, 7998, 7999])
def test_the_largest_request_of_cores_is_exact(used: int) -> None:
    state = with_pods(running("a", cores=used / 1000))
    found = asked({"more": {"cpu": "9001m"}}, state)

    assert [each.fits for each in group(found).nearest] == [(8000 - used) / 1000]


@pytest.mark.parametrize("free", range(1, 40))
def test_the_largest_request_of_memory_is_exact(free: int) -> None:
    used = {"memory_bytes": (32 << 30) - free * (1 << 20)}
    found = asked({"more": {"memory": "40Mi"}}, with_pods(running("a", asks=used)))

    assert [(each.resource, each.fits) for each in group(found).nearest] == [("MiB", free)]


def test_a_full_node_is_short_of_each_resource() -> None:
    full = running("a", cores=8, asks={"memory_bytes": 32 << 30})
    found = asked({"more": {"memory": "1Gi"}}, with_pods(full))

    assert {each.reason for each in group(found).refused} == {
        "insufficient cpu",
        "insufficient memory",
    }
    assert group(found).nearest == []


@pytest.mark.parametrize("amount", ["1e30", "1Ei", "9223372036854775807"])
@pytest.mark.parametrize("resource", ["cpu", "memory", "nvidia.com/gpu", "nvidia.com/mig-1g.5gb"])
def test_a_request_larger_than_any_machine_is_refused_as_fast_as_others(
    resource: str, amount: str
) -> None:
    began = time.monotonic()
    found = asked({"more": {resource: amount}}, with_pods())

    assert found.placed == 0
    assert time.monotonic() - began < 2
    assert place_text(found)
