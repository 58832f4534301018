"""The pods of a log under two policies: what differs, and what must not."""

import pytest

from joulie_extender.catalogue.weights import Weights
from joulie_projections.hardware.card_power import CardPower
from joulie_simulator.energy.closed_loop import BASELINE, LoggedPod, step_s
from joulie_simulator.energy.counterfactual import (
    VARIANTS,
    Happened,
    Question,
    Run,
    compared,
    run_baseline,
)
from joulie_simulator.energy.jobs import Job
from joulie_simulator.energy.logged_fleet import LoggedFleet, LoggedNode
from joulie_simulator.energy.product import AWAKE, WEIGHTS, Product

HOUR_S = 3600.0
NODES = [LoggedNode(f"n{n}", 32, 0, 100.0, 5.0, 0.0) for n in range(8)]


def pods(
    count: int, *, every_s: float, cores: float = 4, lasting_s: float = 1200
) -> list[LoggedPod]:
    return [LoggedPod(n * every_s, cores, 0, False, lasting_s) for n in range(count)]


def question(
    wanted: list[LoggedPod], *, seconds: float = 2 * HOUR_S, use: float = 0.5, sleeps: bool = False
) -> Question:
    return Question(NODES, wanted, seconds, use, sleeps)


@pytest.mark.long
def test_plans_and_decisions_of_the_product_save_energy_at_equal_work() -> None:
    asked = of_product(pods(60, every_s=60), WEIGHTS)
    found = compared(asked, "joulie-energy")

    assert found.saved_per_work.low > 0.1
    for before, after in zip(found.runs[BASELINE], found.runs["joulie-energy"], strict=True):
        assert before.work_kwh == pytest.approx(after.work_kwh, rel=0.02)


@pytest.mark.drill
def test_the_product_answers_the_same_question_in_the_same_way() -> None:
    asked = of_product(pods(60, every_s=5), WEIGHTS, 400)

    assert compared(asked, "joulie-energy") == compared(asked, "joulie-energy")


@pytest.mark.drill
def test_a_product_whose_plans_let_no_node_sleep_saves_nothing_on_equal_nodes() -> None:
    found = compared(of_product(pods(60, every_s=60), Weights()), "joulie")

    assert found.saved_kwh.high == pytest.approx(0, abs=1e-6)
    assert [run.wakes for run in found.runs["joulie"]] == [0] * len(VARIANTS)


@pytest.mark.drill
def test_nodes_sleep_after_the_times_of_the_plans_in_a_short_period_too() -> None:
    """Ten minutes without pods; in less time no node sleeps, however short the steps are."""
    early, late = (
        compared(of_product(pods(1, every_s=1, lasting_s=60), WEIGHTS, seconds), "joulie-energy")
        for seconds in (590.0, 2 * HOUR_S)
    )

    assert early.saved_kwh.high == pytest.approx(0, abs=1e-6)
    assert late.saved_per_work.low > 0.3


@pytest.mark.drill
def test_the_extender_of_the_product_knows_the_cards_of_each_node() -> None:
    """One node has cards whose first process adds watts; the pods go to the other one."""
    curve = CardPower.of((73, 125, 199, 307, 483, 629, 692))
    nodes = [
        LoggedNode("curved", 64, 8, 900.0, 5.0, 700.0, curve),
        LoggedNode("linear", 64, 8, 900.0, 5.0, 90.0),
    ]
    wanted = [LoggedPod(n * 600.0, 2, 1, False, 300) for n in range(6)]
    asked = Question(nodes, wanted, HOUR_S, 0.5, False, product=Product(AWAKE, WEIGHTS))
    found = compared(asked, "joulie-energy")

    added = 2 * 5 * 0.5 + 90 * 0.65 * 0.5
    assert found.runs["joulie-energy"][0].kwh == pytest.approx(
        (2 * 900 + added * 6 * 300 / HOUR_S) / 1000, rel=0.02
    )


def baseline_of(asked: Question) -> Run:
    return run_baseline(asked, VARIANTS[0])


def of_product(wanted: list[LoggedPod], weights: Weights, seconds: float = 2 * HOUR_S) -> Question:
    product = Product.of(weights)
    return Question(NODES, wanted, seconds, 0.5, product.sleeps, product=product)


def test_the_energy_of_a_run_is_idle_power_and_what_pods_use() -> None:
    run = baseline_of(question(pods(1, every_s=1, cores=8, lasting_s=HOUR_S)))

    assert run.kwh == pytest.approx(8 * 0.1 * 2 + 8 * 0.005 * 0.5, rel=0.02)


def test_a_short_period_has_shorter_steps_and_the_same_power() -> None:
    long = baseline_of(question(pods(60, every_s=60), seconds=40 * HOUR_S))
    short = baseline_of(question(pods(60, every_s=1, lasting_s=20), seconds=40 * 60, use=0.5))

    assert step_s(40 * HOUR_S) == 60
    assert step_s(40 * 60) == pytest.approx(1.2)
    assert short.kwh == pytest.approx(long.kwh / 60, rel=0.02)


def test_pods_wait_while_nothing_is_free() -> None:
    run = baseline_of(question(pods(16, every_s=0, cores=32, lasting_s=HOUR_S / 2)))

    assert (run.placed, run.waiting) == (16, 0)
    assert run.wait_p99_s == pytest.approx(HOUR_S / 2, rel=0.05)


def happened(wanted: list[LoggedPod], off_s: float = 0.0) -> Happened:
    """All pods on the first node; the others are off for so long."""
    stays = [(pod, 0, pod.duration_s) for pod in wanted]
    return Happened(stays, [0.0, *[off_s] * 7], [3.0, 8.0], 0, 7)


def test_what_happened_is_computed_from_the_times_on_nodes_and_the_times_off() -> None:
    wanted = pods(4, every_s=60, lasting_s=HOUR_S)
    asked = question(wanted)._replace(happened=happened(wanted, off_s=HOUR_S))

    run, *_ = compared(asked, "joulie-energy").runs["joulie-energy"]

    idle_kwh = 0.1 * 2 + 7 * (0.1 + 0.1 * 0.1)
    assert run.kwh == pytest.approx(idle_kwh + 4 * 4 * 0.005 * 0.5)
    assert (run.placed, run.wakes) == (4, 7)


def test_waits_of_what_happened_are_counted_in_the_steps_of_a_simulated_run() -> None:
    wanted = pods(4, every_s=60)
    asked = question(wanted)._replace(happened=happened(wanted))

    run, *_ = compared(asked, "joulie-energy").runs["joulie-energy"]

    assert run.wait_p50_s == (0 + 2 * step_s(2 * HOUR_S)) / 2


def test_what_happened_saves_nothing_where_no_node_was_off() -> None:
    wanted = pods(4, every_s=60, lasting_s=HOUR_S / 2)
    awake = question(wanted, sleeps=True)._replace(happened=happened(wanted))
    off = awake._replace(happened=happened(wanted, off_s=HOUR_S))

    assert compared(awake, "joulie-energy").saved_per_work.mid == pytest.approx(0, abs=0.01)
    assert compared(off, "joulie-energy").saved_per_work.mid > 0.3


def test_both_sides_credit_the_same_work_for_pods_that_did_not_wait() -> None:
    wanted = pods(20, every_s=60)
    asked = question(wanted)._replace(happened=happened(wanted))
    found = compared(asked, "joulie-energy")

    for before, after in zip(found.runs[BASELINE], found.runs["joulie-energy"], strict=True):
        assert before.work_kwh == pytest.approx(after.work_kwh, rel=1e-6)


H100 = CardPower.of((73, 125, 199, 307, 483, 629, 692))


def with_cards(curve: CardPower | None, names: str = "abcd") -> list[LoggedNode]:
    return [LoggedNode(name, 64, 8, 800.0, 5.0, 700.0, curve) for name in names]


def on_cards(
    curve: CardPower | None, wanted: list[LoggedPod], *, use: float = 0.5, sleeps: bool = False
) -> Question:
    return Question(with_cards(curve), wanted, 2 * HOUR_S, use, sleeps)


def training(count: int, *, cards: int = 2, lasting_s: float = HOUR_S) -> list[LoggedPod]:
    return [LoggedPod(60.0 * n, 8, cards, True, lasting_s) for n in range(count)]


@pytest.mark.drill
def test_a_card_of_a_measured_model_draws_by_its_curve_under_both_policies() -> None:
    one = training(1, lasting_s=2 * HOUR_S)
    idle_and_cores = 4 * 0.8 * 2 + 8 * 0.005 * 0.5 * 2
    by_curve = idle_and_cores + 2 * H100.added_w(0.85 * 0.5) * 2 / 1000
    by_line = idle_and_cores + 2 * 700 * 0.85 * 0.5 * 2 / 1000

    awake = Product(AWAKE, WEIGHTS)
    for curve, expected in ((H100, by_curve), (None, by_line)):
        asked = on_cards(curve, one)._replace(product=awake)
        for run in (baseline_of(asked), compared(asked, "joulie-energy").runs["joulie-energy"][0]):
            assert run.kwh == pytest.approx(expected, rel=1e-3)


def test_what_happened_draws_by_the_curve_too() -> None:
    (pod,) = training(1)
    stays = [(pod, 0, pod.duration_s)]
    asked = on_cards(H100, [pod])._replace(happened=Happened(stays, [0.0] * 4, [0.0], 0, 0))
    found = compared(asked, "joulie-energy")

    assert found.saved_kwh.mid == pytest.approx(0, abs=0.01)
    assert found.runs["joulie-energy"][0].kwh == pytest.approx(
        4 * 0.8 * 2 + (8 * 2.5 + 2 * H100.added_w(0.85 * 0.5)) / 1000
    )


def test_a_measured_card_that_is_held_and_not_used_draws_the_power_of_its_process() -> None:
    fleet = LoggedFleet([*with_cards(H100, "a"), *with_cards(None, "b")])
    (pod,) = training(1)
    job = Job(0, 0, 8, pod.cards, True, 0.0, 0.0, 60)

    assert fleet.dynamic_of(0, job) == 2 * H100.process_w
    assert fleet.dynamic_of(1, job) == 0


# --- cards that pods share by time --------------------------------------------------------------

SHARED = [LoggedNode("shared", 32, 8, 150.0, 5.0, 18.0, physical_cards=2)]  # of 72 W


@pytest.mark.drill
def test_pods_that_share_a_card_by_time_draw_their_parts_of_it() -> None:
    wanted = [LoggedPod(0.0, 2, 1, False, HOUR_S) for _ in range(8)]
    asked = Question(SHARED, wanted, HOUR_S, 0.5, False, product=Product(AWAKE, WEIGHTS))
    found = compared(asked, "joulie-energy").runs

    for run in (found[BASELINE][0], found["joulie-energy"][0]):
        assert (run.placed, run.waiting) == (8, 0)
        assert run.kwh == pytest.approx((150 + 8 * (2 * 5 + 18 * 0.65) * 0.5) / 1000, rel=1e-3)


def test_units_of_a_node_are_no_room_for_a_pod_of_more_cards_than_it_has() -> None:
    wanted = [LoggedPod(0.0, 2, cards, False, HOUR_S) for cards in (2, 3)]
    run = baseline_of(Question(SHARED, wanted, HOUR_S, 0.5, False))

    assert (run.placed, run.waiting) == (1, 1)
