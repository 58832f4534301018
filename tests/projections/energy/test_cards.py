"""Energy of cards: the rule in examples, and its laws on random histories."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bus_kit import ask, card, hardware, node_seen, power
from bus_kit.grid import price
from bus_kit.pods import bound
from energy_histories import CARD_FACTS, STEPS_S, J, Timed, folded, histories_of, ledger_of
from joulie_bus.events import (
    GpuGone,
    GpuSeen,
    NodeGone,
    PodBound,
    PodFinished,
    TelemetrySampled,
)
from joulie_bus.streams.records import Record
from joulie_projections.energy.cards import split
from joulie_projections.energy.intervals import CardEnergy
from joulie_projections.energy.report import NOT_ON_CARDS, as_json, report_of
from joulie_projections.energy.saved import LedgerState, digest_of, unpacked

GPU_NODE: list[Timed] = [
    (0, node_seen("n1", cores=10, gpus=2)),
    (0, hardware("n1", cores=10, watts=560, gpus=2)),  # half of 560 W, and a tenth of 1400 W
    (0, card("a")),
    (0, card("b")),
]


def read(watts: float, **cards: float) -> TelemetrySampled:
    card_mw = {name: round(each * 1000) for name, each in cards.items()}
    return TelemetrySampled(node="n1", power_mw=round(watts * 1000), card_mw=card_mw)


def owned(uuid: str, uid: str) -> GpuSeen:
    return GpuSeen(uuid=uuid, node="n1", model="NVIDIA H100 SXM5", total_mb=1, owner=uid)


def cards_of(*facts: Timed) -> dict[str, CardEnergy]:
    return {row.card: row for each in folded(*facts) if each.grain == "hour" for row in each.cards}


def energy_of(*facts: Timed) -> dict[str, tuple[int, int, int]]:
    """Above idle, idle and modelled, in joules."""
    rows = cards_of(*facts).items()
    return {name: (row.pods_uj // J, row.idle_uj // J, row.modelled_uj // J) for name, row in rows}


def test_a_reading_of_a_card_is_its_energy() -> None:
    found = energy_of(
        *GPU_NODE,
        (0, read(500, a=70, b=70)),
        (0, bound("pod", "n1")),
        (10, read(900, a=470, b=70)),
        (20, read(900, a=470, b=70)),
    )

    assert found == {"a": (2000 + 4000, 1400, 0), "b": (0, 1400, 0)}


def test_without_readings_idle_energy_is_shared_by_rated_power() -> None:
    found = energy_of(*GPU_NODE, (0, power("n1", 420)), (10, power("n1", 420)))

    assert found == {"a": (0, 700, 700), "b": (0, 700, 700)}  # 70 W of each card, 280 W beside


def test_without_readings_pods_use_the_cards_that_they_own_by_what_they_ask() -> None:
    pod = ask("pod", cores=0.5, gpus=1)  # 455 W of a card; 19.6 W of the cores
    facts: list[Timed] = [
        *GPU_NODE,
        (0, power("n1", 420)),
        (0, PodBound(pod=pod, node="n1")),
        (0, owned("b", "pod")),
        (10, power("n1", 420)),
        (20, power("n1", 420)),
        (30, power("n1", 895)),
    ]

    found = energy_of(*facts)

    assert found["a"][0] == 0
    assert found["b"][0] == pytest.approx(475 * 5 * 455 / 474.6, abs=2)


def test_a_pod_without_a_known_card_uses_all_of_its_node() -> None:
    pod = ask("pod", cores=0.5, gpus=1)
    found = energy_of(
        *GPU_NODE,
        (0, power("n1", 420)),
        (0, PodBound(pod=pod, node="n1")),
        (10, power("n1", 820)),
    )

    assert found["a"] == found["b"]
    assert found["a"][0] > 0


def test_a_card_whose_readings_stop_is_modelled_for_the_rest() -> None:
    rows = cards_of(
        *GPU_NODE,
        (0, read(420, a=70, b=70)),
        (10, read(420, a=70, b=70)),
        (20, read(420, b=70)),
        (30, read(420, b=70)),
        (40, read(420, b=70)),
    )

    assert rows["b"].modelled_uj == 0
    assert rows["a"].modelled_uj == 2100 * J  # of 30 of 40 s
    assert rows["a"].idle_uj == 2800 * J


def test_cards_never_have_more_than_their_node() -> None:
    found = energy_of(*GPU_NODE, (0, read(100, a=100, b=300)), (10, read(100, a=100, b=300)))

    assert found == {"a": (0, 250, 0), "b": (0, 750, 0)}


def test_a_card_that_leaves_keeps_what_it_used() -> None:
    found = energy_of(
        *GPU_NODE,
        (0, read(500, a=70, b=70)),
        (10, read(500, a=70, b=70)),
        (10, GpuGone(uuid="b")),
        (11, NodeGone(node="n1")),
    )

    assert found == {"a": (0, 700, 0), "b": (0, 700, 0)}


def test_a_pod_that_has_ended_before_the_reading_still_uses_its_card() -> None:
    pod = ask("pod", cores=0.5, gpus=1)
    found = energy_of(
        *GPU_NODE,
        (0, power("n1", 420)),
        (0, PodBound(pod=pod, node="n1")),
        (0, owned("b", "pod")),
        (9, PodFinished(uid="pod")),
        (9, owned("b", "")),
        (10, power("n1", 820)),
    )

    assert found["a"][0] == 0
    assert found["b"][0] > 0


def test_cards_cost_what_their_energy_costs() -> None:
    rows = cards_of(
        (0, price(0.36)), *GPU_NODE, (0, read(500, a=100)), (36, read(500, a=100)), (36, price(1))
    )

    assert rows["a"].priced_uj == 3600 * J
    assert rows["a"].cost_n == 360_000  # of 0.001 kWh


def test_a_report_by_card_names_the_rest() -> None:
    hours = [
        each
        for each in folded(*GPU_NODE, (0, read(500, a=70, b=70)), (36, read(500, a=70, b=70)))
        if each.grain == "hour"
    ]

    data = as_json(report_of(hours, "card"), "card")

    lines = {line["card"]: line for line in data["by"]}
    assert set(lines) == {"n1/a", "n1/b", NOT_ON_CARDS}
    assert lines["n1/a"]["kwh"] == pytest.approx(70 * 36 / 3.6e6)
    assert sum(line["kwh"] for line in data["by"]) == pytest.approx(data["meter_kwh"])


# --- laws -----------------------------------------------------------------------------------------


@settings(deadline=None)  # a busy machine
@given(histories_of(CARD_FACTS, STEPS_S))
def test_cards_and_the_rest_are_what_their_node_used(history: list[Record]) -> None:
    state = LedgerState()
    state.fold(history, ())
    state.ledger.end()
    for hour in (each for each in state.take_closed() if each.grain == "hour"):
        for node in {row.node for row in hour.cards}:
            cards = [row for row in hour.cards if row.node == node]
            rows = [row for row in hour.nodes if row.node == node]
            assert sum(row.pods_uj for row in cards) <= sum(row.pods_uj for row in rows)
            assert sum(row.idle_uj for row in cards) <= sum(row.idle_uj for row in rows)
            assert all(row.pods_uj >= 0 and row.idle_uj >= 0 for row in cards)
            assert all(row.modelled_uj <= row.pods_uj + row.idle_uj for row in cards)


@settings(deadline=None)  # a busy machine
@given(histories_of(CARD_FACTS, STEPS_S), st.lists(st.integers(0, 60), max_size=5))
def test_a_fold_of_cards_gives_the_same_bytes_wherever_it_is_cut(
    history: list[Record],
    cuts: list[int],
) -> None:
    assert ledger_of(history, [min(cut, len(history)) for cut in cuts]) == ledger_of(history)


@settings(deadline=None)  # a busy machine
@given(histories_of(CARD_FACTS, STEPS_S))
def test_what_is_known_of_cards_changes_no_other_figure(history: list[Record]) -> None:
    """So that a ledger folded before there were cards is the same."""
    closed, _ = ledger_of(history)
    state = LedgerState()
    for at, record in enumerate(history):
        state.fold([record], ())
        state.ledger.cards.nodes.clear()
        assert state.position == at + 1
    body = state.packed()

    without = [each._replace(cards=()) for each in state.take_closed()]
    assert without == [each._replace(cards=()) for each in closed]
    assert unpacked(body, digest_of(body)).position == len(history)


@given(st.integers(0, 10**15), st.lists(st.integers(0, 10**12), max_size=9))
def test_shares_by_weight_have_the_sum_and_are_no_larger_than_a_smaller_total_allows(
    total: int, weights: list[int]
) -> None:
    total = min(total, sum(weights))
    shares = split(total, weights)

    assert sum(shares) == total
    assert all(0 <= share <= weight for share, weight in zip(shares, weights, strict=True))
