"""Which pods may be resized, as their objects and the autoscalers around them say."""

import json
from typing import Any

import pytest

from joulie_bus.core.undecodable import UNDECODABLE
from joulie_bus.events import ContainerRequest
from joulie_operator.facts.resizable_pods import (
    CONSENT,
    OWN,
    Surroundings,
    kept,
    read_pod,
    resizable,
)
from joulie_operator.facts.scalers import Scaler, of_hpa, of_unreadable, of_vpa
from joulie_operator.planning.resizes import ResizablePod

Tree = dict[str, Any]
NOTHING = Surroundings({}, {}, ())
OWNER = {"kind": "ReplicaSet", "name": "web-7d4b9c6f5d", "controller": True}
REQUESTS = {"cpu": "1500m", "memory": "2Gi"}
SIZE = (ContainerRequest("c", 1500, 2 << 30),)


def tree(label: str | None = "in-place", **spec: Any) -> Tree:
    labels = {} if label is None else {CONSENT: label}
    meta = {"name": "web-7d4b9c6f5d-x2v4k", "namespace": "team", "uid": "u1", "labels": labels}
    container = {"name": "c", "resources": {"requests": REQUESTS}}
    return {
        "metadata": meta | {"ownerReferences": [OWNER]},
        "spec": {"nodeName": "n1", "containers": [container], **spec},
        "status": {"phase": "Running", "qosClass": "Burstable"},
    }


def read(pod: Tree, around: Surroundings = NOTHING) -> ResizablePod:
    found = resizable(read_pod(json.dumps(pod)), around)
    assert found is not None
    return found


def why(pod: Tree, around: Surroundings = NOTHING) -> str:
    found = read(pod, around)
    return found.forbids.reason if found.forbids else ""


@pytest.mark.parametrize(
    ("label", "of_namespace", "consent"),
    [
        (None, None, ""),
        (None, "in-place", "in-place"),
        ("off", "in-place", ""),
        ("recommend", "in-place", "recommend"),
        ("in-place", None, "in-place"),
    ],
)
def test_the_label_of_the_pod_counts_else_that_of_its_namespace(
    label: str | None, of_namespace: str | None, consent: str
) -> None:
    around = NOTHING._replace(consents={"team": of_namespace} if of_namespace else {})
    assert read(tree(label), around).consent == consent


def test_a_pod_has_the_requests_of_its_containers_and_its_own_come_from_the_annotation() -> None:
    pod = tree()
    assert (read(pod).present, read(pod).original) == (SIZE, None)

    own = (ContainerRequest("c", 4000, 8 << 30),)
    pod["metadata"]["annotations"] = {OWN: kept(own, 7)}
    found = read(pod)
    assert (found.present, found.original, found.ordered_at) == (SIZE, own, 7)

    for text in ("", '{"orderedAt": 7, "requests": {}}', kept(own, 7).replace('"4"', '"much"')):
        pod["metadata"]["annotations"] = {OWN: text}
        assert why(pod) == "unreadable"


def test_a_pod_that_runs_nowhere_or_ends_is_left_out() -> None:
    pending, ending = tree(), tree()
    pending["status"]["phase"] = "Pending"
    ending["metadata"]["deletionTimestamp"] = "2026-11-30T09:00:00Z"

    assert [resizable(read_pod(json.dumps(each)), NOTHING) for each in (pending, ending)] == [
        None,
        None,
    ]


def test_what_about_a_pod_forbids_a_resize_is_named() -> None:
    guaranteed = tree()
    guaranteed["status"]["qosClass"] = "Guaranteed"
    restarts = tree()
    policy = {"resourceName": "memory", "restartPolicy": "RestartContainer"}
    restarts["spec"]["containers"][0]["resizePolicy"] = [policy]
    static = tree()
    static["metadata"]["annotations"] = {"kubernetes.io/config.mirror": "x"}
    static["metadata"]["ownerReferences"] = [{"kind": "Node", "name": "n1", "controller": True}]
    whole = tree(resources={"requests": {"cpu": "2"}})

    assert why(tree()) == ""
    found = [why(each) for each in (guaranteed, restarts, static, whole)]
    assert found == ["qos", "restart", "static", "pod-level"]


def test_a_pod_of_class_performance_has_to_consent_itself() -> None:
    around = NOTHING._replace(consents={"team": "in-place"}, classes={"team": "performance"})

    assert why(tree(None), around) == "performance"
    assert why(tree("in-place"), around) == ""


def hpa(**metric: Any) -> Tree:
    spec = {"scaleTargetRef": {"kind": "Deployment", "name": "web"}, "metrics": [metric]}
    return {"metadata": {"name": "h", "namespace": "team"}, "spec": spec}


def vpa(mode: str | None) -> Tree:
    policy = {} if mode is None else {"updatePolicy": {"updateMode": mode}}
    spec = {"targetRef": {"kind": "Deployment", "name": "web"}, **policy}
    return {"metadata": {"name": "v", "namespace": "team"}, "spec": spec}


UTILIZATION = {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 80}}
VALUE = {"name": "cpu", "target": {"type": "AverageValue", "averageValue": "1"}}


@pytest.mark.parametrize(
    ("scaler", "reason"),
    [
        (of_hpa(json.dumps(hpa(type="Resource", resource=UTILIZATION)).encode()), "hpa"),
        (
            of_hpa(
                json.dumps(hpa(type="ContainerResource", containerResource=UTILIZATION)).encode()
            ),
            "hpa",
        ),
        (of_hpa(json.dumps(hpa(type="Resource", resource=VALUE)).encode()), ""),
        (of_vpa(json.dumps(vpa("Recreate")).encode()), "vpa"),
        (of_vpa(json.dumps(vpa(None)).encode()), "vpa"),
        (of_vpa(json.dumps(vpa("Off")).encode()), ""),
    ],
)
def test_autoscalers_that_use_or_set_requests_forbid_it(scaler: Scaler | None, reason: str) -> None:
    around = NOTHING._replace(scalers=[scaler] if scaler else [])
    assert why(tree(), around) == reason

    elsewhere, other = tree(), tree()
    elsewhere["metadata"]["namespace"] = "others"
    other["metadata"] |= {"name": "db-0", "ownerReferences": [OWNER | {"name": "db"}]}
    assert (why(elsewhere, around), why(other, around)) == ("", "")


@pytest.mark.parametrize(
    ("raw", "in_the_namespace", "elsewhere"),
    [
        (b'{"metadata": {"name": "h", "namespace": "team"}, "spec": 7}', True, False),
        (b'{"metadata": 7}', True, True),
    ],
)
def test_an_autoscaler_that_cannot_be_read_forbids_it_wherever_it_may_scale(
    raw: bytes, in_the_namespace: bool, elsewhere: bool
) -> None:
    with pytest.raises(UNDECODABLE) as failed:
        of_hpa(raw)
    scaler = of_unreadable(raw, "HorizontalPodAutoscaler", failed.value)
    around, other = NOTHING._replace(scalers=[scaler]), tree()
    other["metadata"]["namespace"] = "others"

    reason = "autoscaler-unreadable"
    assert why(tree(), around) == (reason if in_the_namespace else "")
    assert why(other, around) == (reason if elsewhere else "")


def test_without_the_right_to_list_autoscalers_no_pod_is_resized() -> None:
    assert why(tree(), NOTHING._replace(scalers=None)) == "autoscalers"
