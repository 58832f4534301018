"""What a status says of what runs, and what of it is stale."""

from typing import Any

import pytest
from msgspec.structs import replace

from joulie_answers.readers.gauges import parsed
from joulie_answers.schema.responses import (
    Readings,
    RefusedOnSample,
    ReplicaSpool,
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


VIEW = part("extender", paused=False, view_age_s=0.1, view_behind_s=60.3)


def test_the_status_counts_sleeping_nodes_if_there_are_any() -> None:
    asleep = replace(STATUS, readings=replace(READINGS, asleep=2, fresh=3))

    assert "\nasleep       2 of 3 nodes\n" in status_text(asleep)
    assert "asleep" not in status_text(STATUS)


def test_the_status_shows_positions_lags_and_ages() -> None:
    parts = [
        projector(lag_events=3, lag_s=0.008),
        replace(VIEW, position=11, view_behind_s=0.25, restarts=2),
        part("archive", position=None),
    ]

    assert status_text(replace(STATUS, parts=parts)) == (
        "running for 3 min\n"
        "  projector   pid 7       at 12         up to 8 ms behind, 3 events waiting\n"
        "  extender    pid 7       at 11         up to 250 ms behind, projector seen 100 ms ago"
        "   restarted 2 time(s)\n"
        "  archive     pid 7\n"
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
    known = "joulie_position 12\njoulie_lag_seconds 0.1\n"
    gauges = parsed(f"{known}# TYPE joulie_broker_missing_messages gauge\n{sample}\n")

    (warning,) = projector_warnings(with_gauges(projector(), gauges))
    assert warning.startswith(
        "broker: the copy of server nats 1 lacks messages (at least 1012 of JOULIE_OBS), "
    )
    assert "delete its JetStream store" in warning


def test_the_status_names_a_server_of_the_broker_that_is_lost() -> None:
    name = "joulie_broker_server_lost"
    samples = f'# TYPE {name} gauge\n{name}{{server="n0"}} 0.0\n{name}{{server="n1"}} 1.0\n'
    gauges = parsed(f"joulie_position 12\njoulie_lag_seconds 0.1\n{samples}")

    (warning,) = projector_warnings(with_gauges(projector(), gauges))
    assert warning.startswith("broker: server n1 does not answer the others")


def test_a_stream_that_is_full_within_a_day_says_in_how_many_hours() -> None:
    sizes = {"JOULIE_OBS": StreamSize(bytes=1024, max_bytes=2048, days_left=0.5, kept_s=60.0)}

    shown = status_text(replace(STATUS, room=StorageSizes(streams=sizes)))
    assert "50% of 2 KiB, of 60.0 s, FULL in 12 h" in shown


def test_the_status_counts_the_rows_of_other_programs_and_names_why_nothing_is_signed() -> None:
    known = "joulie_position 12\njoulie_lag_seconds 0.1\njoulie_log_forked 1\n"
    forked = with_gauges(projector(), parsed(known))
    found = replace(STATUS, foreign_rows=3, parts=[forked])

    assert "\nforeign      3 row(s) of other programs in the tables of the log" in status_text(
        found
    )
    assert "foreign" not in status_text(STATUS)
    assert (
        "the log is not signed any more: a signed head has another hash than the log; "
        "see not_signed in the projector's log"
    ) in warnings_of(found)


def test_the_status_names_an_entry_that_no_head_signs_for_long() -> None:
    late = replace(STATUS, unsigned_s=120.0)

    assert "the log is not signed: the first entry without a signed head is 2 min old" in (
        warnings_of(late)
    )
    assert not any("signed" in each for each in warnings_of(replace(STATUS, unsigned_s=9.0)))


def test_a_part_without_a_view_has_no_age() -> None:
    waiting = part("extender", position=None, paused=False)

    shown = status_text(replace(STATUS, parts=[waiting]))
    assert "  extender    pid 7       no view yet\n" in shown
    assert part_warnings([waiting], "logs") == [
        "extender has received no heartbeat of the projector yet"
    ]


def test_a_part_that_is_down_or_does_not_answer_is_named_with_its_time_and_its_log() -> None:
    silent = {"position": None, "answers": False}
    parts = [part("console", alive=False), part("ledger", up_s=600.0, **silent)]

    assert part_warnings([*parts, part("nats-server", **silent)], "d/logs") == [
        "console is down; see d/logs/console.log",
        "ledger, started 10 min ago, does not answer for its metrics; see d/logs/ledger.log",
    ]


def test_a_projector_that_does_not_lead_has_no_figures() -> None:
    waiting = projector(position=None, up_s=600.0, lag_s=None, lag_events=None)

    assert "  projector   pid 7\n" in status_text(replace(STATUS, parts=[waiting]))
    assert part_warnings([waiting], "logs") == [
        "projector, started 10 min ago, does not lead yet: it waits for the broker, "
        "the database, or the lease of another projector"
    ]


def test_a_lag_that_is_not_known_is_no_number() -> None:
    behind = projector(lag_s=None, lag_events=7)

    shown = status_text(replace(STATUS, parts=[behind]))
    assert "at 12         behind by an unknown time, 7 events waiting\n" in shown
    assert part_warnings([behind, replace(VIEW, view_behind_s=None)], "logs") == [
        "projector has not folded the facts of before its start yet"
    ]
    assert part_warnings([behind, VIEW], "logs")[1:] == [
        "extender is up to 60.3 s behind the broker, and the projector by an unknown time"
    ]


def test_a_view_that_is_paused_is_not_stale() -> None:
    console = replace(VIEW, name="console", paused=True, view_behind_s=None)

    shown = status_text(replace(STATUS, parts=[console]))
    assert "at 12         paused until a client reads it, projector seen 100 ms ago\n" in shown
    assert part_warnings([projector(lag_s=0.1), console], "logs") == []
    assert part_warnings([replace(console, view_age_s=9.0)], "logs") == [
        "console received no heartbeat of the projector for 9.0 s"
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


def test_decisions_that_wait_in_a_spool_are_shown_and_reported_once_they_wait_for_long() -> None:
    found = ReplicaSpool(name="extender-0", waiting=2749, oldest_s=40.0)
    soon, late = (replace(STATUS, spools=[replace(found, oldest_s=each)]) for each in (0.4, 40.0))

    assert "spool        2749 entries wait in that of extender-0" in status_text(soon)
    assert not [line for line in warnings_of(soon) if "extender-0" in line]
    assert (
        "2749 entries of extender-0 are not at the broker, the oldest for 40.0 s: it takes "
        "them late, or not"
    ) in warnings_of(late)


def test_a_spool_that_is_not_known_is_no_empty_one() -> None:
    empty = ReplicaSpool(name="extender-0", waiting=0, oldest_s=0.0, heard_s=0.2)
    silent = ReplicaSpool(name="extender-0", waiting=None, oldest_s=None, heard_s=7.0)
    (first, second) = (replace(STATUS, spools=[each]) for each in (empty, silent))

    assert "spool        0 entries wait in that of extender-0\n" in f"{status_text(first)}\n"
    assert "spool        of extender-0: not known\n" in f"{status_text(second)}\n"
    assert (
        "extender-0 has not reported its spool for 7.0 s: it is down, or does not reach the broker"
    ) in warnings_of(second)


def test_answers_that_the_log_lacks_are_reported() -> None:
    gauges = {"joulie_view_paused": 0.0, "joulie_view_age_seconds": 0.1}
    found = with_gauges(VIEW, gauges | {"joulie_answers_missing": 2.0})

    assert part_warnings([found], "logs")[-1] == (
        "the signed log lacks 2 entries that the extender published, or has them with another "
        "content: `joulie prove --missing`"
    )


def test_a_full_disk_is_the_first_thing_reported() -> None:
    full = StorageSizes(free_bytes=0, full="0.0 MiB are free")
    found = replace(STATUS, room=full, data="/data", parts=[projector()])

    assert warnings_of(found)[0].startswith("the disk of /data is full (0.0 MiB are free): ")
    assert "disk         0 B free" in status_text(found)


def test_stale_data_is_reported() -> None:
    ended = replace(STATUS, up_s=None, running=False, commit_age_s=7200.0)
    shown = status_text(replace(ended, stale=warnings_of(ended)))

    assert shown.startswith("no projector leads\n")
    assert shown.endswith(
        "STALE        no projector leads: the last one has ended, and the newest fact is 2 h old"
    )


def test_a_lost_lease_says_nothing_of_other_components() -> None:
    lost = replace(STATUS, up_s=None, running=False, commit_age_s=36.0, leaderless_s=35.0)

    assert warnings_of(lost) == [
        "no projector leads since 35.0 s: it is down, or reaches no majority of the broker; "
        "the newest fact is 36.0 s old"
    ]


def test_the_status_shows_how_full_the_streams_are_and_when_they_will_be_full() -> None:
    gib = 1024**3
    streams = {
        "JOULIE_TEL": StreamSize(bytes=3 * gib, max_bytes=4 * gib, days_left=None, kept_s=7200.0),
        "JOULIE_OBS": StreamSize(bytes=gib // 4, max_bytes=gib, days_left=41.3, kept_s=0.0),
        "JOULIE_PLAN": StreamSize(bytes=2048, max_bytes=None, days_left=None, kept_s=0.0),
    }
    room = StorageSizes(streams=streams, database_bytes=5 * 1024**2, free_bytes=7 * gib)

    assert status_text(replace(STATUS, room=room)).splitlines()[5:10] == [
        "JOULIE_TEL   75% of 4.0 GiB, of 2 h",
        "JOULIE_OBS   25% of 1.0 GiB, full in 41 day(s)",
        "JOULIE_PLAN  2 KiB",
        "database     5 MiB",
        "disk         7.0 GiB free",
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
    assert text.LEDGER_BEHIND_S == report.BEHIND_S
