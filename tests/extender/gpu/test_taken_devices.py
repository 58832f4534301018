"""What is computed again for devices in flight is what would be computed from nothing."""

import numpy as np
import pytest
from msgspec.structs import replace

from gpu_kit import a_card, twin_columns_of, wanting
from joulie_bus.events import DeviceSeen
from joulie_extender.gpu.fit import GpuWeights, points
from joulie_extender.gpu.free_cards import rests_of
from joulie_projections.state.cards import CardState
from joulie_projections.twin.card_columns import Cards

NODES = ("n0", "n1", "n2")
TAKEN = {1: 1, 3: 2}  # by row


def by_dra(node: str) -> CardState:
    return replace(a_card(node), source="dra", device=DeviceSeen(card="g", node=node))


def cards_of(names: dict[str, CardState], *, patched: bool) -> Cards:
    found = twin_columns_of(names).cards.taking(TAKEN)
    if not patched:
        found.taken = None
        found.fixed_memo = {}
    return found


NAMES = {f"{node}-{at}": by_dra(node) for node in NODES for at in range(3)} | {"p": a_card("n2")}


def test_what_is_left_of_cards() -> None:
    found, fresh = (rests_of(cards_of(NAMES, patched=each)) for each in (True, False))

    assert found.tolist() == fresh.tolist()
    assert sorted(found.sum(1).tolist()) == [2000, 2000, 3000]


@pytest.mark.parametrize("packing", ["share", "fit"])
def test_points_for_packing(packing: str) -> None:
    columns, rows = twin_columns_of(NAMES), np.array([1, 2, 3])
    weights = GpuWeights(packing=packing)
    found, fresh, before = (
        points(wanting(), columns.with_cards(cards), rows, weights).tolist()
        for cards in (
            cards_of(NAMES, patched=True),
            cards_of(NAMES, patched=False),
            columns.cards,
        )
    )

    assert found == fresh
    assert found != before
