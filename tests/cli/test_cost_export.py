"""`joulie energy --opencost`: energy and its cost by day."""

import csv
import io

import pytest

from joulie_bus.events import AnyEvent
from joulie_bus.testing import bound, node_seen, power, records
from joulie_bus.testing.grid import price
from joulie_cli.questions.cost_export import COLUMNS, write_days
from joulie_projections.energy.report import Reading, kwh
from joulie_projections.energy.saved import LedgerState

HOURS = 20  # from noon on: two days


def lines_of(*facts: AnyEvent) -> tuple[list[dict[str, str]], Reading]:
    state = LedgerState()
    readings = [power("n1", 300)] * (HOURS * 60)
    state.fold(records(*facts, node_seen("n1"), bound("runs", "n1"), *readings, step_s=60), ())
    state.ledger.end()
    hours = [each for each in state.take_closed() if each.grain == "hour"]
    found = Reading(hours, state.position, state.ledger.newest_ms)
    out = io.StringIO()
    write_days(found, "namespace", out)
    return list(csv.DictReader(io.StringIO(out.getvalue()))), found


def test_each_day_has_a_line_per_namespace_and_one_for_idle_capacity() -> None:
    lines, found = lines_of(price(0.25))
    report = found.report("namespace")

    assert tuple(lines[0]) == COLUMNS
    assert {line["name"] for line in lines} == {"team", "__idle__"}
    assert len({line["start"][:10] for line in lines}) == 2
    energy = sum(float(line["energyKwh"]) for line in lines)
    assert energy == pytest.approx(kwh(report.meter_uj))
    assert sum(float(line["totalCost"]) for line in lines) == pytest.approx(energy / 4, rel=0.01)
    assert max(line["end"] for line in lines) < "2100"


def test_energy_without_a_price_has_no_cost() -> None:
    lines, _ = lines_of()

    for line in lines:
        assert (line["totalCost"], line["currency"], line["carbonKgCo2e"]) == ("", "", "")
        assert line["unpricedKwh"] == line["energyKwh"]
