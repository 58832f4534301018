import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from bus_kit import ANY_FACTS, any_fact, noon
from joulie_bus.errors import BadQuantity
from joulie_bus.events import (
    GpuSeen,
    NamespaceSeen,
    NodeGone,
    NodeSeen,
    PodBound,
    PodFinished,
    PodGone,
    PodPending,
)
from joulie_bus.events.bounds import MOST_CPU_MILLI
from joulie_operator.facts.facts_from_objects import (
    ChangeFilter,
    GpuKind,
    Namespace,
    NamespaceKind,
    Node,
    NodeKind,
    PodKind,
    logged_cards,
    logged_namespaces,
    logged_nodes,
    logged_pods,
)
from joulie_operator.facts.hardware_inventory import logged_hardware
from joulie_operator.resources.custom_resources import Gpu
from joulie_projections.fold.registry import evolve
from joulie_projections.pods.demand import ask_of
from joulie_projections.pods.kubernetes_pod import Pod
from joulie_projections.state.state import ClusterState
from joulie_projections.state.state_changes import Draft

HUGE = "9223372036854775807"


def node(name: str = "n", *, cpu: str = "96", ready: str = "True", **labels: str) -> Node:
    conditions = [{"type": "Ready", "status": ready}, {"type": "DiskPressure", "status": "True"}]
    allocatable = {"cpu": cpu, "memory": "1Gi", "nvidia.com/gpu": "8", "pods": "110"}
    return msgspec.convert(
        {
            "metadata": {"name": name, "uid": f"uid-{name}", "labels": labels},
            "status": {"allocatable": allocatable, "conditions": conditions},
        },
        Node,
    )


def pod(
    uid: str = "u", *, node: str | None = None, phase: str | None = None, version: str = ""
) -> Pod:
    meta = {"uid": uid, "resourceVersion": version}
    spec = {"nodeName": node, "containers": [{"name": "c"}]}
    status = {"phase": phase}
    return msgspec.convert({"metadata": meta, "spec": spec, "status": status}, Pod)


def test_a_fact_about_a_node_contains_the_relevant_fields() -> None:
    seen = node(**{"joulie.io/rack": "r1", "kubernetes.io/hostname": "n"})

    assert NodeKind().fact(seen) == NodeSeen(
        node="n",
        uid="uid-n",
        labels={"joulie.io/rack": "r1"},
        cpu_milli=96_000,
        memory_bytes=2**30,
        gpus=8,
        gpu_vendor="nvidia",
    )


def test_a_node_without_conditions_is_not_ready() -> None:
    bare = msgspec.convert({"metadata": {"name": "n"}, "spec": {}, "status": {}}, Node)

    assert NodeKind().fact(bare) == NodeSeen(node="n", uid="", ready=False)


def test_a_cordoned_node_is_not_schedulable() -> None:
    cordoned = {"metadata": {"name": "n"}, "spec": {"unschedulable": True}}

    assert NodeKind().fact(msgspec.convert(cordoned, Node)).schedulable is False


def test_capacities_beyond_the_bound_are_published_at_the_bound() -> None:
    assert NodeKind().fact(node(cpu=HUGE)).cpu_milli == MOST_CPU_MILLI


@pytest.mark.parametrize(
    ("seen", "expected"),
    [
        (pod(), "pod.pending"),
        (pod(phase="Pending"), "pod.pending"),
        (pod(phase="Pending", node="n"), "pod.bound"),
        (pod(phase="Running", node="n"), "pod.bound"),
        (pod(phase="Unknown", node="n"), "pod.bound"),
        (pod(phase="Succeeded", node="n"), "pod.finished"),
        (pod(phase="Failed", node="n"), "pod.finished"),
        (pod(phase="Failed"), "pod.finished"),
    ],
)
def test_each_phase_of_a_pod_has_its_fact(seen: Pod, expected: str) -> None:
    assert expected == PodKind().fact(seen).TYPE


@pytest.mark.parametrize(
    "change",
    [
        {"metadata": {"annotations": {"joulie.io/workload-class": "performance"}}},
        {"spec": {"nodeSelector": {"joulie.io/power-profile": "eco"}}},
        {"spec": {"containers": [{"resources": {"requests": {"cpu": "3"}}}]}},
        {"spec": {"priority": 2_000_000_000, "priorityClassName": "system-cluster-critical"}},
        {"metadata": {"labels": {"joulie.io/team": "blue"}}},
    ],
)
def test_pods_that_differ_in_a_relevant_field_make_different_facts(
    change: dict[str, object],
) -> None:
    plain = {"metadata": {"uid": "u", "name": "p"}, "spec": {"containers": [{"name": "c"}]}}
    other = msgspec.convert(plain | change, Pod)
    kind = PodKind()
    before = kind.fact(msgspec.convert(plain, Pod))

    assert kind.fact(other) == PodPending(pod=ask_of(other))
    assert kind.fact(other) != before


def test_a_change_is_published_once() -> None:
    changes = ChangeFilter[Node](NodeKind(), {})
    facts = [changes.seen(node()), changes.seen(node()), changes.seen(node(ready="False"))]

    assert [fact is None for fact in facts] == [False, True, False]


def test_a_heartbeat_of_a_node_makes_no_fact() -> None:
    changes = ChangeFilter[Node](NodeKind(), {})
    changes.seen(node())

    assert changes.seen(node(**{"example.com/heartbeat": "17"})) is None


def test_a_pod_whose_status_is_as_its_spec_makes_no_further_fact() -> None:
    one, two = {"cpu": "1"}, {"cpu": "2"}

    def running(allocated: dict[str, str] | None) -> Pod:
        status = {"name": "c", "allocatedResources": allocated, "resources": {"requests": one}}
        tree = {
            "metadata": {"uid": "u"},
            "spec": {
                "nodeName": "n",
                "containers": [{"name": "c", "resources": {"requests": one}}],
            },
            "status": {"containerStatuses": [status] if allocated else None},
        }
        return msgspec.convert(tree, Pod)

    changes = ChangeFilter[Pod](PodKind(), {})
    bound = changes.seen(running(None))

    assert changes.seen(running(one)) is None
    assert isinstance(bound, PodBound)
    more = replace(bound.pod, cpu_milli=2000)
    assert changes.seen(running(two)) == PodBound(pod=more, node="n")


def test_facts_in_the_log_are_not_published_again() -> None:
    changes = ChangeFilter[Pod](PodKind(), {"u": PodKind().fact(pod())})

    assert changes.seen(pod()) is None
    assert isinstance(changes.seen(pod(node="n")), PodBound)


def test_facts_that_may_not_have_been_stored_are_published_again() -> None:
    changes = ChangeFilter[Pod](PodKind(), {})
    fact = changes.seen(pod())
    assert fact is not None
    changes.mark_unknown([fact])

    assert changes.seen(pod()) == fact
    assert changes.seen(pod()) is None


def test_an_object_with_a_known_version_is_not_converted() -> None:
    changes = ChangeFilter[Pod](PodKind(), {})
    first, again = pod(version="7"), pod(version="7", node="n")
    changes.seen(first)

    assert changes.seen(again) is None
    assert changes.seen(pod(version="8", node="n")) == PodKind().fact(again)


def test_a_deletion_is_published_once_and_the_object_may_come_back() -> None:
    changes = ChangeFilter[Node](NodeKind(), {})
    changes.seen(node())

    assert (changes.deleted(node()), changes.deleted(node())) == (NodeGone(node="n"), None)
    assert changes.seen(node()) is not None


def test_objects_missing_from_a_complete_list_are_published_as_gone() -> None:
    changes = ChangeFilter[Pod](PodKind(), {"old": None, "older": None, "u": None})
    changes.begin_list()
    changes.seen(pod())

    assert changes.missing() == [PodGone(uid="old"), PodGone(uid="older")]
    assert changes.missing() == []


def test_an_unreadable_pod_is_converted_again_each_time() -> None:
    broken = msgspec.convert(
        {
            "metadata": {"uid": "u"},
            "spec": {"containers": [{"resources": {"requests": {"cpu": "lots"}}}]},
        },
        Pod,
    )
    changes = ChangeFilter[Pod](PodKind(), {})
    with pytest.raises(BadQuantity):
        changes.seen(broken)

    assert changes.seen(pod(phase="Failed")) == PodFinished(uid="u")


def are_published(changes: ChangeFilter[Node], *seen: Node) -> list[bool]:
    return [changes.seen(each) is not None for each in seen]


def test_a_node_that_was_created_again_is_published() -> None:
    changes = ChangeFilter[Node](NodeKind(), {})
    anew = msgspec.convert({"metadata": {"name": "n", "uid": "another"}}, Node)

    assert are_published(changes, node(), anew) == [True, True]


def space(name: str = "team", given: str | None = None) -> Namespace:
    notes = {} if given is None else {"joulie.io/workload-class": given}
    return msgspec.convert({"metadata": {"name": name, "annotations": notes}}, Namespace)


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (None, None),
        ("nonsense", None),
        ("performance", NamespaceSeen(namespace="team", workload="performance")),
        (" standard ", NamespaceSeen(namespace="team", workload="standard")),
    ],
)
def test_a_namespace_is_published_if_it_sets_a_class(
    given: str | None, expected: NamespaceSeen | None
) -> None:
    assert ChangeFilter(NamespaceKind(), {}).seen(space(given=given)) == expected


@pytest.mark.parametrize("known", [True, False], ids=["by a former operator", "by this one"])
def test_a_namespace_that_removes_its_class_is_published(*, known: bool) -> None:
    believed = NamespaceSeen(namespace="team", workload="performance")
    changes = ChangeFilter(
        NamespaceKind(["team"] if known else ()), {"team": believed} if known else {}
    )
    changes.seen(space(given="performance"))

    assert changes.seen(space()) == NamespaceSeen(namespace="team")
    assert changes.seen(space()) is None


def test_a_card_without_a_status_is_free_and_healthy() -> None:
    spec = {"nodeName": "n", "uuid": "GPU-1", "model": "H100", "totalVRAMmb": 80_000}

    assert GpuKind().fact(msgspec.convert({"spec": spec}, Gpu)) == GpuSeen(
        uuid="GPU-1", node="n", model="H100", total_mb=80_000
    )


@pytest.mark.parametrize(
    ("status", "owner", "holder"),
    [
        ({"phase": "Available"}, "", ""),
        ({}, "", ""),
        ({"phase": "Allocated", "podUID": "u", "podName": "p"}, "u", ""),
        ({"phase": "Allocated", "podName": "p", "podNamespace": "lab"}, "", "lab/p"),
        ({"phase": "Allocated", "podName": "p", "allocatedVRAMmb": 40_000}, "", "default/p"),
        ({"phase": "Allocated"}, "", "?"),
        ({"phase": "Allocated", "allocatedVRAMmb": 40_000}, "", "?"),
        ({"phase": "Failed"}, "", "?"),
        ({"phase": "Available", "podName": "p"}, "", "default/p"),
    ],
)
def test_the_holder_of_a_card_is_read_with_or_without_a_uid(
    status: dict[str, object], owner: str, holder: str
) -> None:
    spec = {"nodeName": "n", "uuid": "GPU-1", "totalVRAMmb": 81_920}
    card = msgspec.convert({"metadata": {"name": "g"}, "spec": spec, "status": status}, Gpu)
    fact = GpuKind().fact(card)

    assert fact is not None
    assert (fact.owner, fact.holder) == (owner, holder)


@settings(deadline=None, max_examples=100)
@given(st.lists(st.integers(0, ANY_FACTS - 1), max_size=30))
def test_publishing_logged_facts_again_changes_no_state(choices: list[int]) -> None:
    cluster_state, every = (
        ClusterState(),
        (logged_nodes, logged_hardware, logged_pods, logged_cards, logged_namespaces),
    )
    draft = Draft(cluster_state)
    for number, choice in enumerate(choices):
        evolve(draft, any_fact(choice), noon(number))
    draft.commit()
    before = [each(cluster_state) for each in every]
    for fact in (fact for facts in before for fact in facts.values() if fact is not None):
        evolve(draft, fact, noon(99))
    draft.commit()

    assert [each(cluster_state) for each in every] == before


@pytest.mark.parametrize(
    ("owner", "annotations", "kind"),
    [
        ({"apiVersion": "apps/v1", "kind": "ReplicaSet", "controller": True}, {}, "ReplicaSet"),
        ({"apiVersion": "apps/v1", "kind": "ReplicaSet"}, {}, ""),
        ({"apiVersion": "x/v1", "kind": "ReplicaSet", "controller": True}, {}, ""),
        ({"apiVersion": "batch/v1", "kind": "Job", "controller": True}, {}, ""),
        (
            {"apiVersion": "apps/v1", "kind": "StatefulSet", "controller": True},
            {"karpenter.sh/do-not-disrupt": "true"},
            "",
        ),
    ],
)
def test_a_pod_fact_names_the_controller_that_puts_an_equal_pod_elsewhere(
    owner: dict[str, object], annotations: dict[str, str], kind: str
) -> None:
    metadata = {"uid": "u", "name": "p", "annotations": annotations, "ownerReferences": [owner]}
    fact = PodKind().fact(msgspec.convert({"metadata": metadata}, Pod))

    assert isinstance(fact, PodPending)
    assert fact.pod.replaced_by == kind
