"""`joulie energy`, `joulie caps` and `joulie report` over the data of a demo."""

import asyncio
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

from joulie_answers.report.document import document_of, first_document_of
from joulie_answers.report.gather import Period, gathered
from joulie_answers.report.signature import signed
from joulie_answers.report.verification import FIRST_RULE
from joulie_audit.access.past import ArchivePlace, facts_of
from joulie_audit.ledger.refold import refolded
from joulie_demo import PATIENCE_S, demo, joulie, told_by
from joulie_forked import Command
from joulie_projections.component.wiring import wired
from joulie_projections.testing import tamper

pytestmark = pytest.mark.slow


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


@pytest.mark.long
def test_pods_and_idle_energy_are_the_energy_of_the_meters(data: Path) -> None:
    code, told = told_by("energy", "--json", "--data", data)

    assert code == 0
    assert told["pods_kwh"] + told["idle_kwh"] == pytest.approx(told["meter_kwh"])
    assert sum(line["kwh"] for line in told["items"]) == pytest.approx(told["meter_kwh"])
    hours = 20 * (told["to_ms"] - told["from_ms"]) / 3_600_000
    assert 0 < told["meter_kwh"] < hours * 10  # no node draws 10 kW
    assert told["pods_kwh"] > 0


@pytest.mark.parametrize("by", ["workload", "node", "plan", "pod", "card"])
def test_each_division_has_the_same_sum(data: Path, by: str) -> None:
    whole = told_by("energy", "--json", "--data", data)[1]["meter_kwh"]
    _, told = told_by("energy", "--json", "--by", by, "--data", data)

    assert sum(line["kwh"] for line in told["items"]) == pytest.approx(whole)


def test_energy_costs_and_weighs_what_the_tariff_says(data: Path) -> None:
    _, told = told_by("energy", "--json", "--data", data)

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
    before = told_by("energy", "--json", "--by", "pod", "--data", data)
    rebuilt = joulie("ledger", "--rebuild", "--data", data)
    assert "up to position" in rebuilt.stdout

    assert figures(told_by("energy", "--json", "--by", "pod", "--data", data)) == figures(before)


def test_a_ledger_from_the_columns_of_an_archive_is_the_same(data: Path, tmp_path: Path) -> None:
    before = told_by("energy", "--json", "--by", "card", "--data", data)
    small = {"joulie_audit.archive.archiver.PART_ROWS": 100}
    written = Command(
        ("archive", "--to", tmp_path / "kept", "--now", "--data", data),
        os.environ,
        tmp_path,
        constants=small,
    )
    assert written.wait(PATIENCE_S)

    rebuilt = joulie("ledger", "--rebuild", "--archive", tmp_path / "kept", "--data", data)

    assert (written.done().returncode, rebuilt.returncode) == (0, 0)
    assert len(list(tmp_path.glob("kept/facts/*/*/*/readings.*"))) > 2
    assert figures(told_by("energy", "--json", "--by", "card", "--data", data)) == figures(before)


def test_readings_of_cards_are_measured(data: Path) -> None:
    _, told = told_by("energy", "--json", "--by", "card", "--data", data)
    cards = [line for line in told["items"] if line["name"].partition("/")[2].startswith("GPU-")]

    assert cards
    assert sum(line["modelled_kwh"] for line in cards) < 0.5 * sum(line["kwh"] for line in cards)


def test_csv_has_one_line_per_name(data: Path) -> None:
    told = joulie("energy", "--csv", "--by", "node", "--data", data).stdout
    [head, *lines] = csv.reader(io.StringIO(told))

    assert head[:4] == ["node", "kwh", "pods_kwh", "idle_kwh"]
    # A node with a single reading so far has no energy.
    metered = told_by("energy", "--json", "--by", "node", "--data", data)[1]["items"]
    assert [line[0] for line in lines] == [each["name"] for each in metered]
    assert 10 < len(lines) <= 20


def test_a_period_without_energy_is_named(data: Path) -> None:
    done = joulie("energy", "--to", "2020-01-01T00:00", "--data", data)

    assert done.returncode == 2
    assert "joulie ledger" in done.stderr


@pytest.fixture(scope="module")
def report(data: Path) -> dict[str, Any]:
    told: dict[str, Any] = json.loads(joulie("report", "--json", "--data", data).stdout)
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
    page = joulie("report", "--data", data).stdout.removesuffix("\n")

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
    page = joulie("report", "--to", later, "--data", data).stdout.removesuffix("\n")
    _, told = told_by("energy", "--json", "--to", later, "--data", data)
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
    page = joulie("report", "--data", data).stdout
    whole = sum(each["kwh"] for each in report["power"])

    assert whole == pytest.approx(report["energy"]["node"]["meter_kwh"])
    assert report["power"][-1]["to"] == report["complete_to"]
    charts = page.index("<svg"), page.index("simulated beside metered"), page.index("Tables</h2>")
    assert page.index('class="lead"') < charts[0] < charts[1] < charts[2] < page.index("<table>")
    assert f"The meters measured {whole:.3f} kWh" in page


async def as_first_format(data: Path, report: dict[str, Any], *, to: int) -> dict[str, Any]:
    """As version 0.2.0 wrote it, whose `to` was the end of the running interval."""
    wires = wired("report", (ArchivePlace,), data, None)
    asked = Period(report["asked"]["from"], report["asked"]["to"])
    async with (
        facts_of(wires, None) as (history, facts),
        refolded(history, facts, report["position"], FIRST_RULE) as table,
    ):
        got = await gathered(table, history, facts, asked, report["entries"], late=False)
    old = {**first_document_of(got, report["cluster"]), "head": report["head"]}
    for each in old["energy"].values():
        each["to"] = to
    return old


async def by_rule(rule: int, data: Path, report: dict[str, Any]) -> dict[str, Any]:
    """As a ledger that began with this rule gives it."""
    wires = wired("report", (ArchivePlace,), data, None)
    asked = Period(report["asked"]["from"], report["asked"]["to"])
    async with (
        facts_of(wires, None) as (history, facts),
        refolded(history, facts, report["position"], rule) as table,
    ):
        got = await gathered(table, history, facts, asked, report["entries"])
    return {**document_of(got, report["cluster"]), "head": report["head"]}


def test_a_report_by_an_earlier_rule_of_the_ledger_is_verified_by_that_rule(
    data: Path, report: dict[str, Any]
) -> None:
    """By rule 3, cards draw by a line, and a unit of a shared card counts as a card."""
    before = asyncio.run(by_rule(3, data, report))

    assert (report["rule"], before["rule"]) == (4, 3)
    assert before["energy"]["node"] == report["energy"]["node"]
    meters = [
        {by: found["meter_kwh"] for by, found in each["energy"].items()}
        for each in (before, report)
    ]
    assert meters[0] == meters[1]
    uses = [each["counterfactual"]["use_of_requests"] for each in (before, report)]
    assert uses[0] != uses[1]
    assert checked(data, json.dumps(signed(before, data / "head.key")))[0] == 0
    mixed = signed({**before, "rule": 4}, data / "head.key")
    assert checked(data, json.dumps(mixed))[0] == 1


def test_a_report_of_the_first_format_that_states_a_whole_hour_must_hold_it(
    data: Path, report: dict[str, Any]
) -> None:
    hour_ms = 3_600_000
    end = -(-report["complete_to"] // hour_ms) * hour_ms
    old = asyncio.run(as_first_format(data, report, to=end))
    code, flaw = checked(data, json.dumps(signed(old, data / "head.key")))

    assert code == 1
    assert "later energy is missing" in flaw
    assert "the log gives" not in flaw  # all figures are right


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

    assert json.loads(file.read_text())["format"] == "joulie-energy-report/2"
    assert page.read_text().startswith("<!doctype html>")
    assert checked_file(data, file) == checked_file(data, page) == 0


def test_json_is_not_written_to_the_name_of_a_page(data: Path, tmp_path: Path) -> None:
    done = joulie("report", "--json", "--out", tmp_path / "report.html", "--data", data)

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
    told = json.loads(joulie("caps", "--json", "--data", data).stdout)

    assert [each["workload"] for each in told] == ["performance", "standard"]
    assert all((each["change"] is None) == (each["change_low"] is None) for each in told)
    compared = [each for each in told if each["change"] is not None]
    assert all(min(each["capped_pods"], each["other_pods"]) >= 30 for each in compared)
    shown = joulie("caps", "--data", data).stdout
    assert ("not measured: too few comparable pods" in shown) == (len(compared) < len(told))
