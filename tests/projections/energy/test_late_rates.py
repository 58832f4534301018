"""A price that the log learns later than the energy to which it applies."""

from collections.abc import Iterator

import pytest

from bus_kit import bound, node_seen, power
from bus_kit.grid import STARTS, intensity, price
from joulie_bus.events import Fact, GridPriced, NodeSeen
from joulie_bus.events.grid import EVERY_ZONE
from joulie_projections.energy.intervals import DAY_MS
from joulie_projections.energy.late_rates import LateRates
from joulie_projections.energy.ledger import ZONE_LABEL, Ledger
from joulie_projections.energy.report import By, EnergyReport, report_of
from joulie_projections.energy.saved import LedgerState
from joulie_projections.store.energy_table import EnergyTable

S = 10**9
HOUR_S, STEP_S = 3600, 30
BEGAN_MS = STARTS // 1_000_000
BEFORE = STARTS - HOUR_S * S  # the ledger's first hour began with a rate in force
Timed = tuple[float, Fact]


def tariff(per_kwh: float, zone: str = EVERY_ZONE) -> GridPriced:
    return price(per_kwh, zone=zone, starts=BEFORE)


def placed(node: str, zone: str) -> NodeSeen:
    seen = node_seen(node)
    labels = {ZONE_LABEL: zone} if zone else {}
    return NodeSeen(node=seen.node, uid=seen.uid, labels=labels, cpu_milli=4000)


def two_hours(*later: Fact, zone: str = "") -> list[Timed]:
    """A kilowatt of one node with one pod; then the other facts."""
    readings: list[Timed] = [(at, power("n1", 1000)) for at in range(0, 2 * HOUR_S + 1, STEP_S)]
    first: list[Timed] = [(0, placed("n1", zone)), (1, bound("p1", "n1"))]
    return [*first, *readings, *((2 * HOUR_S + 1, fact) for fact in later)]


@pytest.fixture
def table() -> Iterator[EnergyTable]:
    with EnergyTable.in_memory() as made:
        yield made


def kept(table: EnergyTable, facts: list[Timed]) -> EnergyTable:
    state = LedgerState()
    state.ledger.fold((fact, STARTS + round(at * S)) for at, fact in facts)
    state.position = len(facts)
    table.save(0, state)
    return table


def report(table: EnergyTable, by: By = "namespace") -> EnergyReport:
    kinds = {"namespace": ("node", "group"), "pod": ("node", "pod"), "card": ("node", "card")}
    found = table.reading(0, BEGAN_MS + DAY_MS, kinds.get(by, ("node",)))
    assert found is not None
    return report_of(found[0], by)


def test_a_price_that_comes_later_prices_what_was_counted_before(table: EnergyTable) -> None:
    kept(table, two_hours(tariff(0.25), intensity(300, starts=BEFORE)))

    found = report(table)

    assert found.worth.priced_uj == found.worth.weighed_uj == found.meter_uj > 0
    assert found.worth.cost_n == pytest.approx(2 * 0.25e9, rel=1e-6)
    assert found.worth.co2_ug == pytest.approx(2 * 300e6, rel=1e-6)
    assert found.currency == "EUR"


@pytest.mark.parametrize("by", ["namespace", "workload", "pod", "node", "plan"])
def test_each_division_costs_what_the_meters_cost(table: EnergyTable, by: By) -> None:
    kept(table, two_hours(tariff(0.25)))

    found = report(table, by)

    assert sum(line.worth.cost_n for line in found.by.values()) == found.worth.cost_n
    assert found.worth.cost_n == pytest.approx(2 * 0.25e9, rel=1e-6)


def test_a_pod_gets_the_price_of_the_zone_of_its_node(table: EnergyTable) -> None:
    kept(table, two_hours(tariff(9.0), tariff(0.25, zone="a"), zone="a"))

    assert report(table).worth.cost_n == pytest.approx(2 * 0.25e9, rel=1e-6)


def test_a_price_that_began_later_prices_no_earlier_energy(table: EnergyTable) -> None:
    kept(table, two_hours(price(0.25, starts=STARTS + HOUR_S * S // 4)))  # on the hour

    found = report(table)

    assert found.worth.cost_n == pytest.approx(1.75 * 0.25e9, rel=0.01)
    assert found.worth.priced_uj < found.meter_uj


def test_a_price_in_force_is_never_replaced(table: EnergyTable) -> None:
    early: list[Timed] = [(0, tariff(0.25))]
    kept(table, early + two_hours(tariff(9.0)))

    assert report(table).worth.cost_n == pytest.approx(2 * 0.25e9, rel=1e-6)


def test_the_time_before_a_price_came_within_an_interval_is_priced_too() -> None:
    facts = two_hours()
    facts.insert(len(facts) // 2, (HOUR_S, tariff(0.25)))
    ledger = Ledger()
    ledger.fold((fact, STARTS + round(at * S)) for at, fact in facts)
    rates = LateRates(ledger)
    ledger.end()
    second = sorted(ledger.closed, key=lambda each: (each.grain == "hour", each.start_ms))[-2]

    found = report_of([second], "node")
    assert second.grain == "hour"
    assert 0 < found.worth.priced_uj < found.meter_uj
    whole = report_of([rates.rated(second)], "node")
    assert whole.worth.priced_uj == whole.meter_uj == found.meter_uj
