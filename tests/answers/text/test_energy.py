"""The energy of a period as CSV: one line a name, and by day as OpenCost has it."""

import contextlib
import copy
import csv
import io
from collections.abc import Generator, Iterator

import pytest

from bus_kit import bound, node_seen, power, records
from bus_kit.clock import NOON
from bus_kit.grid import price
from joulie_answers.readers.energy import EnergyReader, Period
from joulie_answers.schema import requests
from joulie_answers.schema.responses import Energy, Stamp
from joulie_answers.text.energy import OPENCOST, energy_csv, energy_text, opencost_csv
from joulie_bus.events import AnyEvent
from joulie_projections.energy.saved import LedgerState
from joulie_projections.store.energy_table import EnergyTable

pytestmark = pytest.mark.anyio
HOURS = 20  # from noon on: two days
DAY_MS = 24 * 3_600_000
FIRST_MS = NOON // 1_000_000 // DAY_MS * DAY_MS
STAMP: Stamp = {"position": 1, "at_ms": 1, "age_ms": 0, "behind_ms": 0}


@contextlib.contextmanager
def ledger_of(*facts: AnyEvent) -> Generator[EnergyReader, None, None]:
    state = LedgerState()
    readings = [power("n1", 300)] * (HOURS * 60)
    state.fold(records(*facts, node_seen("n1"), bound("runs", "n1"), *readings, step_s=60), ())

    @contextlib.contextmanager
    def opened() -> Generator[EnergyTable, None, None]:
        with EnergyTable.in_memory() as table:  # by the thread that reads it
            table.save(0, copy.deepcopy(state))
            yield table

    reader = EnergyReader(opened, lambda: None)
    try:
        yield reader
    finally:
        reader.close()


async def days_of(*facts: AnyEvent) -> tuple[list[Energy], Energy]:
    query = requests.Energy(limit=1000)
    with ledger_of(*facts) as reader:
        whole = await reader.energy(STAMP, Period(FIRST_MS, FIRST_MS + 3 * DAY_MS), query)
        periods = (Period(start, start + DAY_MS) for start in (FIRST_MS, FIRST_MS + DAY_MS))
        return [await reader.energy(STAMP, period, query) for period in periods], whole


def lines_of(days: list[Energy]) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(opencost_csv(days))))


async def test_each_day_has_a_line_per_namespace_and_one_for_idle_capacity() -> None:
    days, whole = await days_of(price(0.25))
    lines = lines_of(days)

    assert tuple(lines[0]) == OPENCOST
    assert {line["name"] for line in lines} == {"team", "__idle__"}
    assert len({line["start"][:10] for line in lines}) == 2
    energy = sum(float(line["energyKwh"]) for line in lines)
    assert energy == pytest.approx(whole.meter_kwh)
    assert sum(float(line["totalCost"]) for line in lines) == pytest.approx(energy / 4, rel=0.01)
    assert max(line["end"] for line in lines) < "2100"


async def test_energy_without_a_price_has_no_cost() -> None:
    days, whole = await days_of()

    for line in lines_of(days):
        assert (line["totalCost"], line["currency"], line["carbonKgCo2e"]) == ("", "", "")
        assert line["unpricedKwh"] == line["energyKwh"]
    assert "cost           unknown" in energy_text(whole)


async def test_the_lines_of_csv_are_the_items_of_the_answer() -> None:
    _, whole = await days_of(price(0.25))
    found = list(csv.DictReader(io.StringIO(energy_csv(whole))))

    for (name, kwh), each in zip(figures(found), whole.items, strict=True):
        assert name == each.name
        assert kwh == pytest.approx(each.kwh)
    assert found[0]["from"].endswith("Z")


def figures(lines: list[dict[str, str]]) -> Iterator[tuple[str, float]]:
    return ((line["namespace"], float(line["kwh"])) for line in lines)


async def test_a_page_of_energy_says_where_the_next_one_begins() -> None:
    with ledger_of() as reader:
        period = Period(FIRST_MS, FIRST_MS + 3 * DAY_MS)
        first = await reader.energy(STAMP, period, requests.Energy(limit=1))
        rest = await reader.energy(STAMP, period, requests.Energy(limit=1, offset=first.next or 0))

    assert (first.next, first.total, rest.next) == (1, 2, None)
    assert {each.name for each in (*first.items, *rest.items)} == {"team", "(free)"}
