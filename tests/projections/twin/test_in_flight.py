"""Columns with pods in flight are those that they have once the pods run."""

import numpy as np
import pytest
from msgspec.structs import replace

from bus_kit import NOON, hardware
from joulie_bus.events import DeviceClaim, DeviceSeen, InFlight
from joulie_projections.pods.load import Load
from joulie_projections.state.cards import DRA, CardState
from joulie_projections.state.state import Arrival, NodeState
from joulie_projections.twin.card_columns import Cards
from joulie_projections.twin.columns import TwinColumns
from joulie_projections.twin.in_flight import TwinsInFlight
from joulie_projections.twin.power import Coefficients

MB = 81_559
RUNNING, NEW = Load(4000, 4_000_000, 1000, 0), Load(2000, 2_100_000, 2000, 1000)
FLYING = InFlight(1, 2000, 2_100_000, 2000, 1000, devices=3)


def node(ordinal: int, *loads: Load) -> NodeState:
    whole = sum(loads, Load())
    arrivals = tuple(Arrival(str(at), NOON, load) for at, load in enumerate(loads))
    return NodeState(
        ordinal=ordinal,
        at=NOON,
        present=True,
        hardware=hardware(f"n{ordinal}", cores=96, watts=700, gpus=4),
        load=whole,
        arrivals=arrivals,
    )


def a_card(name: str, *, is_held: bool, healthy: bool = True, by_dra: bool = True) -> CardState:
    claims = (DeviceClaim(uid="c", namespace="t", name="c", pods=("p",)),) if is_held else ()
    seen = DeviceSeen(card=name, node="n1", pool="gpu.x/n1", claims=claims)
    return CardState(
        at=NOON,
        node="n1",
        model="H100",
        total_mb=MB,
        healthy=healthy,
        source=DRA,
        device=seen if by_dra else None,
    )


def cards(held: int) -> dict[str, CardState]:
    odd = {"a": a_card("a", is_held=False, by_dra=False)}
    odd["b"] = a_card("b", is_held=False, healthy=False)
    return odd | {f"g{at}": a_card(f"g{at}", is_held=at < held) for at in range(4)}


def columns(*loads: Load, held: int) -> TwinColumns:
    found = TwinColumns.of({"n0": node(0, RUNNING), "n1": node(1, RUNNING, *loads)}, 0)
    return found.with_cards(Cards.of(cards(held), found.rows))


def test_the_load_and_the_devices_are_those_of_bound_pods() -> None:
    before, after = columns(held=0), columns(NEW, held=3)

    found = TwinsInFlight(before, [FLYING]).columns()

    for name, column in after.columns.items():
        assert found.columns[name] == pytest.approx(column), name
    for name, column in after.cards.columns.items():
        assert found.cards.columns[name].tolist() == column.tolist(), name
    assert found.cards.uuids == after.cards.uuids


def test_a_node_with_pods_of_daemon_sets_alone_has_another_pod_once_one_is_in_flight() -> None:
    daemons = replace(node(1, RUNNING), pods=1, daemon_pods=1)
    before = TwinColumns.of({"n0": daemons}, 0)

    assert before.columns["daemons_only"].tolist() == [False, False, True]
    assert TwinsInFlight(before, [FLYING]).columns().columns["daemons_only"].tolist() == [False] * 3


def test_the_columns_before_are_as_they_were() -> None:
    before = columns(held=0)
    kept = {name: column.copy() for name, column in before.columns.items()}
    use = {name: column.copy() for name, column in before.cards.columns.items()}

    TwinsInFlight(before, [FLYING]).columns()

    assert all((before.columns[name] == column).all() for name, column in kept.items())
    assert all((before.cards.columns[name] == column).all() for name, column in use.items())


def test_more_than_a_node_has_is_no_more_than_it_has() -> None:
    flying = [InFlight(1, 10**6, 10**9, 10**6, 0, devices=100)]

    found = TwinsInFlight(columns(held=0), flying).columns()

    assert found.columns["pods_cpu_w"][2] == found.columns["cpu_max_w"][2]
    assert found.columns["pods_gpu_standard_w"][2] == 4 * found.columns["gpu_max_w"][2]
    assert found.cards.columns["idle"].sum() == 2  # neither sick ones nor those of a plugin


def test_the_power_that_is_assumed_is_that_of_arrivals() -> None:
    before, after, rates = columns(held=0), columns(NEW, held=0), Coefficients()
    rows = np.array([2, 1, 0])

    found = TwinsInFlight(before, [FLYING]).watts(rows, rates)

    assert found == pytest.approx((after.arrivals_w(rates) - before.arrivals_w(rates))[rows])
    assert found[1:].tolist() == [0.0, 0.0]
