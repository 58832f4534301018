"""What a status says of what runs, and what of it is stale."""

from typing import Any

import pytest
from msgspec.structs import replace

from joulie_answers.readers.gauges import parsed
from joulie_answers.schema.responses import (
    Readings,
    RefusedOnSample,
    RunningPart,
    Status,
    StorageSizes,
    StreamSize,
)
from joulie_answers.text import status as text
from joulie_answers.text.status import (
    part_warnings,
    projector_warnings,
    status_text,
    warnings_of,
)
from joulie_answers.views.status import with_gauges
from joulie_bus.runtime import metrics
from joulie_projections.energy import report

READINGS = Readings(nodes=3, asleep=0, fresh=2, oldest_s=7.5)
STATUS = Status(
    position=12,
    at_ms=0,
    age_ms=0,
    behind_ms=0,
    up_s=200.0,
    running=True,
    elsewhere=None,
    epoch=1,
    committed_at=None,
    commit_age_s=0.25,
    preset=None,
    decisions=4,
    entries=6,
    signed_to=5,
    quarantined=0,
    readings=READINGS,
    ledger_behind_s=0.0,
    refused_on_sample=[],
    data="joulie-data",
    endpoints={"broker": "nats://b", "extender": "http://e"},
)


def part(name: str, **figures: Any) -> RunningPart:
    blank = RunningPart(name=name, pid=7, alive=True, restarts=0, position=12)
    return replace(blank, **figures)


def projector(**figures: Any) -> RunningPart:
    usual = {"lag_events": 4000, "lag_s": 60.0, "broker_silent_s": 0.2}
    return part("projector", **usual | figures)


VIEW = part("extender", view_age_s=0.1, view_behind_s=60.3)


def test_the_status_counts_sleeping_nodes_if_there_are_any() -> None:
    asleep = replace(STATUS, readings=replace(READINGS, asleep=2, fresh=3))

    assert "\nasleep       2 of 3 nodes\n" in status_text(asleep)
    assert "asleep" not in status_text(STATUS)


def test_the_status_shows_positions_lags_and_ages() -> None:
    parts = [
        projector(lag_events=3, lag_s=0.008),
        part("extender", position=11, view_age_s=0.1, view_behind_s=0.25, restarts=2),
    ]

    assert status_text(replace(STATUS, parts=parts)) == (
        "running for 3 min\n"
        "  projector   pid 7       at 12         up to 8 ms behind, 3 events waiting\n"
        "  extender    pid 7       at 11         up to 250 ms behind, projector seen 100 ms ago"
        "   restarted 2 time(s)\n"
        "position     12, last commit 250 ms ago\n"
        "decisions    4 (6 entries, signed up to 5)\n"
        "readings     2 of 3 nodes fresh, the oldest 7.5 s old\n"
        "quarantined  0\n"
        "broker       nats://b\n"
        "extender     http://e\n"
        "data         joulie-data"
    )


def test_a_console_that_is_asked_tells_of_no_data_directory() -> None:
    asked = replace(STATUS, up_s=None, data="", endpoints={})

    assert status_text(asked).startswith("running\nposition ")
    assert "data" not in status_text(asked)


def test_the_status_names_the_server_whose_copy_lacks_messages_and_the_repair() -> None:
    sample = 'joulie_broker_missing_messages{server="nats 1",stream="JOULIE_OBS"} 1012.0'
    gauges = parsed(f"# TYPE joulie_broker_missing_messages gauge\n{sample}\n")

    (warning,) = projector_warnings(with_gauges(projector(), gauges))
    assert warning.startswith(
        "broker: the copy of server nats 1 lacks messages (at least 1012 of JOULIE_OBS), "
    )
    assert "delete its JetStream store" in warning


def test_a_part_without_a_view_has_no_age() -> None:
    waiting = part("extender", position=0, view_age_s=metrics.VIEW_NEVER_S)

    shown = status_text(replace(STATUS, parts=[waiting]))
    assert "  extender    pid 7       at 0          no view yet\n" in shown
    assert part_warnings([waiting], "logs") == [
        "extender has received no heartbeat of the projector yet"
    ]


def test_a_part_that_is_down_is_named_with_its_log_and_one_without_metrics_may_be_starting() -> (
    None
):
    parts = [part("console", alive=False), part("ledger", position=None)]

    assert part_warnings([*parts, part("nats-server", position=None)], "d/logs") == [
        "console is down; see d/logs/console.log",
        "ledger does not serve its metrics; it may still be starting",
    ]


@pytest.mark.parametrize(
    ("parts", "warnings"),
    [
        (
            [VIEW, projector()],
            ["projector is up to 60.0 s behind the broker: 4000 facts are not folded yet"],
        ),
        (
            [VIEW, projector(lag_s=0.3)],
            ["extender is up to 60.3 s behind the broker, and the projector 300 ms"],
        ),
        (
            [projector(lag_s=1.9), replace(VIEW, view_behind_s=2.6)],
            ["extender is up to 2.6 s behind the broker, and the projector 1.9 s"],
        ),
        (
            [VIEW, projector(broker_silent_s=4.0)],
            [
                "broker: the projector has read no answer of a majority for 4.0 s: "
                "it is down, is not reached, or has no CPU",
                "projector is up to 60.0 s behind the broker: 4000 facts are not folded yet",
            ],
        ),
        (
            [projector(lag_events=0, lag_s=3.0)],
            ["projector is up to 3.0 s behind the broker: it reads answers of the broker late"],
        ),
        ([projector(lag_s=0.4), replace(VIEW, view_behind_s=0.6)], []),
        ([projector(lag_s=0.0, lag_events=0)], []),
    ],
    ids=[
        "the readers of a late projector are not blamed",
        "a reader behind its projector",
        "a reader beyond the bound",
        "a broker without its majority",
        "answers that are read late",
        "all keep up",
        "no lag at all",
    ],
)
def test_what_is_behind_is_reported_with_its_cause(
    parts: list[RunningPart], warnings: list[str]
) -> None:
    assert part_warnings(parts, "logs") == warnings


def test_stale_data_is_reported() -> None:
    ended = replace(STATUS, up_s=None, running=False, commit_age_s=7200.0)
    shown = status_text(replace(ended, stale=warnings_of(ended)))

    assert shown.startswith("not running\n")
    assert shown.endswith("STALE        nothing runs: the data is 2 h old")


def test_the_status_shows_how_full_the_streams_are_and_when_they_will_be_full() -> None:
    gib = 1024**3
    streams = {
        "JOULIE_TEL": StreamSize(bytes=3 * gib, max_bytes=4 * gib, days_left=None, kept_s=7200.0),
        "JOULIE_OBS": StreamSize(bytes=gib // 4, max_bytes=gib, days_left=41.3, kept_s=0.0),
        "JOULIE_PLAN": StreamSize(bytes=2048, max_bytes=None, days_left=None, kept_s=0.0),
    }
    room = StorageSizes(streams=streams, database_bytes=5 * 1024**2, free_bytes=7 * gib)

    assert status_text(replace(STATUS, room=room)).splitlines()[5:9] == [
        "JOULIE_TEL   75% of 4.0 GiB, of 2 h",
        "JOULIE_OBS   25% of 1.0 GiB, full in 41 day(s)",
        "JOULIE_PLAN  2 KiB",
        "database     5 MiB, 7.0 GiB free on the disk",
    ]


@pytest.mark.parametrize(
    ("age", "shown"),
    [(0.0, "0 ms"), (1.24, "1.2 s"), (119, "119.0 s"), (7200, "2 h"), (200_000, "2 d")],
)
def test_an_age_has_a_readable_unit(age: float, shown: str) -> None:
    assert f"last commit {shown} ago" in status_text(replace(STATUS, commit_age_s=age))


def test_pods_that_wait_because_of_a_sample_are_named_with_their_time() -> None:
    waiting = [RefusedOnSample(pod=f"team/p{number}", s=90.0 - number) for number in range(12)]

    shown = status_text(replace(STATUS, refused_on_sample=waiting))
    assert "sample       12 pod(s), refused on a sample, while a fit node exists: " in shown
    assert "team/p0 for 90.0 s, team/p1 for 89.0 s" in shown
    assert "team/p9 for 81.0 s, and 2 more" in shown
    assert "sample" not in status_text(STATUS)


def test_the_bounds_are_those_of_the_components() -> None:
    assert (text.LEDGER_BEHIND_S, text.NEVER_S) == (report.BEHIND_S, metrics.VIEW_NEVER_S)
