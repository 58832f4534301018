"""Rules of the model that recorded answers show seldom, or that a version began."""

from collections.abc import Sequence
from typing import Any

import msgspec
import numpy as np
import pytest

from joulie_simulator.kube_scheduler.cluster import Cluster
from joulie_simulator.kube_scheduler.objects import Node, Pod
from joulie_simulator.kube_scheduler.schedule import BALANCED, FIT, filtered, profile_of, scores
from joulie_simulator.kube_scheduler.selectors import EVERYTHING
from joulie_simulator.kube_scheduler.terms import Asked, asked
from joulie_simulator.kube_scheduler.unknown import (
    CLAIMS,
    COMPARED,
    GATES,
    GROUP,
    NAMESPACES,
    SCHEDULER,
    VOLUMES,
    unknown_of,
)
from kube_moments import HOST, ZONE, Tree, node


def cluster(*nodes: Tree) -> Cluster:
    return Cluster(msgspec.convert(nodes, list[Node]))


def placeable(name: str, labels: dict[str, str] | None = None, **spec: Any) -> Asked:
    return asked(model(name, labels, **spec), {})


def model(name: str, labels: dict[str, str] | None = None, **spec: Any) -> Pod:
    metadata = {"name": name, "uid": name, "namespace": "team", "labels": labels or {}}
    return msgspec.convert({"metadata": metadata, "spec": spec}, Pod)


def requests(**amounts: str) -> list[Tree]:
    return [{"name": "c", "resources": {"requests": amounts}}]


def passing(found: Cluster, pod: Asked) -> list[str]:
    return [found.nodes.names[row] for row in np.flatnonzero(filtered(found, pod).nodes)]


def points(found: Cluster, pod: Asked, minor: int, plugin: str, **kind: bool) -> Sequence[int]:
    rows = np.arange(found.nodes.size)
    result: list[int] = scores(found, pod, rows, profile_of(minor, **kind))[plugin].tolist()
    return result


def near(label: dict[str, str], key: str = ZONE) -> Tree:
    term = {"labelSelector": {"matchLabels": label}, "topologyKey": key}
    return {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}


def test_the_first_pod_that_is_to_be_near_its_like_goes_anywhere_with_the_label() -> None:
    found = cluster(node("n1"), node("n2", zone="b"), node("n3"))
    del found.nodes._labels[2][ZONE]
    first, next_one = (placeable(name, {"a": "x"}, affinity=near({"a": "x"})) for name in "pq")
    other = placeable("r", {"a": "y"}, affinity=near({"a": "x"}))

    assert passing(found, first) == ["n1", "n2"]
    assert passing(found, other) == []
    found.bind(first, 1)
    assert passing(found, next_one) == passing(found, other) == ["n2"]
    assert found.remove("p") == 1
    assert passing(found, next_one) == ["n1", "n2"]


def test_a_pod_that_leaves_gives_back_all_that_it_took() -> None:
    found = cluster(node("n1", cores=2))
    ports = [{"name": "c", "ports": [{"hostPort": 80}], "resources": {"requests": {"cpu": "2"}}}]
    pod, same = placeable("p", containers=ports), placeable("q", containers=ports)

    found.bind(pod, 0)
    assert filtered(found, same).rejected == {"NodePorts": 1}
    found.remove("p")
    assert passing(found, same) == ["n1"]
    assert int(found.requested("cpu")[0]) == int(found.pods[0]) == 0


def test_from_1_36_on_a_pod_that_makes_the_use_more_equal_scores_more() -> None:
    found = cluster(node("n1", cores=10), node("n2", cores=10))
    for each in ("cpu", "memory"):
        found.allocatable(each)[:] = 10_000
    found.requested("cpu")[:] = [8_000, 0]
    pod = placeable("p", containers=requests(memory="4000"))

    # n1: 0.8 and 0 apart by 0.4 before, 0.8 and 0.4 by 0.2 after; n2: 0 before, 0.2 after.
    assert points(found, pod, 35, BALANCED) == [80, 80]
    assert points(found, pod, 36, BALANCED) == [50 + (50 + 80 - 60) // 2, 50 + (50 + 80 - 100) // 2]


def test_the_profile_that_fills_nodes_prefers_the_fuller_one() -> None:
    found = cluster(node("n1"), node("n2"))
    found.bind(placeable("o", containers=requests(cpu="32", memory="128Gi")), 0)
    pod = placeable("p", containers=requests(cpu="1", memory="1Gi"))

    least, most = points(found, pod, 37, FIT), points(found, pod, 37, FIT, most_allocated=True)

    assert least[0] < least[1]
    assert most[0] > most[1]


def test_pods_of_one_controller_spread_by_default_where_none_asks_for_it() -> None:
    found = cluster(node("n1"), node("n2"))
    labels = {"app": "web"}
    selector = EVERYTHING.and_equal(labels.items())
    found.bind(asked(model("o", labels), {}, selector), 0)

    by_default = points(found, asked(model("p", labels), {}, selector), 37, "PodTopologySpread")
    rows = np.arange(2)

    assert by_default[0] < by_default[1]
    without = scores(found, placeable("p", labels), rows, profile_of(37))
    assert "PodTopologySpread" not in without


def test_a_namespace_selector_chooses_namespaces_by_their_labels() -> None:
    found = cluster(node("n1"), node("n2", zone="b"))
    found.bind(placeable("o", {"a": "x"}), 0)  # in the namespace team
    affinity = near({"a": "x"}, HOST)
    [term] = affinity["podAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    term["namespaceSelector"] = {"matchLabels": {"of": "us"}}
    pod = msgspec.convert({"metadata": {"namespace": "other"}, "spec": {"affinity": affinity}}, Pod)

    assert passing(found, asked(pod, {"team": {"of": "us"}, "other": {}})) == ["n1"]
    assert passing(found, asked(pod, {"team": {}, "other": {}})) == []


@pytest.mark.parametrize(
    ("spec", "reasons"),
    [
        ({}, []),
        ({"volumes": [{"name": "v", "emptyDir": {}}, {"name": "w", "secret": {}}]}, []),
        ({"volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "c"}}]}, [VOLUMES]),
        ({"volumes": [{"name": "v", "csi": {"driver": "d"}}]}, [VOLUMES]),
        ({"volumes": [{"name": "v", "someFutureVolume": {}}]}, [VOLUMES]),
        ({"resourceClaims": [{"name": "gpu"}]}, [CLAIMS]),
        ({"schedulingGroup": {"podGroupName": "g"}}, [GROUP]),
        ({"schedulingGates": [{"name": "g"}], "schedulerName": "volcano"}, [GATES, SCHEDULER]),
        ({"tolerations": [{"key": "k", "operator": "Gt", "value": "5"}]}, [COMPARED]),
    ],
)
def test_what_is_not_modelled_is_named(spec: Tree, reasons: list[str]) -> None:
    assert unknown_of(model("p", **spec)) == reasons


def test_labels_of_namespaces_are_unknown_only_where_they_decide() -> None:
    def with_selector(selector: Tree) -> Pod:
        affinity = near({"a": "x"})
        [term] = affinity["podAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
        term["namespaceSelector"] = selector
        return model("p", affinity=affinity)

    by_labels, every = with_selector({"matchLabels": {"of": "us"}}), with_selector({})

    assert unknown_of(by_labels, knows_namespaces=False) == [NAMESPACES]
    assert unknown_of(by_labels) == unknown_of(every, knows_namespaces=False) == []
