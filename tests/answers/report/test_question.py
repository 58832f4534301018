"""What was saved is asked with the settings of the log, not with defaults."""

import pytest
from msgspec.structs import replace

from bus_kit import ask, hardware, node_seen, power
from bus_kit.pods import bound
from joulie_answers.report.form import Period
from joulie_answers.report.gather import Gathered
from joulie_answers.report.question import Asked, Measured, asked_of
from joulie_audit.ledger.pods_in_log import Lives
from joulie_bus.events import Fact, ModelFigures, PlanMade, PodBound
from joulie_extender.catalogue.weights import Weights
from joulie_operator.planning.rules import Rules, values_of
from joulie_projections.energy.report import Reading
from joulie_projections.energy.saved import LedgerState
from joulie_projections.hardware.card_power import CardPower
from joulie_simulator.energy.counterfactual import LoggedSleep
from joulie_simulator.energy.product import Product

SECOND_MS = 1000


def plan(at: int, numbers: str, policy: str = "consolidate_and_sleep") -> tuple[PlanMade, int]:
    rules = Rules(policy=policy, policy_numbers=numbers)
    made = PlanMade(
        plan=f"p-{at}",
        policy=policy,
        view=at,
        nodes=1,
        performance=0,
        changes=0,
        settings=values_of(rules),
    )
    return made, at * SECOND_MS


def sleep_of(*plans: tuple[PlanMade, int], to_s: int = 100) -> LoggedSleep:
    lives = Lives()
    for made, at_ms in plans:
        lives.fold(made, at_ms)
    state = LedgerState()
    state.ledger.row_of("n1")
    state.ledger.meters.columns["last_ms"][0] = to_s * SECOND_MS
    period = Period(0, to_s * SECOND_MS)
    got = Gathered(period, 0, Reading([]), state, lives, {}, {}, Weights(scoring="energy"))
    return asked_of(got, *period, Measured(0)).question.sleep


USUAL = LoggedSleep(0.02, 0.8, 600.0)


@pytest.mark.parametrize(
    ("plans", "expected"),
    [
        ([plan(1, "", "static_partition")], LoggedSleep()),
        ([plan(1, "")], USUAL),
        ([plan(1, "reserve=0.2,max_share=0.5,sleep_after_s=60")], LoggedSleep(0.2, 0.5, 60.0)),
        ([plan(1, "reserve=0.2"), plan(2, "reserve=0.4")], USUAL._replace(reserve=0.4)),
        ([plan(1, "reserve=0.2"), plan(200, "reserve=0.4")], USUAL._replace(reserve=0.2)),
    ],
    ids=["none sleeps", "its defaults", "its numbers", "the newest", "not a later one"],
)
def test_nodes_sleep_by_the_newest_plan_of_the_period(
    plans: list[tuple[PlanMade, int]], expected: LoggedSleep
) -> None:
    assert sleep_of(*plans) == expected


@pytest.mark.parametrize(
    ("preset", "scoring", "sleep"),
    [("savings", "energy", USUAL), ("headroom", "headroom", LoggedSleep())],
)
def test_a_log_without_plans_is_asked_what_its_preset_would_plan(
    preset: str, scoring: str, sleep: LoggedSleep
) -> None:
    weights = Weights(preset=preset, scoring=scoring)
    asked = without_plans(weights)

    assert asked.question.product == Product.of(weights)
    assert (asked.question.happened, asked.question.sleep) == (None, sleep)
    assert asked.question.sleeps is (preset == "savings")


def test_a_log_with_plans_is_asked_what_happened() -> None:
    lives = Lives()
    lives.fold(*plan(1, ""))
    question = without_plans(Weights(preset="savings"), lives).question

    assert question.product is None
    assert question.happened is not None


def without_plans(weights: Weights, lives: Lives | None = None) -> Asked:
    state = LedgerState()
    state.ledger.row_of("n1")
    period = Period(0, 100 * SECOND_MS)
    got = Gathered(period, 0, Reading([]), state, lives or Lives(), {}, {}, weights)
    return asked_of(got, *period, Measured(0))


def test_the_use_of_pods_does_not_shrink_with_gaps_in_the_readings() -> None:
    """A quarter of the time of ten nodes is unknown, and so is the energy of pods then."""
    hour_ms = 3_600_000

    assert Measured(750).of_all_time_uj(10 * hour_ms) == 750
    assert Measured(750, unknown_ms=hour_ms * 10 // 4).of_all_time_uj(10 * hour_ms) == 1000
    assert Measured(750, unknown_ms=11 * hour_ms).of_all_time_uj(10 * hour_ms) == 7500
    assert Measured(0).of_all_time_uj(0) == 0


H100 = CardPower.of((73, 125, 199, 307, 483, 629, 692))
HOUR_S = 3600
UJ_PER_W_S = 1_000_000


def asked_for(pods: list[PodBound], measured: Measured) -> Asked:
    """An hour of one node with eight cards of a measured model."""
    state, lives = LedgerState(), Lives()
    figures = ModelFigures(gpu_curve_mw=H100.milliwatts)
    known = replace(hardware("n1", cores=100, watts=1000, gpus=8), figures=figures)
    facts: list[Fact] = [node_seen("n1", cores=100, gpus=8), known, *pods]
    timed = [(fact, 1) for fact in facts]
    state.ledger.fold([*timed, (power("n1", 1000), 1), (power("n1", 1000), HOUR_S * 1_000_000_000)])
    for fact, at in timed:
        lives.fold(fact, at)
    period = Period(0, HOUR_S * 1000)
    got = Gathered(period, 0, Reading([]), state, lives, {}, {}, Weights(scoring="energy"))
    return asked_of(got, *period, measured)


def gpu_pods(count: int) -> list[PodBound]:
    demand = {"cpu_milli": 10_000, "gpu_milli": 1000, "workload": "performance"}
    return [
        replace(bound(f"p{n}", "n1"), pod=replace(ask(f"p{n}"), **demand)) for n in range(count)
    ]


@pytest.mark.parametrize("use", [0.1, 0.5, 0.9])
def test_the_use_of_pods_gives_the_measured_energy_by_the_curve(use: float) -> None:
    watts = 4 * (10 * 7.0 * use + H100.added_w(0.85 * use))
    question = asked_for(gpu_pods(4), Measured(round(watts * HOUR_S * UJ_PER_W_S))).question

    assert question.use == pytest.approx(use, rel=1e-3)
    assert [node.curve for node in question.nodes] == [H100]


@pytest.mark.parametrize(("measured_uj", "use"), [(0, 0.02), (10**18, 1.0)])
def test_the_use_of_pods_stays_in_its_range(measured_uj: int, use: float) -> None:
    assert asked_for(gpu_pods(4), Measured(measured_uj)).question.use == use


def test_a_node_whose_cards_are_shared_by_time_has_units() -> None:
    state = LedgerState()
    seen = replace(node_seen("n1", cores=100, gpus=8), gpu_units=32)
    state.ledger.fold([(seen, 1), (hardware("n1", cores=100, gpus=8), 1)])
    period = Period(0, 100 * SECOND_MS)
    got = Gathered(period, 0, Reading([]), state, Lives(), {}, {}, Weights())

    (node,) = asked_of(got, *period, Measured(0)).question.nodes

    assert (node.cards, node.most_cards, node.w_per_card) == (32, 8, 175.0)
