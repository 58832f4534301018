"""Metrics of power, energy and cost by the ledger."""

import pytest

from bus_kit import ask, asleep, node_seen, power, records
from bus_kit.grid import price
from joulie_audit.ledger import energy_metrics
from joulie_bus.events import AnyEvent, PodBound
from joulie_bus.runtime import metrics
from joulie_projections.energy.idle_holders import IdleHolder
from joulie_projections.energy.meters import GAP_MS
from joulie_projections.energy.saved import LedgerState

HOURS = 2


@pytest.fixture(autouse=True)
def _no_names(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(energy_metrics, "_named", set[str]())
    for metric in (metrics.NAMESPACE_ENERGY, metrics.NAMESPACE_COST, metrics.NAMESPACE_CARBON):
        metric.clear()


def value(name: str, **labels: str) -> float | None:
    return metrics.LEDGER.get_sample_value(name, labels)


def some_hours() -> LedgerState:
    state = LedgerState()
    readings = [power("n1", 100), power("n2", 300)] * (HOURS * 60)
    seen = [node_seen("n1"), node_seen("n2", gpus=4), node_seen("n3")]
    runs = PodBound(pod=ask("runs", gpus=2), node="n2")
    facts: list[AnyEvent] = [price(0.25), *seen, runs, asleep("n3"), *readings]
    state.fold(records(*facts, step_s=30), ())
    return state


def test_power_and_nodes_and_gpus_are_those_of_the_newest_readings() -> None:
    energy_metrics.show(some_hours().ledger, 0)

    assert value("joulie_power_watts") == 400
    assert value("joulie_nodes", state="awake") == 2
    assert value("joulie_nodes", state="asleep") == 1
    assert value("joulie_nodes_unread") == 1
    assert (value("joulie_gpus", of="nodes"), value("joulie_gpus", of="requested")) == (4, 2)


def test_power_is_not_known_once_the_newest_reading_is_a_minute_old() -> None:
    energy_metrics.show(some_hours().ledger, GAP_MS + 1)

    assert value("joulie_power_watts") is None
    assert value("joulie_nodes_unread") == 3


def test_closed_hours_are_counted_by_namespace_with_their_cost() -> None:
    closed = some_hours().take_closed()
    energy_metrics.count(closed)

    hours = [each for each in closed if each.grain == "hour"]
    joules = sum((row.pods_uj + row.idle_uj) for each in hours for row in each.nodes) / 1e6
    names = ("team", "(free)")
    found = [value("joulie_namespace_energy_joules_total", namespace=name) for name in names]
    costs = [value("joulie_namespace_cost", namespace=name, currency="EUR") for name in names]
    assert sum(each or 0 for each in found) == pytest.approx(joules)
    assert sum(each or 0 for each in costs) == pytest.approx(joules / 3.6e6 * 0.25, rel=0.01)


def test_no_more_namespaces_have_a_name_than_the_limit() -> None:
    labels = {energy_metrics.label_of(f"team-{number}") for number in range(1000)}

    assert len(labels) == energy_metrics.MOST_NAMESPACES + 1
    assert energy_metrics.label_of("team-999") == energy_metrics.OTHERS
    assert energy_metrics.label_of("team-0") == "team-0"


def test_cards_that_are_held_without_work_are_counted_with_their_power() -> None:
    held = IdleHolder("n1", "a", ("team/p",), 1, 125_000)

    energy_metrics.show_holders([held, held])
    assert value("joulie_idle_gpu_holders") == 2
    assert value("joulie_idle_gpu_holders_watts") == 250
    energy_metrics.show_holders([])
    assert value("joulie_idle_gpu_holders") == 0
