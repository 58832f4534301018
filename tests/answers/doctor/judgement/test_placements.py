"""Which pods no scheduler looks at."""

from datetime import UTC, datetime
from typing import Any

import msgspec

from joulie_answers.doctor.judgement.placements import PodSeen, placements_in
from joulie_answers.doctor.observed_cluster import Installed

NOW = datetime(2026, 5, 4, 12, 0, tzinfo=UTC)
NOW_NS = int(NOW.timestamp() * 10**9)


def pod(name: str, created: str, condition: str = "", **more: Any) -> PodSeen:
    """A pod; `condition` is the status of PodScheduled."""
    conditions = [{"type": "PodScheduled", "status": condition, "lastTransitionTime": created}]
    meta = {"name": name, "namespace": "a", "creationTimestamp": created, **more.pop("meta", {})}
    tree = {"metadata": meta, "spec": more, "status": {"conditions": conditions[: bool(condition)]}}
    return msgspec.json.decode(msgspec.json.encode(tree), type=PodSeen)


def test_a_pod_without_the_condition_for_a_minute_has_no_scheduler() -> None:
    old, new = "2026-05-04T11:58:00Z", "2026-05-04T11:59:50Z"
    waiting = [
        pod("ignored", old),
        pod("refused", old, "False"),
        pod("new", new),
        pod("gated", old, schedulingGates=[{"name": "g"}]),
        pod("going", old, meta={"deletionTimestamp": new}),
    ]

    found = placements_in(waiting, [], NOW_NS).waiting

    assert found.names == ["a/ignored"]
    assert found.pods == 4


def test_the_newest_placement_is_that_of_a_pod_that_got_a_node() -> None:
    placed = [
        pod("first", "2026-05-04T10:00:00Z", "True"),
        pod("second", "2026-05-04T11:00:00Z", "True"),
        pod("refused", "2026-05-04T11:30:00Z", "False"),
    ]

    assert placements_in([], placed, NOW_NS).newest == NOW_NS - 3600 * 10**9
    assert placements_in([], [], NOW_NS).newest == 0


def extender(status: str, since: str) -> dict[str, Any]:
    ready = {"type": "Ready", "status": status, "lastTransitionTime": since}
    return {"status": {"conditions": [ready]}}


def test_an_extender_could_be_asked_since_the_first_of_the_ready_ones_was_ready() -> None:
    pods = [
        extender("False", "2026-05-04T10:00:00Z"),
        extender("True", "2026-05-04T11:30:00Z"),
        extender("True", "2026-05-04T11:00:00Z"),
    ]

    assert Installed({"extender": pods}).extender_ready_since == NOW_NS - 3600 * 10**9
    assert Installed({"extender": pods[:1]}).extender_ready_since == 0
    assert Installed({}).extender_ready_since == 0
