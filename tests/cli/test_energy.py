"""`joulie energy`, `joulie caps` and `joulie report` over the data of a demo."""

import csv
import io
import json
import os
import shutil
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import select

from joulie_answers.report.signature import signed
from joulie_audit.questions.explain import read
from joulie_bus.core.times import MS
from joulie_bus.events import OutcomeSeen
from joulie_demo import PATIENCE_S, demo, joulie, told_by
from joulie_forked import Command
from joulie_projections.history.history import EntryQuery, History
from joulie_projections.store.tables import outcome_due
from projections_kit import tamper

pytestmark = [pytest.mark.slow, pytest.mark.long]  # a demo runs first


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("energy") / "data"
    tariff = place.parent / "tariff.csv"
    tariff.write_text("from,price,currency,gco2_per_kwh\n2025-01-01,0.25,EUR,300\n")
    with demo(place, "--nodes", "20", GRID_SOURCE=str(tariff)) as running:
        running.await_decisions(200)
        running.end()
    assert joulie("ledger", "--once", "--data", place).returncode == 0
    return place


def test_pods_and_idle_energy_are_the_energy_of_the_meters(data: Path) -> None:
    code, told = told_by("energy", "--data", data)

    assert code == 0
    assert told["pods_kwh"] + told["idle_kwh"] == pytest.approx(told["meter_kwh"])
    assert sum(line["kwh"] for line in told["items"]) == pytest.approx(told["meter_kwh"])
    hours = 20 * (told["to_ms"] - told["from_ms"]) / 3_600_000
    assert 0 < told["meter_kwh"] < hours * 10  # no node draws 10 kW
    assert told["pods_kwh"] > 0


@pytest.mark.parametrize("by", ["workload", "node", "plan", "pod", "card"])
def test_each_division_has_the_same_sum(data: Path, by: str) -> None:
    whole = told_by("energy", "--data", data)[1]["meter_kwh"]
    _, told = told_by("energy", "--by", by, "--data", data)

    assert sum(line["kwh"] for line in told["items"]) == pytest.approx(whole)


def test_energy_costs_and_weighs_what_the_tariff_says(data: Path) -> None:
    _, told = told_by("energy", "--data", data)

    priced_kwh = told["meter_kwh"] - told["unpriced_kwh"]
    assert priced_kwh > 0
    assert told["cost"] == pytest.approx(0.25 * priced_kwh)
    assert told["kgco2e"] == pytest.approx(0.3 * (told["meter_kwh"] - told["unweighed_kwh"]))
    assert sum(line["cost"] or 0 for line in told["items"]) == pytest.approx(told["cost"])
    assert "EUR" in joulie("energy", "--data", data).stdout


def figures(told: tuple[int, dict[str, Any]]) -> dict[str, Any]:
    """The age of an answer grows from call to call."""
    return {name: value for name, value in told[1].items() if name not in ("age_ms", "behind_ms")}


def test_a_rebuilt_ledger_is_the_same(data: Path) -> None:
    before = told_by("energy", "--by", "pod", "--data", data)
    rebuilt = joulie("ledger", "--rebuild", "--data", data)
    assert "up to position" in rebuilt.stdout

    assert figures(told_by("energy", "--by", "pod", "--data", data)) == figures(before)


def test_a_ledger_from_the_columns_of_an_archive_is_the_same(data: Path, tmp_path: Path) -> None:
    before = told_by("energy", "--by", "card", "--data", data)
    small = {"joulie_audit.archive.unarchived.PART_ROWS": 100}
    written = Command(
        ("archive", "--dir", tmp_path / "kept", "--now", "--data", data),
        os.environ,
        tmp_path,
        constants=small,
    )
    assert written.wait(PATIENCE_S)

    rebuilt = joulie("ledger", "--rebuild", "--archive", tmp_path / "kept", "--data", data)

    assert (written.done().returncode, rebuilt.returncode) == (0, 0)
    assert len(list(tmp_path.glob("kept/facts/*/*/*/readings.*"))) > 2
    assert figures(told_by("energy", "--by", "card", "--data", data)) == figures(before)


def test_readings_of_cards_are_measured(data: Path) -> None:
    _, told = told_by("energy", "--by", "card", "--data", data)
    cards = [line for line in told["items"] if line["name"].partition("/")[2].startswith("GPU-")]

    assert cards
    assert sum(line["modelled_kwh"] for line in cards) < 0.5 * sum(line["kwh"] for line in cards)


def test_csv_has_one_line_per_name(data: Path) -> None:
    told = joulie("energy", "-o", "csv", "--by", "node", "--data", data).stdout
    [head, *lines] = csv.reader(io.StringIO(told))

    assert head[:4] == ["node", "kwh", "pods_kwh", "idle_kwh"]
    # A node with a single reading so far has no energy.
    metered = told_by("energy", "--by", "node", "--data", data)[1]["items"]
    assert [line[0] for line in lines] == [each["name"] for each in metered]
    assert 10 < len(lines) <= 20


def test_a_period_without_energy_is_named(data: Path) -> None:
    done = joulie("energy", "--to", "2020-01-01T00:00", "--data", data)

    assert done.returncode == 2
    assert "joulie ledger" in done.stderr


@pytest.fixture(scope="module")
def report(data: Path) -> dict[str, Any]:
    told: dict[str, Any] = json.loads(joulie("report", "-o", "json", "--data", data).stdout)
    return told


def checked(data: Path, text: str, name: str = "report") -> tuple[int, str]:
    file = data.parent / name
    file.write_text(text)
    code, told = told_by("verify", "--report", file, "--data", data)
    return code, told["flaw"] or ""


def test_a_report_is_what_the_log_gives(data: Path, report: dict[str, Any]) -> None:
    energy = report["energy"]

    assert checked(data, json.dumps(report)) == (0, "")
    for by, found in energy.items():
        assert sum(line["kwh"] for line in found["by"]) == pytest.approx(found["meter_kwh"]), by
    assert report["placements"]["bound"] >= report["placements"]["answered"] > 0


def test_placements_agree_with_the_outcomes_of_the_log(data: Path, report: dict[str, Any]) -> None:
    """A node that ties with the best one has rank 1, and its pod is on the best node."""
    period = report["energy"]["node"]
    with History.of(data / "joulie.db") as history:
        entries = [*history.find(EntryQuery(kinds=(OutcomeSeen.TYPE,)))]
        due = [*history.connection.scalars(select(outcome_due.c.at))]
    # An outcome has the time of the binding. Later ones are behind the end of the ledger.
    in_period = range(period["from"], period["to"])
    bound = [each for each in entries if each.decided_at // MS in in_period]
    ranks = [each.rank for each in map(read, bound) if isinstance(each, OutcomeSeen)]
    found = report["placements"]

    assert found["bound"] == len(bound) + sum(at // MS in in_period for at in due)
    assert found["on_the_best_node"] == ranks.count(1) > 0
    assert found["elsewhere"] == sum(rank is not None and rank > 1 for rank in ranks)
    assert len(found["furthest"]) == min(50, found["elsewhere"])
    behind = [each["behind"] for each in found["furthest"]]
    assert behind == sorted(behind, reverse=True)


def test_a_report_without_a_file_is_a_sentence_a_table_and_a_hint(
    data: Path, report: dict[str, Any]
) -> None:
    sentence, *lines = joulie("report", "--data", data).stdout.splitlines()

    assert sentence.startswith("The meters measured ")
    saved = report["saved"]["kwh"]["mid"]
    assert f"{abs(saved):.3f} kWh" in sentence, "the figure of the page and of the console"
    assert any(line.split()[:2] == ["namespace", "kWh"] for line in lines)
    assert any("on the best node or on one that ties with it" in line for line in lines)
    assert lines[-2].startswith("`--out FILE` writes the page")


def test_a_target_that_cannot_be_written_is_an_error_before_the_report(data: Path) -> None:
    done = joulie("report", "--out", "/nope/report.html", "--data", data)

    assert (done.returncode, done.stdout) == (2, "")
    assert "there is no directory /nope. Nothing was written." in done.stderr
    assert "Traceback" not in done.stderr
    assert "reading" not in done.stderr, "no progress of a computation"


def test_what_was_saved_has_a_named_baseline_an_interval_and_the_work(
    report: dict[str, Any],
) -> None:
    found = report["counterfactual"]
    saved, runs = found["saved"], found["runs"]

    assert found["baseline"] == "kube-default"
    assert saved["kwh"]["low"] <= saved["kwh"]["mid"] <= saved["kwh"]["high"]
    assert saved["cost"]["mid"] == pytest.approx(0.25 * saved["kwh"]["mid"])
    assert {policy: len(each) for policy, each in runs.items()} == {"kube-default": 5, "joulie": 5}
    assert all(run["work_kwh"] > 0 for each in runs.values() for run in each)


def test_a_page_holds_its_report_and_is_verified_too(data: Path) -> None:
    page = joulie("report", "-o", "html", "--data", data).stdout.removesuffix("\n")

    assert checked(data, page, "report.html") == (0, "")
    assert "<script type" in page
    assert checked(data, page.replace("The meters measured", "The meters measured not"))[0] == 1


CHANGES: dict[str, Callable[[dict[str, Any]], None]] = {
    "another figure": lambda it: it["energy"]["node"].update(meter_kwh=1.0),
    "another head": lambda it: it["head"].update(hash="00" * 32),
    "no signature": lambda it: it.pop("signature"),
    "another signature": lambda it: it["signature"].update(signature="00" * 64),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_changed_report_is_not_valid(data: Path, report: dict[str, Any], change: str) -> None:
    changed = json.loads(json.dumps(report))
    CHANGES[change](changed)
    code, flaw = checked(data, json.dumps(changed))

    assert code == 1
    assert "signed" in flaw or "signature" in flaw


@pytest.mark.parametrize(
    ("change", "why"),
    [("another figure", "energy.node.meter_kwh"), ("another head", "not a head of this log")],
)
def test_the_key_cannot_sign_figures_that_the_log_does_not_give(
    data: Path, report: dict[str, Any], change: str, why: str
) -> None:
    changed = json.loads(json.dumps(report))
    CHANGES[change](changed)
    code, flaw = checked(data, json.dumps(signed(changed, data / "head.key")))

    assert code == 1
    assert why in flaw


def test_a_report_names_every_figure_that_the_log_gives_otherwise(
    data: Path, report: dict[str, Any]
) -> None:
    changed = json.loads(json.dumps(report))
    known = changed["energy"]["node"]["meter_kwh"]
    changed["energy"]["node"]["meter_kwh"] = 1.5
    changed["placements"]["bound"] += 1
    _, flaw = checked(data, json.dumps(signed(changed, data / "head.key")))

    assert f"energy.node.meter_kwh is 1.5, and the log gives {known}" in flaw
    assert f"placements.bound is {report['placements']['bound'] + 1}, and" in flaw


def test_a_report_ends_where_the_ledger_is_complete(data: Path) -> None:
    later = "2099-01-01T00:00"
    page = joulie("report", "-o", "html", "--to", later, "--data", data).stdout.removesuffix("\n")
    _, told = told_by("energy", "--to", later, "--data", data)
    end = f"{datetime.fromtimestamp(told['complete_to_ms'] / 1000, UTC):%Y-%m-%d %H:%M:%S} UTC"

    assert told["to_ms"] == told["complete_to_ms"]
    assert f"to {end}</h1>" in page
    assert "<strong>Incomplete: later energy is missing.</strong>" in page
    file = data.parent / "later.html"
    file.write_text(page)
    shown = joulie("verify", "--report", file, "--data", data).stdout
    assert f"to {end}; it was asked for up to 2099-01-01" in shown


def test_a_page_begins_with_the_answer_and_charts_and_tables_follow(
    data: Path, report: dict[str, Any]
) -> None:
    page = joulie("report", "-o", "html", "--data", data).stdout
    whole = sum(each["kwh"] for each in report["power"])

    assert whole == pytest.approx(report["energy"]["node"]["meter_kwh"])
    assert report["power"][-1]["to"] == report["complete_to"]
    charts = page.index("<svg"), page.index("simulated beside metered"), page.index("Tables</h2>")
    assert page.index('class="lead"') < charts[0] < charts[1] < charts[2] < page.index("<table>")
    assert f"The meters measured {whole:.3f} kWh" in page


def test_a_report_by_another_rule_of_the_ledger_is_not_compared(
    data: Path, report: dict[str, Any]
) -> None:
    other = signed({**report, "rule": report["rule"] + 1}, data / "head.key")
    code, flaw = checked(data, json.dumps(other))

    assert code == 1
    assert "its energy was counted by rule 2, and here by rule 1" in flaw


def test_a_report_rests_on_a_valid_chain_of_decisions(
    data: Path, report: dict[str, Any], tmp_path: Path
) -> None:
    copy = tmp_path / "data"
    shutil.copytree(data, copy)
    tamper(copy / "joulie.db", "UPDATE decision SET hash = zeroblob(32) WHERE pos = 5")
    file = tmp_path / "report"
    file.write_text(json.dumps(report))
    code, told = told_by("verify", "--report", file, "--data", copy)

    assert code == 1
    assert told["flaw"].startswith("the log that it rests on is corrupted: ")
    assert "5" in told["flaw"]


def test_a_file_whose_name_ends_in_json_holds_json(data: Path, tmp_path: Path) -> None:
    file, page = tmp_path / "report.json", tmp_path / "report.html"
    for each in (file, page):
        assert joulie("report", "--out", each, "--data", data).returncode == 0

    assert json.loads(file.read_text())["format"] == "joulie-energy-report/1"
    assert page.read_text().startswith("<!doctype html>")
    assert checked_file(data, file) == checked_file(data, page) == 0


def test_json_is_not_written_to_the_name_of_a_page(data: Path, tmp_path: Path) -> None:
    done = joulie("report", "-o", "json", "--out", tmp_path / "report.html", "--data", data)

    assert done.returncode == 2
    assert "name a file that ends in .json" in done.stderr
    assert list(tmp_path.iterdir()) == []


def checked_file(data: Path, file: Path) -> int:
    return joulie("verify", "--report", file, "--data", data).returncode


def test_what_is_no_report_is_named(data: Path) -> None:
    file = data.parent / "none"
    file.write_text("kWh: 3")
    done = joulie("verify", "--report", file, "--data", data)

    assert done.returncode == 2
    assert "is not a report" in done.stderr


def test_what_caps_save_is_measured_for_each_class_or_it_says_why_not(data: Path) -> None:
    told = json.loads(joulie("caps", "-o", "json", "--data", data).stdout)

    assert [each["workload"] for each in told] == ["performance", "standard"]
    assert all((each["change"] is None) == (each["change_low"] is None) for each in told)
    compared = [each for each in told if each["change"] is not None]
    assert all(min(each["capped_pods"], each["other_pods"]) >= 30 for each in compared)
    shown = joulie("caps", "--data", data).stdout
    assert ("not measured: too few comparable pods" in shown) == (len(compared) < len(told))
