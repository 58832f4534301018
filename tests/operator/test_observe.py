import msgspec
import pytest

from joulie_bus.errors import BadQuantity
from joulie_bus.events import NodeGone, NodeSeen, PodFinished, PodGone, PodPending
from joulie_operator.observe import Node, NodeKind, PodKind, Told
from joulie_projections.pod import Pod

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


def pod(uid: str = "u", *, node: str | None = None, phase: str | None = None) -> Pod:
    spec = {"nodeName": node, "containers": [{"name": "c"}]}
    status = {"phase": phase}
    return msgspec.convert({"metadata": {"uid": uid}, "spec": spec, "status": status}, Pod)


def test_a_node_is_told_as_far_as_it_matters() -> None:
    seen = node(**{"joulie.io/rack": "r1", "kubernetes.io/hostname": "n"})

    assert NodeKind().fact(seen) == NodeSeen(
        node="n",
        uid="uid-n",
        labels={"joulie.io/rack": "r1"},
        cpu_milli=96_000,
        memory_bytes=2**30,
        gpus=8,
    )


def test_a_node_that_says_nothing_is_not_ready() -> None:
    bare = msgspec.convert({"metadata": {"name": "n"}, "spec": {}, "status": {}}, Node)

    assert NodeKind().fact(bare) == NodeSeen(node="n", uid="", ready=False)


def test_a_cordoned_node_is_not_schedulable() -> None:
    cordoned = {"metadata": {"name": "n"}, "spec": {"unschedulable": True}}

    assert NodeKind().fact(msgspec.convert(cordoned, Node)).schedulable is False


def test_a_node_that_boasts_ends_where_numbers_do() -> None:
    assert NodeKind().fact(node(cpu=HUGE)).cpu_milli == int(HUGE)


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
def test_the_life_of_a_pod(seen: Pod, expected: str) -> None:
    assert expected == PodKind().fact(seen).TYPE


def test_news_is_told_once() -> None:
    told = Told[Node](NodeKind(), [])
    facts = [told.seen(node()), told.seen(node()), told.seen(node(ready="False"))]

    assert [fact is None for fact in facts] == [False, True, False]


def test_a_node_that_only_breathes_is_no_news() -> None:
    told = Told[Node](NodeKind(), [])
    told.seen(node())

    assert told.seen(node(**{"example.com/heartbeat": "17"})) is None


def test_what_the_log_believes_is_told_again_once_and_then_kept() -> None:
    told = Told[Pod](PodKind(), ["u"])

    assert isinstance(told.seen(pod()), PodPending)
    assert told.seen(pod()) is None


def test_a_deleted_object_says_goodbye_once_and_may_come_back() -> None:
    told = Told[Node](NodeKind(), [])
    told.seen(node())

    assert (told.deleted(node()), told.deleted(node())) == (NodeGone(node="n"), None)
    assert told.seen(node()) is not None


def test_what_is_missing_from_a_whole_list_says_goodbye() -> None:
    told = Told[Pod](PodKind(), ["old", "older", "u"])

    assert told.missing([pod()]) == [PodGone(uid="old"), PodGone(uid="older")]
    assert told.missing([pod()]) == []


def test_a_pod_that_cannot_be_read_stays_news() -> None:
    broken = msgspec.convert(
        {
            "metadata": {"uid": "u"},
            "spec": {"containers": [{"resources": {"requests": {"cpu": "lots"}}}]},
        },
        Pod,
    )
    told = Told[Pod](PodKind(), [])
    with pytest.raises(BadQuantity):
        told.seen(broken)

    assert told.seen(pod(phase="Failed")) == PodFinished(uid="u")
