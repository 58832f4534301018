"""`joulie try` over the log of a demo, as its users run it."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from joulie_demo import joulie, told_by
from recorded_demo import RecordedDemo

pytestmark = [pytest.mark.slow, pytest.mark.long]
Golden = Any  # of conftest.py


@pytest.fixture(scope="module")
def data(recorded_demo: RecordedDemo, tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = shutil.copytree(recorded_demo.data, tmp_path_factory.mktemp("try") / "data")
    assert joulie("ledger", "--once", "--data", place).returncode == 0
    return place


@pytest.fixture(scope="module")
def told(data: Path) -> dict[str, Any]:
    code, found = told_by("try", "--data", data)
    assert code == 0
    return found


def test_the_calibration_is_the_first_line_of_the_answer(data: Path) -> None:
    done = joulie("try", "--data", data)

    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("Calibration: run again as it ran, ")


def test_the_log_of_a_demo_has_the_rows_and_what_is_not_known(told: dict[str, Any]) -> None:
    assert [row["name"] for row in told["rows"]] == [
        *("as it ran", "PRESET=savings", "PRESET=headroom", "kube-scheduler")
    ]
    assert told["unknown"]["nodes"] == 20
    assert told["unknown"]["nodes_without_readings"] == 0
    assert told["unknown"]["pods"] > 0


def test_two_runs_give_the_same_bytes(data: Path) -> None:
    first, second = (joulie("try", "--data", data, "-o", "json").stdout for _ in range(2))

    assert first == second
    assert json.loads(first)["rows"]


def test_each_value_of_a_setting_is_a_row(data: Path) -> None:
    given = ("POLICY_TYPE=consolidate_and_sleep", "sleep_after_s=1", "reserve=0.1,0.6")
    options = [word for each in given for word in ("--set", each)]
    _, told = told_by("try", "--data", data, *options)
    rows = told["rows"]

    assert [row["set"].get("reserve") for row in rows] == [None, None, None, None, "0.1", "0.6"]
    hours = [row["awake_node_hours"] for row in rows]
    assert hours[4] < hours[5] < hours[0]


def test_what_happened_stands_beside_the_replay(told: dict[str, Any]) -> None:
    known, [as_it_ran, *_] = told["calibration"], told["rows"]

    assert known["judged_on"] == "all", "a demo of a minute has one interval"
    assert known["happened"]["awake_node_hours"] == pytest.approx(
        as_it_ran["awake_node_hours"], rel=0.25
    )
    assert known["error"] == pytest.approx(0, abs=0.25), "in its first seconds nodes fall asleep"


def test_a_period_before_the_log_is_one_clear_error(data: Path) -> None:
    done = joulie("try", "--to", "2020-01-01T00:00", "--data", data)

    assert (done.returncode, done.stdout) == (2, "")
    assert len(done.stderr.splitlines()) == 1
    assert "Nothing was" in done.stderr or "joulie ledger" in done.stderr


def test_a_log_whose_ledger_is_not_folded_names_the_command(golden: Golden) -> None:
    done = joulie("try", "--data", golden.data, "--archive", golden.archive)

    assert (done.returncode, done.stdout) == (2, "")
    assert "`joulie ledger --once` folds it now" in done.stderr


def test_facts_of_an_archive_give_the_same_answer(data: Path, tmp_path: Path) -> None:
    kept = tmp_path / "kept"
    assert joulie("archive", "--dir", kept, "--now", "--data", data).returncode == 0

    _, first = told_by("try", "--data", data)
    _, second = told_by("try", "--data", data, "--archive", kept)

    assert first == second
