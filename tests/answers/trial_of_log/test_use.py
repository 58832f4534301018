"""What pods use, by nodes without and with cards."""

import pytest

from bus_kit import ask
from joulie_answers.trial_of_log.use import Measured, fitted
from joulie_audit.ledger.pods_in_log import PodLife
from joulie_projections.energy.pods import Capacity, NodeEntry
from joulie_simulator.energy.closed_loop import Use

HOUR_MS, UJ_PER_W_HOUR = 3_600_000, 3_600_000_000
PLAIN = Capacity(cpu_milli=100_000, cpu_max_mw=1_000_000)  # 7 W a core
CARDS = Capacity(cpu_milli=100_000, cpu_max_mw=1_000_000, gpus=8, gpu_max_mw=700_000, cards=8)
NODES = {
    "plain": NodeEntry("plain", 0, present=True, capacity=PLAIN),
    "cards": NodeEntry("cards", 1, present=True, capacity=CARDS),
}
W_PER_CORE, W_PER_CARD = 7.0, 700 * 0.65


def life(node: str, cores: float, cards: int = 0) -> PodLife:
    return PodLife(ask(f"{node}-{cores}", cores=cores, gpus=cards), 1, node, 1, HOUR_MS + 1)


def fit(lives: list[PodLife], watts: dict[str, float], share: float = 1.0) -> Use:
    energy = {name: round(each * share * UJ_PER_W_HOUR) for name, each in watts.items()}
    return fitted(Measured((0, HOUR_MS + 1), energy, share), lives, NODES, frozenset(watts))


@pytest.mark.parametrize("share", [1.0, 0.5])
def test_cores_are_fitted_without_cards_and_cards_by_what_remains(share: float) -> None:
    lives = [life("plain", 10), life("cards", 20, 4)]
    watts = {
        "plain": 10 * W_PER_CORE * 0.3,
        "cards": 20 * W_PER_CORE * 0.3 + 4 * W_PER_CARD * 0.8,
    }

    assert fit(lives, watts, share) == pytest.approx((0.3, 0.8), rel=1e-3)


def test_without_nodes_that_have_no_cards_one_factor_stands_for_both() -> None:
    watts = {"cards": (20 * W_PER_CORE + 4 * W_PER_CARD) * 0.6}

    assert fit([life("cards", 20, 4)], watts) == pytest.approx((0.6, 0.6), rel=1e-3)


def test_without_pods_with_cards_they_are_used_as_cores_are() -> None:
    assert fit([life("plain", 10)], {"plain": 35.0}) == pytest.approx((0.5, 0.5), rel=1e-3)


def test_pods_on_nodes_without_readings_do_not_count() -> None:
    lives = [life("plain", 10), life("cards", 90)]

    assert fit(lives, {"plain": 35.0}) == pytest.approx((0.5, 0.5), rel=1e-3)
