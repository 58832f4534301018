"""`joulie requests` over the log of a demo."""

from pathlib import Path
from typing import Any

import pytest

from joulie_demo import demo, joulie, told_by

pytestmark = [pytest.mark.slow, pytest.mark.long]
AT_ONCE = ("--least-hours", "0")


def asked(data: Path, *words: str) -> dict[str, Any]:
    code, found = told_by("requests", "--data", data, *words)
    assert code == 0
    return found


def known(found: dict[str, Any]) -> list[dict[str, Any]]:
    return [item for item in found["items"] if item["cores"]["recommended"] is not None]


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("requests") / "data"
    with demo(place, "--nodes", "20") as running:
        running.await_decisions(50)
        running.wait_until(lambda: bool(known(asked(place, *AT_ONCE))))
        running.end()
    assert joulie("ledger", "--once", "--data", place).returncode == 0
    return place


@pytest.mark.long
def test_pods_of_a_demo_use_less_than_they_request(data: Path) -> None:
    found = asked(data, *AT_ONCE)
    some = known(found)

    assert some
    for item in some:
        for part in (item["cores"], item["gib"]):
            assert part["p50"] <= part["p95"] <= part["peak"]
            assert part["recommended"] <= part["request"]
            assert part["free"] >= 0
        assert item["cpu_wait"] is None  # nothing simulates it
    free = [item["cores"]["free"] or 0 for item in found["items"]]  # null without a recommendation
    assert found["free_cores"] == pytest.approx(sum(free))
    assert found["free_cores"] > 0


def test_an_hour_is_too_little_for_a_recommendation(data: Path) -> None:
    found = asked(data)

    assert known(found) == []
    assert any("of the 24 hours" in item["why"] for item in found["items"])
    assert "No recommendation for" in joulie("requests", "--data", data).stdout


def test_a_rebuilt_ledger_has_the_same_use(data: Path) -> None:
    before = asked(data, *AT_ONCE)
    assert joulie("ledger", "--rebuild", "--data", data).returncode == 0

    after = asked(data, *AT_ONCE)
    assert (after["items"], after["free_nodes"]) == (before["items"], before["free_nodes"])


def test_a_namespace_is_a_part_of_all(data: Path) -> None:
    whole = asked(data, *AT_ONCE)["items"]
    namespace = whole[0]["namespace"]
    part = asked(data, "--namespace", namespace, *AT_ONCE)["items"]

    assert part == [item for item in whole if item["namespace"] == namespace]


def test_a_log_without_a_fact_says_so(tmp_path: Path) -> None:
    done = joulie("requests", "--data", tmp_path / "none")
    assert done.returncode == 2
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("hours", ["-1", "nan", "337", "a day"])
def test_hours_that_the_ledger_does_not_keep_are_refused(tmp_path: Path, hours: str) -> None:
    done = joulie("requests", "--data", tmp_path, f"--least-hours={hours}")
    assert done.returncode == 2
    assert f"{hours!r} is not a number from 0 to 336" in done.stderr
