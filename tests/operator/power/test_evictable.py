"""Which pods may be evicted to empty a node."""

from typing import Any

import msgspec
import pytest

from joulie_operator.power.evictable import LivePod, has_ended, why_it_stays
from joulie_projections.pods.replacement import SAFE

REPLICA_SET = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web", "controller": True}
DAEMON_SET = REPLICA_SET | {"kind": "DaemonSet"}
JOB = {"apiVersion": "batch/v1", "kind": "Job", "name": "sum", "controller": True}
LOCAL = [{"name": "scratch", "emptyDir": {}}]


def live(
    owner: dict[str, Any] | None = None,
    *,
    spec: dict[str, Any] | None = None,
    phase: str = "Running",
    **metadata: Any,
) -> LivePod:
    owners = [owner] if owner else []
    tree = {
        "metadata": {"name": "p", "namespace": "team", "ownerReferences": owners, **metadata},
        "spec": {"nodeName": "n1", "containers": [{"name": "c"}], **(spec or {})},
        "status": {"phase": phase},
    }
    return msgspec.convert(tree, LivePod)


@pytest.mark.parametrize(
    ("pod", "why"),
    [
        pytest.param(live(), "no controller", id="bare"),
        pytest.param(live(REPLICA_SET | {"controller": False}), "no controller", id="only owned"),
        pytest.param(live(DAEMON_SET), "a DaemonSet controls it", id="DaemonSet without affinity"),
        pytest.param(live(JOB), "a Job controls it", id="Job"),
        pytest.param(
            live(REPLICA_SET | {"apiVersion": "acme.io/v1"}), "a ReplicaSet controls", id="other"
        ),
        pytest.param(
            live(REPLICA_SET, annotations={"joulie.io/workload-class": "performance"}),
            "class performance",
            id="performance",
        ),
        pytest.param(
            live(
                REPLICA_SET,
                spec={"priorityClassName": "system-cluster-critical", "priority": 2_000_000_000},
            ),
            "critical",
            id="critical",
        ),
        pytest.param(live(REPLICA_SET, spec={"volumes": LOCAL}), "data on its node", id="emptyDir"),
        pytest.param(
            live(REPLICA_SET, spec={"volumes": [{"name": "h", "hostPath": {"path": "/"}}]}),
            "data on its node",
            id="hostPath",
        ),
        pytest.param(live(REPLICA_SET, annotations={SAFE: "false"}), "is false", id="not safe"),
        pytest.param(
            live(REPLICA_SET, annotations={"karpenter.sh/do-not-disrupt": "true"}),
            "is true",
            id="do not disrupt",
        ),
    ],
)
def test_a_pod_that_would_lose_something_stays(pod: LivePod, why: str) -> None:
    assert why in why_it_stays(pod, None)


@pytest.mark.parametrize(
    "pod",
    [
        pytest.param(live(REPLICA_SET), id="ReplicaSet"),
        pytest.param(live(REPLICA_SET | {"kind": "StatefulSet"}), id="StatefulSet"),
        pytest.param(
            live(REPLICA_SET | {"apiVersion": "v1", "kind": "ReplicationController"}), id="v1"
        ),
        pytest.param(
            live(REPLICA_SET, spec={"volumes": LOCAL}, annotations={SAFE: "true"}),
            id="declared safe",
        ),
        pytest.param(
            live(REPLICA_SET, spec={"volumes": [{"name": "s", "secret": {}}]}), id="a secret"
        ),
        pytest.param(live(deletionTimestamp="2026-11-25T00:00:00Z"), id="a bare pod that ends"),
    ],
)
def test_a_pod_that_its_controller_replaces_may_be_evicted(pod: LivePod) -> None:
    assert why_it_stays(pod, None) == ""


def test_the_class_of_the_namespace_counts() -> None:
    assert "class performance" in why_it_stays(live(REPLICA_SET), "performance")


def test_finished_pods_keep_no_node_awake() -> None:
    assert has_ended(live(phase="Succeeded"))
    assert not has_ended(live(phase="Unknown"))
