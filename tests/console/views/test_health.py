"""Each warning of the page names the component that is the cause, and no other."""

from typing import Any

import pytest

from joulie_answers.schema.responses import ReplicaSpool
from joulie_bus.streams.records import IncompleteCopy
from joulie_bus.streams.subjects import Stream
from joulie_console.views.health import HealthInputs, warnings_of
from joulie_projections.state.completeness import NEVER_MS

HEALTHY = HealthInputs(
    heard_ms=100,
    behind_ms=300,
    projector_behind_ms=200,
    waiting=0,
    broker_ms=200,
    planned_s=10,
    interval_s=60,
    nodes=3,
    unmeasured=0,
    pending=0,
    decided_s=None,
    unwritten=0,
    database="",
    cards_unhealthy=0,
)
BEHIND: dict[str, Any] = {"behind_ms": 60_000, "projector_behind_ms": 59_900, "waiting": 5}


def test_what_the_console_has_not_read_is_no_silence_of_the_extender() -> None:
    silent = HEALTHY._replace(pending=5, decided_s=33.0)

    assert [each.part for each in warnings_of(silent._replace(decisions_read_s=2.0))] == [
        "extender"
    ]
    assert warnings_of(silent._replace(decisions_read_s=4.0)) == []
    assert warnings_of(silent._replace(decided_s=60.0, decisions_read_s=20.0)) == []


def test_a_healthy_cluster_has_no_warnings() -> None:
    assert warnings_of(HEALTHY) == []


@pytest.mark.parametrize(
    ("change", "part", "level"),
    [
        ({"heard_ms": 2_000}, "projector", "warning"),
        ({"heard_ms": 15_000}, "projector", "serious"),
        ({"behind_ms": 2_000, "projector_behind_ms": 1_900}, "projector", "warning"),
        (BEHIND, "projector", "serious"),
        ({"behind_ms": 3_000}, "console", "warning"),
        ({"broker_ms": 3_000, "behind_ms": 3_000}, "broker", "serious"),
        ({"incomplete": [IncompleteCopy("n1", Stream.OBS, 7)]}, "broker", "serious"),
        ({"planned_s": None}, "operator", "warning"),
        ({"planned_s": 181.0}, "operator", "warning"),
        ({"planned_s": 1801.0, "interval_s": 600}, "operator", "warning"),
        ({"unmeasured": 1}, "telemetry", "warning"),
        ({"unmeasured": 3}, "telemetry", "serious"),
        ({"pending": 1}, "extender", "warning"),
        ({"pending": 1, "decided_s": 31.0}, "extender", "warning"),
        ({"database": "locked"}, "database", "serious"),
        ({"cards_unhealthy": 1}, "cards", "warning"),
        ({"unsigned_s": 61.0}, "log", "warning"),
    ],
    ids=str,
)
def test_each_fault_is_a_warning_of_its_component(
    change: dict[str, Any], part: str, level: str
) -> None:
    (found,) = warnings_of(HEALTHY._replace(**change))

    assert (found.part, found.level) == (part, level)


@pytest.mark.parametrize(
    "change",
    [
        {"pending": 1},
        {"pending": 1, "decided_s": 50.0},
        {"unmeasured": 3},
        {"planned_s": None},
        {"planned_s": 200.0},
    ],
    ids=str,
)
def test_a_page_that_is_behind_blames_no_other_component(change: dict[str, Any]) -> None:
    (found,) = warnings_of(HEALTHY._replace(**BEHIND, **change))

    assert found.part == "projector"


def test_the_lag_is_in_seconds_before_it_is_in_facts() -> None:
    (found,) = warnings_of(HEALTHY._replace(**BEHIND))

    assert found.text == (
        "This page is up to 60 s behind the cluster: "
        "the projector is behind, 5 facts are not folded yet."
    )


def test_a_lag_that_is_not_known_is_no_number() -> None:
    (found,) = warnings_of(HEALTHY._replace(behind_ms=NEVER_MS, projector_behind_ms=NEVER_MS))

    assert "an unknown time behind the cluster" in found.text


def test_an_operator_with_a_long_interval_may_take_three_of_it() -> None:
    assert warnings_of(HEALTHY._replace(planned_s=1700, interval_s=600)) == []


def test_pending_pods_with_recent_decisions_are_no_fault() -> None:
    assert warnings_of(HEALTHY._replace(pending=5, decided_s=1.0)) == []


def test_pending_pods_whose_decisions_are_not_written_yet_are_no_fault() -> None:
    assert warnings_of(HEALTHY._replace(pending=5, decided_s=60.0, unwritten=3)) == []


@pytest.mark.parametrize(("seconds", "parts"), [(0.0, []), (10.0, []), (10.1, ["ledger"])])
def test_a_ledger_that_lacks_facts_for_more_than_ten_seconds_is_a_warning(
    seconds: float, parts: list[str]
) -> None:
    found = warnings_of(HEALTHY._replace(ledger_s=seconds))

    assert [each.part for each in found] == parts


@pytest.mark.parametrize(
    ("change", "means"),
    [
        ({"heard_ms": 15_000, "behind_ms": 16_000}, "This page is up to 16 s behind the cluster."),
        ({"broker_ms": 3_000}, "What has happened since then is not in view."),
        ({"planned_s": 181.0}, "nodes and pods that it watches may have changed since"),
        ({"unmeasured": 1}, "the power in view is that of the others"),
        ({"pending": 1, "decided_s": 31.0}, "the list of decisions ends there"),
        ({"database": "locked"}, "decisions and past states are missing"),
        ({"ledger_s": 43.0}, "figures of energy end before that"),
        ({"ledger_s": None}, "The ledger cannot be read"),
        (
            {"unmeasured": 1, "unread_s": 400.0},
            "no fresh power reading, the longest silent for 7 min",
        ),
        ({"cards_unhealthy": 1}, "no pod gets them"),
        ({"unsigned_s": 61.0}, "Figures are not affected"),
    ],
    ids=str,
)
def test_a_warning_says_what_it_means_for_the_figures_in_view(
    change: dict[str, Any], means: str
) -> None:
    (found,) = warnings_of(HEALTHY._replace(**change))

    assert means in found.text


def test_entries_that_wait_in_a_spool_for_long_are_named_with_their_replica() -> None:
    def waits(oldest_s: float | None, waiting: int | None = 7) -> HealthInputs:
        return HEALTHY._replace(
            spools=[ReplicaSpool(name="extender-1", waiting=waiting, oldest_s=oldest_s)]
        )

    (warning,) = warnings_of(waits(20.0))
    assert (warning.part, warning.text) == (
        "extender",
        "7 entries of extender-1 are not at the broker, the oldest for 20.0 s: it takes them late, "
        "or not.",
    )
    assert warnings_of(waits(1.0)) == warnings_of(waits(None, None)) == []


def test_a_replica_that_reports_its_spool_no_more_is_named() -> None:
    silent = ReplicaSpool(name="extender-1", waiting=None, oldest_s=None, heard_s=70.0)

    (warning,) = warnings_of(HEALTHY._replace(spools=[silent]))
    assert warning.text.startswith("extender-1 has not reported its spool for 70.0 s: it is down")
