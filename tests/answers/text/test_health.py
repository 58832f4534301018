"""The sentence at the top of the page and of `joulie status`: one, and the worst."""

import pytest
from msgspec.structs import replace

from joulie_answers.schema.responses import (
    Elsewhere,
    Leader,
    Level,
    Readings,
    RunningPart,
    Status,
    StorageSizes,
    Warning,
)
from joulie_answers.text.health import health_of, health_of_status

RUNS = Status(
    position=12,
    at_ms=0,
    age_ms=0,
    behind_ms=0,
    running=True,
    elsewhere=None,
    epoch=1,
    committed_at=None,
    commit_age_s=1.2,
    preset=None,
    decisions=4,
    entries=6,
    signed_to=6,
    quarantined=0,
    readings=Readings(nodes=3, asleep=0, fresh=3, oldest_s=1.0),
    ledger_behind_s=0.0,
    refused_on_sample=[],
)


def warning(text: str, level: Level = "warning") -> Warning:
    return Warning(part="operator", level=level, text=text)


@pytest.mark.parametrize(
    ("oldest_ms", "text"),
    [
        (0, "All components run; data of 1 s ago."),
        (1_200, "All components run; data of 2 s ago."),
        (None, "All components run; the age of the data is not known."),
    ],
)
def test_a_calm_sentence_has_the_age_of_the_data(oldest_ms: int | None, text: str) -> None:
    found = health_of([], oldest_ms)

    assert (found.level, found.text, found.others) == ("well", text, [])


def test_the_worst_is_the_sentence_and_the_rest_keeps_its_order() -> None:
    found = health_of([warning("a."), warning("b.", "serious"), warning("c.")], 0)

    assert (found.level, found.text, found.others) == ("serious", "b.", ["a.", "c."])


def test_what_a_command_finds_stale_is_a_sentence() -> None:
    found = health_of_status(RUNS, ["the ledger lacks facts of the last 20 s"])

    assert (found.level, found.text) == ("warning", "The ledger lacks facts of the last 20 s.")


def test_the_age_of_the_data_is_how_far_the_projector_is_behind_and_not_that_of_a_commit() -> None:
    leader = Leader(owner="o", epoch=1, lease_s=5.0, behind_s=1.4)
    part = RunningPart(name="projector", pid=7, alive=True, restarts=0, position=12, lag_s=2.4)
    quiet = replace(RUNS, commit_age_s=9_000.0)

    elsewhere = replace(quiet, elsewhere=Elsewhere(projector=leader, extenders=[]))
    assert health_of_status(elsewhere, []).text.endswith("data of 2 s ago.")
    assert health_of_status(replace(quiet, parts=[part]), []).text.endswith("data of 3 s ago.")
    assert health_of_status(quiet, []).text.endswith("the age of the data is not known.")


def test_a_full_disk_and_a_lost_projector_are_serious() -> None:
    full = replace(RUNS, room=StorageSizes(full="no space left"))
    lost = replace(RUNS, running=False)

    assert [health_of_status(each, ["x"]).level for each in (full, lost)] == ["serious"] * 2


def test_where_nothing_was_recorded_nothing_is_well_and_nothing_is_wrong() -> None:
    empty = replace(RUNS, running=False, commit_age_s=None)

    assert health_of_status(empty, []).level == "unknown"
