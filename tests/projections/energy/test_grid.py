"""Cost and carbon of energy: the rates in force, their gaps, and their shares."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bus_kit import bound, node_seen, power
from bus_kit.grid import STARTS, intensity, price
from joulie_bus.events import Fact, NodeSeen, PodFinished
from joulie_projections.energy.grid import Grid, rate_of
from joulie_projections.energy.intervals import Interval
from joulie_projections.energy.ledger import ZONE_LABEL, Ledger
from joulie_projections.energy.report import EnergyReport, as_json, report_of

S = 10**9
Timed = tuple[float, Fact]


def folded(*facts: Timed) -> list[Interval]:
    ledger = Ledger()
    ledger.fold((fact, STARTS + round(at * S)) for at, fact in facts)
    ledger.end()
    return ledger.closed


def report(*facts: Timed) -> EnergyReport:
    return report_of([each for each in folded(*facts) if each.grain == "hour"], "pod")


def kilowatt(seconds: int, node: str = "n1") -> list[Timed]:
    return [(at, power(node, 1000)) for at in range(0, seconds + 1, 30)]


def merged(*lists: list[Timed]) -> list[Timed]:
    return sorted((each for one in lists for each in one), key=lambda timed: timed[0])


def placed(node: str, zone: str) -> NodeSeen:
    seen = node_seen(node)
    return NodeSeen(node=seen.node, uid=seen.uid, labels={ZONE_LABEL: zone}, cpu_milli=1000)


def test_energy_costs_what_its_price_was() -> None:
    found = report(
        *merged([(0, price(0.25)), (0, intensity(300))], kilowatt(3600)),
    )

    assert found.worth.cost_n == pytest.approx(0.25e9, rel=1e-6)
    assert found.worth.co2_ug == pytest.approx(300e6, rel=1e-6)
    assert found.worth.priced_uj == found.worth.weighed_uj == found.meter_uj
    assert found.currency == "EUR"


def test_a_price_that_is_known_ahead_starts_at_its_time() -> None:
    half = STARTS + 1800 * S
    prices: list[Timed] = [(0, price(0.2)), (0, price(-0.1, starts=half))]

    found = report(*merged(prices, kilowatt(3600)))

    assert found.worth.cost_n == pytest.approx(0.5 * 0.2e9 - 0.5 * 0.1e9, abs=0.003e9)
    assert len(found.grid) == 2


def test_energy_before_the_first_price_and_after_its_end_has_none() -> None:
    ends = STARTS + 2400 * S
    found = report(*merged([(1200, price(0.2, ends=ends))], kilowatt(3600)))
    said = as_json(found, "pod")

    assert said["meter_kwh"] == pytest.approx(1)
    assert said["unpriced_kwh"] == pytest.approx(2 / 3, rel=0.01)
    assert said["cost"] == pytest.approx(0.2 / 3, rel=0.01)
    assert (said["kgco2e"], said["unweighed_kwh"]) == (None, said["meter_kwh"])


def test_a_cost_that_is_not_known_is_null_and_never_nothing() -> None:
    said = as_json(report(*kilowatt(3600)), "pod")

    assert (said["cost"], said["kgco2e"], said["currency"]) == (None, None, None)
    assert said["by"][0]["cost"] is None


def test_a_price_of_nothing_is_known() -> None:
    said = as_json(report(*merged([(0, price(0))], kilowatt(3600))), "pod")

    assert (said["cost"], said["unpriced_kwh"]) == (0, 0)


def test_a_zone_has_its_own_price_or_that_of_every_zone() -> None:
    facts: list[Timed] = [(0, placed("n1", "a")), (0, placed("n2", "b"))]
    facts += [(0, price(0.1, zone="a")), (0, price(0.4))]
    hours = folded(*merged(facts, kilowatt(3600), kilowatt(3600, "n2")))
    by = report_of([each for each in hours if each.grain == "hour"], "node").by

    costs = {name: share.worth.cost_n for name, share in by.items()}
    assert costs == pytest.approx({"n1": 0.1e9, "n2": 0.4e9}, rel=0.01)


def test_a_node_that_moves_has_the_price_of_its_new_zone_from_then_on() -> None:
    prices: list[Timed] = [(0, price(0.1, zone="a")), (0, price(0.3, zone="b"))]
    moves: list[Timed] = [(0, placed("n1", "a")), (1800, placed("n1", "b"))]
    found = report(*merged(prices, moves, kilowatt(3600)))

    assert found.worth.cost_n == pytest.approx(0.2e9, rel=0.01)


def test_a_price_in_another_currency_is_unknown() -> None:
    half = STARTS + 1800 * S
    prices: list[Timed] = [(0, price(0.2)), (0, price(0.2, starts=half, currency="CHF"))]
    found = report(*merged(prices, kilowatt(3600)))

    assert found.currency == "EUR"
    assert found.worth.priced_uj == pytest.approx(1.8e12, rel=0.02)


def test_a_newer_rate_of_the_same_start_replaces_the_older() -> None:
    grid = Grid()
    grid.put(rate_of(price(0.1)))
    grid.put(rate_of(price(0.2)))

    assert [rate.value for rate in grid] == [200_000_000]


PRICES = st.builds(
    lambda cents, start: price(cents / 100, starts=STARTS + start * 60 * S),
    st.integers(-10, 60),
    st.integers(0, 90),
)
CHANGES = st.one_of(
    PRICES,
    st.builds(lambda g: intensity(g), st.integers(0, 900)),
    st.builds(lambda pod: bound(f"p{pod}", "n1"), st.integers(0, 3)),
    st.builds(lambda pod: PodFinished(uid=f"p{pod}"), st.integers(0, 3)),
    st.builds(lambda zone: placed("n1", zone), st.sampled_from("ab")),
)


@pytest.mark.long
@settings(deadline=None)  # a busy machine
@given(st.lists(st.tuples(st.integers(0, 5400), CHANGES), max_size=25))
def test_cost_and_carbon_of_pods_and_of_what_is_free_are_those_of_the_meters(
    changes: list[tuple[int, Fact]],
) -> None:
    timed: list[Timed] = [(float(at), fact) for at, fact in changes]
    found = report(*merged(timed, kilowatt(5400), [(at + 7, f) for at, f in kilowatt(5400, "n2")]))
    lines = [share.worth for share in found.by.values()]
    by_node = report_of(
        [each for each in folded(*merged(timed, kilowatt(5400))) if each.grain == "minutes"], "node"
    )

    for place, total in enumerate(found.worth):
        assert sum(line[place] for line in lines) == total
    free = found.by["(free)"].worth
    assert free.priced_uj >= -1
    assert 0 <= found.worth.priced_uj <= found.meter_uj
    assert by_node.worth.priced_uj <= by_node.meter_uj
