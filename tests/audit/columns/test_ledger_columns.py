"""The ledger folded from columns of the archive is that of the messages."""

from collections.abc import Sequence
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bus_kit import bound, card, hardware, node_seen, power, records
from energy_histories import CARD_FACTS, STEPS_S, histories_of
from joulie_audit.columns.facts import fact_tables
from joulie_audit.columns.ledger_columns import arrays_of, ledger_columns
from joulie_audit.columns.messages import Messages
from joulie_audit.columns.tables import CARD_READINGS, READINGS
from joulie_bus.events import (
    InventoryRead,
    NodeGone,
    PodFinished,
    PodsUsed,
    PodUse,
    TelemetrySampled,
    packed_uid,
)
from joulie_bus.streams.records import Record
from joulie_projections.energy.columns import LogColumns
from joulie_projections.energy.intervals import Interval
from joulie_projections.energy.saved import LedgerState

NODES = [f"n{number}" for number in range(5)]
START = [*(node_seen(name, gpus=2) for name in NODES), *(power(name, 100) for name in NODES)]


def kept(part: Sequence[Record]) -> LogColumns:
    """As it is read from a part that begins at another position."""
    first = 1001
    placed = list(enumerate(part, first))
    made = fact_tables(Messages.of(placed), ())
    _, others = made.split(placed)
    readings, cards = (
        arrays_of(made.typed[table.name], table.kinds) for table in (READINGS, CARD_READINGS)
    )
    return ledger_columns(readings, cards, others, first, len(part))


def folded(
    history: Sequence[Record], cuts: Sequence[int], *, in_columns: bool
) -> tuple[list[Interval], bytes, int]:
    """The intervals, the state, and how many parts were folded in columns."""
    state, used = LedgerState(), 0
    for first, last in pairwise([0, *sorted(cuts), len(history)]):
        part = history[first:last]
        if in_columns and state.fold_columns(kept(part), ()):
            used += 1
        else:
            state.fold(part, ())
    return state.take_closed(), state.packed(), used


def used_by(uid: str, node: str, milli: int) -> PodsUsed:
    pods = (PodUse(packed_uid(uid), 60, milli, milli),)
    return PodsUsed(node=node, source="cgroup-v2", pods=pods)


def an_inventory(node: str) -> InventoryRead:
    return InventoryRead(node=node, hardware=hardware(node))


def hours(*later: object, every: int = 40) -> list[Record]:
    """Two hours of readings; other facts come between them."""
    facts: list[object] = list(START)
    others = list(later)
    for number in range(1200):
        facts.append(power(NODES[number % 5], 100 + number % 37))
        if number % every == every - 1 and others:
            facts.append(others.pop(0))
    return records(*facts, step_s=6)  # type: ignore[arg-type]


def test_a_part_with_pods_is_folded_in_columns_to_the_same_bytes() -> None:
    history = hours(
        *(bound("a", "n1"), bound("b", "n1"), PodFinished(uid="a"), bound("c", "n3")),
    )

    closed, state, used = folded(history, [100, 700], in_columns=True)

    assert (closed, state) == folded(history, [100, 700], in_columns=False)[:2]
    assert used == 2  # the first part has new nodes
    assert any(each.pods for each in closed)


def test_readings_of_cards_are_folded_in_columns_too() -> None:
    readings = [
        TelemetrySampled(node="n2", power_mw=100_000 + at, card_mw={"x": 10_000 + at, "y": 7})
        for at in range(200)
    ]
    history = hours(*[bound(f"p{n}", "n2") for n in range(20)], card("x", "n2"), *readings, every=5)

    closed, state, used = folded(history, [150, 700], in_columns=True)

    assert (closed, state) == folded(history, [150, 700], in_columns=False)[:2]
    assert used == 2
    measured = [row.card for each in closed for row in each.cards if row.modelled_uj < row.pods_uj]
    assert "x" in measured


def test_a_part_with_what_agents_report_beside_readings_is_folded_in_columns_too() -> None:
    """Its numbers are among those of the readings."""
    used = [used_by("a", "n1", milli) for milli in (500, 900, 100)]
    others = (bound("a", "n1"), *used, an_inventory("n2"), bound("b", "n3"), an_inventory("n2"))
    history = hours(*others)

    closed, state, parts = folded(history, [100, 700], in_columns=True)

    assert (closed, state) == folded(history, [100, 700], in_columns=False)[:2]
    assert parts == 2


def test_an_inventory_after_a_missing_number_leaves_the_part_to_its_messages() -> None:
    """An older one may still come."""
    history = hours(an_inventory("n2"), an_inventory("n2"), bound("b", "n3"), an_inventory("n2"))
    without = [*history[:60], *history[61:]]

    closed, state, parts = folded(without, [100, 700], in_columns=True)

    assert (closed, state) == folded(without, [100, 700], in_columns=False)[:2]
    assert parts < 2


@pytest.mark.parametrize(
    "fact",
    [
        NodeGone(node="n1"),
        power("new", 100),
    ],
    ids=["a node is gone", "a node is new"],
)
def test_a_part_that_is_not_plain_is_left_to_its_messages(fact: object) -> None:
    history = hours(*[bound(f"p{n}", "n2") for n in range(5)], fact)

    closed, state, used = folded(history, [100, 700], in_columns=True)

    assert (closed, state) == folded(history, [100, 700], in_columns=False)[:2]
    assert used == 1


def test_a_repeated_or_a_missing_number_leaves_the_part_to_its_messages() -> None:
    history = hours()
    repeated = [*history[:300], history[200], *history[300:]]
    missing = [*history[:300], *history[301:]]

    for damaged in (repeated, missing):
        closed, state, used = folded(damaged, [100], in_columns=True)
        assert (closed, state) == folded(damaged, [100], in_columns=False)[:2]
        assert used == 0


def test_a_quarantined_reading_leaves_the_part_to_its_messages() -> None:
    history = hours()
    state = LedgerState()
    state.fold(history[:100], ())

    assert not state.fold_columns(kept(history[100:]), {150})
    assert state.fold_columns(kept(history[100:]), {99})


@settings(deadline=None)  # a busy machine
@given(histories_of(CARD_FACTS, STEPS_S), st.lists(st.integers(0, 60), max_size=5))
def test_columns_and_messages_give_the_same_bytes(history: list[Record], cuts: list[int]) -> None:
    inside = [min(cut, len(history)) for cut in cuts]

    assert (
        folded(history, inside, in_columns=True)[:2]
        == folded(history, inside, in_columns=False)[:2]
    )
