"""Events on placed pods: their text, their number, and their share of all requests."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from joulie_bus.errors import SettingsError
from joulie_bus.events import OutcomeSeen
from joulie_bus.runtime.settings import Source
from joulie_operator.apply.pod_events import (
    BURST,
    REQUESTS_PER_NODE_S,
    REQUESTS_PER_POD,
    EventBudget,
    Placed,
    announcements,
    event_of,
    note_of,
    workload_of,
)
from joulie_operator.cluster_settings import ApplierSettings

STEPS = st.lists(
    st.tuples(st.integers(0, 5000), st.integers(0, 500), st.floats(0, 600)), max_size=30
)


def placed(name: str, entry: int = 7, **more: Any) -> Placed:
    values: dict[str, Any] = {"decision": "d", "rank": 1, "score": 42, "regret": 0, **more}
    outcome = OutcomeSeen(pod_uid=f"u-{name}", namespace="a", name=name, node="n1", **values)
    return Placed(entry, 10**18, outcome)


def note(name: str = "web-5f-x", **more: Any) -> str:
    [one] = announcements([placed(name, **more)])
    return note_of(one)


def test_the_note_says_the_node_the_score_and_the_entry() -> None:
    assert note() == (
        "Placed on n1, the best by Joulie's score with 42 (entry 7). "
        "`kubectl joulie explain web-5f-x -n a` shows why."
    )


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"rank": 3, "regret": 5}, "number 3 by Joulie's score with 42, 5 less than the best"),
        ({"rank": None, "score": None}, "not among the nodes that Joulie scored"),
    ],
)
def test_the_note_says_how_the_node_compares(more: dict[str, Any], said: str) -> None:
    assert said in note(**more)


def test_the_note_says_that_the_score_rests_on_no_view() -> None:
    assert "(entry 7). Joulie had no view of the cluster yet. `kubectl" in note(without_view=True)


def test_pods_of_one_workload_share_an_event_on_the_newest() -> None:
    pods = [placed("web-5f-a", 1), placed("db-0", 2), placed("web-5f-b", 3)]
    web, db = announcements(pods)

    assert (web.placed.entry, web.others) == (3, 1)
    assert (db.placed.entry, db.others) == (2, 0)
    assert "1 more pods of this workload" in note_of(web)
    assert event_of(web)["regarding"]["uid"] == "u-web-5f-b"


def test_a_pod_that_was_not_scored_gets_no_event() -> None:
    assert announcements([placed("web-5f-a", decision="")]) == []


def test_a_pod_without_a_controller_is_a_workload_of_its_own() -> None:
    assert workload_of("solo") == "solo"


@given(STEPS, st.sampled_from([0.0, 0.02, 0.5]))
def test_events_stay_within_the_share_of_requests(
    steps: list[tuple[int, int, float]], share: float
) -> None:
    now_s, requests, written = 0.0, 0.0, 0
    budget = EventBudget(share, now_s)
    for nodes, pods, seconds in steps:
        now_s += seconds
        requests += nodes * REQUESTS_PER_NODE_S * seconds + pods * REQUESTS_PER_POD
        budget.earn(nodes, pods, now_s)
        while budget.spend():
            written += 1

    assert written <= BURST + share * requests + 1e-6


@pytest.mark.parametrize(
    ("text", "rate", "share"),
    [("300", 300, 0.02), ("50,pod-events=0", 50, 0), ("50, pod-events=0.5", 50, 0.005)],
)
def test_one_setting_bounds_writes_and_events(text: str, rate: float, share: float) -> None:
    settings = Source.of(APPLY_RATE=text).load(ApplierSettings)

    assert (settings.rate, settings.pod_events_share) == (rate, share)


@pytest.mark.parametrize("text", ["0", "300,events=1", "300,pod-events=101", "300,pod-events=x"])
def test_a_wrong_rate_is_refused(text: str) -> None:
    source = Source.of(APPLY_RATE=text)
    source.load(ApplierSettings)

    with pytest.raises(SettingsError, match="APPLY_RATE"):
        source.finish()
