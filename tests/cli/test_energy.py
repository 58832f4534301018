"""`joulie energy` over the data of a demo."""

import csv
import io
from pathlib import Path

import pytest

from joulie_demo import demo, joulie, told_by

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


def test_pods_and_idle_energy_are_the_energy_of_the_meters(data: Path) -> None:
    code, told = told_by("energy", "--json", "--data", data)

    assert code == 0
    assert told["pods_kwh"] + told["idle_kwh"] == pytest.approx(told["meter_kwh"])
    assert sum(line["kwh"] for line in told["by"]) == pytest.approx(told["meter_kwh"])
    hours = 20 * (told["to"] - told["from"]) / 3_600_000
    assert 0 < told["meter_kwh"] < hours * 10  # no node draws 10 kW
    assert told["pods_kwh"] > 0


@pytest.mark.parametrize("by", ["workload", "node", "plan", "pod"])
def test_each_division_has_the_same_sum(data: Path, by: str) -> None:
    whole = told_by("energy", "--json", "--data", data)[1]["meter_kwh"]
    _, told = told_by("energy", "--json", "--by", by, "--data", data)

    assert sum(line["kwh"] for line in told["by"]) == pytest.approx(whole)


def test_energy_costs_and_weighs_what_the_tariff_says(data: Path) -> None:
    _, told = told_by("energy", "--json", "--data", data)

    priced_kwh = told["meter_kwh"] - told["unpriced_kwh"]
    assert priced_kwh > 0
    assert told["cost"] == pytest.approx(0.25 * priced_kwh)
    assert told["kgco2e"] == pytest.approx(0.3 * (told["meter_kwh"] - told["unweighed_kwh"]))
    assert sum(line["cost"] or 0 for line in told["by"]) == pytest.approx(told["cost"])
    assert "EUR" in joulie("energy", "--data", data).stdout


def test_a_rebuilt_ledger_is_the_same(data: Path) -> None:
    before = told_by("energy", "--json", "--by", "pod", "--data", data)
    assert joulie("ledger", "--rebuild", "--data", data).returncode == 0

    assert told_by("energy", "--json", "--by", "pod", "--data", data) == before


def test_csv_has_one_line_per_name(data: Path) -> None:
    lines = list(
        csv.reader(io.StringIO(joulie("energy", "--csv", "--by", "node", "--data", data).stdout))
    )

    assert lines[0][:4] == ["node", "kwh", "pods_kwh", "idle_kwh"]
    assert len(lines) == 1 + 20


def test_a_period_without_energy_is_named(data: Path) -> None:
    done = joulie("energy", "--to", "2020-01-01T00:00", "--data", data)

    assert done.returncode == 2
    assert "joulie ledger" in done.stderr
