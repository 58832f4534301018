"""The measured curve of a node's cards in the ledger."""

from dataclasses import dataclass

import pytest
from msgspec.structs import replace

from bus_kit import ask, hardware, node_seen
from bus_kit.clock import NOON
from joulie_bus.events import Fact, HardwareDiscovered, ModelFigures
from joulie_projections.energy.pods import Capacity, PodEntry, asked_power, occupied_by
from joulie_projections.energy.saved import LedgerState, digest_of, unpacked
from joulie_projections.hardware.card_power import CardPower

WATTS = (73.0, 125.0, 199.0, 307.0, 483.0, 629.0, 692.0)
H100 = CardPower.of(WATTS)


def measured(node: str, **other: object) -> HardwareDiscovered:
    figures = ModelFigures(gpu_curve_mw=H100.milliwatts)
    return replace(hardware(node, gpus=8), figures=figures, **other)


def asking(cards: int) -> PodEntry:
    return PodEntry.of(ask(gpus=cards), "n1", NOON)


def capacity(*facts: Fact) -> Capacity:
    state = LedgerState()
    state.ledger.fold((fact, NOON) for fact in facts)
    again = unpacked(packed := state.packed(), digest_of(packed))
    assert again.ledger.nodes["n1"].capacity == state.ledger.nodes["n1"].capacity
    return again.ledger.nodes["n1"].capacity


@dataclass(frozen=True)
class Case:
    facts: tuple[Fact, ...]
    curve: CardPower | None


SEEN = node_seen("n1", gpus=8)
CASES = {
    "a model that was measured": Case((SEEN, measured("n1")), H100),
    "a node that is seen after its hardware": Case((measured("n1"), SEEN), H100),
    "a model that was not measured": Case((SEEN, hardware("n1", gpus=8)), None),
    "cards in slices": Case((replace(SEEN, gpus=8, gpu_units=56), measured("n1")), None),
    "cards that are whole again": Case((replace(SEEN, gpu_units=56), measured("n1"), SEEN), H100),
    "labels after a discovery": Case(
        (SEEN, measured("n1", source="agent"), replace(hardware("n1"), source="labels")), H100
    ),
    "figures of a newer program": Case(
        (SEEN, replace(measured("n1"), figures=ModelFigures(gpu_curve_mw=(1, 2)))), None
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_a_curve_is_of_whole_cards_of_a_measured_model(name: str) -> None:
    assert capacity(*CASES[name].facts).curve == CASES[name].curve


def test_a_unit_of_a_shared_card_is_its_part_of_the_power_and_of_the_node() -> None:
    shared = capacity(replace(SEEN, gpu_units=32), hardware("n1", gpus=8))
    whole = capacity(SEEN, hardware("n1", gpus=8))
    of_all, of_one = asking(32), asking(1)

    assert asked_power(of_all, shared).gpu == asked_power(asking(8), whole).gpu
    assert asked_power(of_one, shared).gpu == asked_power(of_one, whole).gpu // 4
    assert occupied_by(of_one, shared) * 32 == occupied_by(of_all, shared)
