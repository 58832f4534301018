"""Events on placed pods: their text, their number, and their share of all requests."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from bus_kit import decided
from joulie_bus.errors import SettingsError
from joulie_bus.events import FilterDecided, OutcomeSeen
from joulie_bus.runtime.settings import Source
from joulie_operator.cluster_settings import ApplierSettings
from joulie_operator.desired.pod_events import (
    BURST,
    LONGEST_WAIT_NS,
    MOST_WAITING,
    REQUESTS_PER_NODE_S,
    REQUESTS_PER_POD,
    REQUESTS_S,
    EventBudget,
    Placed,
    WaitingEvents,
    event_of,
    filtered_by,
    note_of,
    workload_of,
)

STEPS = st.lists(
    st.tuples(st.integers(0, 5000), st.integers(0, 500), st.floats(0, 600)), max_size=30
)


def placed(name: str, entry: int = 7, **more: Any) -> Placed:
    values: dict[str, Any] = {"decision": "d", "rank": 1, "score": 42, "regret": 0, **more}
    outcome = OutcomeSeen(pod_uid=f"u-{name}", namespace="a", name=name, node="n1", **values)
    return Placed(entry, 10**18, outcome)


def answer(verdicts: bytes, view: int) -> FilterDecided:
    given = decided("web-5f-a")
    return replace(given, verdicts=verdicts, basis=replace(given.basis, view=view))


def waiting(*pods: Placed) -> WaitingEvents:
    events = WaitingEvents()
    events.add(pods)
    return events


def note(name: str = "web-5f-x", **more: Any) -> str:
    return note_of(waiting(placed(name, **more)).take())


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
    events = waiting(*pods)
    web, db = events.take(), events.take()

    assert len(events) == 0
    assert (web.placed.entry, web.others) == (3, 1)
    assert (db.placed.entry, db.others) == (2, 0)
    assert "1 more pods of this workload" in note_of(web)
    assert event_of(web)["regarding"]["uid"] == "u-web-5f-b"


def test_a_pod_that_the_extender_did_not_see_gets_no_event() -> None:
    assert len(waiting(placed("web-5f-a", decision=""))) == 0


@pytest.mark.parametrize(
    ("verdicts", "said"),
    [
        (b"\0", "the only node for which kube-scheduler asked; it passed Joulie's filter"),
        (b"\1\0\1", "the only one of 3 nodes that passed Joulie's filter"),
        (b"\0\0\1", "one of 2 nodes that passed Joulie's filter, without scores"),
    ],
)
def test_the_note_of_a_pod_without_scores_tells_the_filter(verdicts: bytes, said: str) -> None:
    unscored = placed("web-5f-a", decision="", rank=None, score=None)
    filtered = filtered_by(3, answer(verdicts, view=5))
    text = note_of(waiting(unscored._replace(filtered=filtered)).take())

    assert text.startswith(f"Placed on n1, {said} (entry 3). `kubectl")


def test_the_note_says_that_the_filter_rests_on_no_view() -> None:
    filtered = filtered_by(3, answer(b"\0", view=0))
    text = note_of(waiting(placed("web-5f-a", decision="")._replace(filtered=filtered)).take())

    assert "(entry 3). Joulie had no view of the cluster yet. `kubectl" in text


def test_pods_that_wait_for_the_budget_still_share_an_event() -> None:
    events = waiting(placed("web-5f-a", 1))
    events.add([placed("db-0", 2), placed("web-5f-b", 3), placed("web-5f-c", 4)])

    assert [(each.placed.entry, each.others) for each in (events.take(), events.take())] == [
        (4, 2),
        (2, 0),
    ]


def test_an_event_that_waited_too_long_is_dropped_and_the_oldest_of_too_many() -> None:
    names = [f"web{number}-x" for number in range(MOST_WAITING + 2)]
    events = waiting(*map(placed, names))
    now = 10**18

    assert [each.placed.outcome.name for each in events.drop_old(now)] == names[:2]
    assert events.drop_old(now + LONGEST_WAIT_NS) == []
    assert len(events.drop_old(now + LONGEST_WAIT_NS + 1)) == MOST_WAITING
    assert len(events) == 0


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
        requests += (REQUESTS_S + nodes * REQUESTS_PER_NODE_S) * seconds
        requests += pods * REQUESTS_PER_POD
        budget.earn(nodes, pods, now_s)
        while budget.spend():
            written += 1

        assert written <= share * requests + 1e-6


def test_an_idle_cluster_saves_up_a_burst_of_events_and_no_more() -> None:
    budget = EventBudget(0.02, 0.0)
    budget.earn(nodes=1, pods=0, now_s=86_400)

    assert [budget.spend() for _ in range(int(BURST) + 1)] == [True] * int(BURST) + [False]


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
