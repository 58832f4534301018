"""`joulie simulate energy` runs the operator's plans and the extender's decisions."""

from dataclasses import replace

import numpy as np
import pytest

from joulie_bus.runtime.settings import Source
from joulie_extender.decide.scoring import score
from joulie_extender.gpu.free import free_cards
from joulie_extender.settings import ScoringSettings
from joulie_operator.settings import OperatorSettings
from joulie_projections.twin.columns import TwinColumns
from joulie_simulator.energy.fleet import MEASURED, Fleet
from joulie_simulator.energy.folded import FoldedCluster, pod_of
from joulie_simulator.energy.jobs import Job
from joulie_simulator.energy.logged_fleet import LoggedFleet, LoggedNode
from joulie_simulator.energy.product import (
    SAVING,
    WEIGHTS,
    ExtenderScores,
    PlannedNodes,
)
from joulie_simulator.energy.queueing import Beside, run_queueing
from joulie_simulator.energy.suites import Case, Size, fair, run_case
from joulie_simulator.energy.switching.conditions import CONDITIONS, USUAL, WAKE_MINUTES
from joulie_simulator.energy.trend import Trends

SAVINGS = Source.of(PRESET="savings")


def job(cores: int = 1, gpus: int = 0, *, at: float = 0.0, performance: bool = False) -> Job:
    return Job(at, 0, cores, gpus, performance, 0.5, 0.5 if gpus else 0.0, 600.0)


def test_the_rules_are_those_of_the_preset() -> None:
    selector = {"selector": OperatorSettings().node_selector}
    assert SAVINGS.load(OperatorSettings).rules()._asdict() == SAVING._asdict() | selector


def test_the_weights_are_those_of_the_preset() -> None:
    gpu = WEIGHTS.gpu
    given = SAVINGS.load(ScoringSettings).weights()
    assert replace(given, gpu=given.gpu._replace(aliases=gpu.aliases)) == WEIGHTS


def test_a_pod_that_waits_wakes_a_node_and_starts_when_it_is_awake() -> None:
    fleet = Fleet(20, 0, MEASURED)
    jobs = [job(96, at=7200.0, performance=True) for _ in range(15)]
    done = run_case(fleet, jobs, Case("", "joulie-energy", sleep=True), 240)

    assert (done.admitted, done.waiting) == (15, 0)
    assert done.switched.wakes > 0
    assert 0 < done.wait_max_performance_s <= (WAKE_MINUTES + 2) * 60
    assert done.wait_max_s == done.wait_max_performance_s


def test_the_columns_within_a_minute_are_those_of_the_state() -> None:
    fleet = Fleet(4, 2, MEASURED)
    folded = FoldedCluster(fleet)
    operator = PlannedNodes(fleet, folded, SAVING)
    operator.step(0, [])
    for number, each in enumerate((job(8), job(16, 2), job(4, 8, performance=True)), 1):
        folded.arrived(number, each)
        folded.placed(number, each, node=4 if each.gpus == 2 else number)
    written = {name: column.copy() for name, column in folded.columns.columns.items()}
    folded.settle()

    again = TwinColumns.of_state(folded.cluster_state)
    for name in ("pods_cpu_w", "pods_gpu_standard_w", "pods_gpu_performance_w", "node_class"):
        assert np.array_equal(written[name], again.columns[name]), name
    assert written["pods_cpu_w"].any()


def test_cards_that_are_reported_are_held_while_their_pods_run() -> None:
    fleet = Fleet(0, 2, MEASURED)
    folded = FoldedCluster.under(CONDITIONS["cards are reported"], fleet)
    for number, each in enumerate((job(8, 3), job(8, 4)), 1):
        folded.placed(number, each, node=1)
    rows = np.array([1, 2])

    assert free_cards(folded.columns, rows).tolist() == [8, 1]
    assert sum(card.claims != {} for card in folded.cluster_state.gpus.values()) == 7

    folded.ended(1)

    assert free_cards(folded.columns, rows).tolist() == [8, 4]
    assert [uid for card in folded.cluster_state.gpus.values() for uid in card.claims] == ["2"] * 4
    again = TwinColumns.of_state(folded.cluster_state)
    for name in ("free_mb", "idle"):
        assert np.array_equal(folded.columns.cards.columns[name], again.cards.columns[name]), name


@pytest.mark.parametrize(("conditions", "counts"), [(USUAL, False), ("cards are reported", True)])
def test_lost_gpus_count_where_cards_are_reported(conditions: str, *, counts: bool) -> None:
    folded = FoldedCluster.under(CONDITIONS[conditions], Fleet(1, 2, MEASURED))

    found = score(pod_of(job(8, 1)), folded.columns, np.array([2, 3]), folded.now, 0, WEIGHTS)

    assert ("lost_gpus_w" in found.more) is counts


def test_kube_scheduler_adds_its_own_scores_to_those_of_the_extender() -> None:
    fleet = Fleet(3, 1, MEASURED)
    folded = FoldedCluster(fleet)
    extender = ExtenderScores(folded, WEIGHTS)
    PlannedNodes(fleet, folded, SAVING).step(0, [])
    fleet.place(1, job(48))
    folded.placed(1, job(48), 1)

    totals = extender.scores(fleet, job(8))

    assert int(np.argmax(totals)) == 1
    assert totals[1] > 1000 > totals[3]
    assert (extender.scores(fleet, job(200)) == -np.inf).all()


@pytest.mark.parametrize("policy", ["kube-default", "joulie-energy"])
def test_rows_with_sleep_name_the_planner_and_the_longest_wait(policy: str) -> None:
    asleep, awake = fair(Size(20, 3.0), 5, [Case("low", policy, sleep) for sleep in (True, False)])

    assert asleep.planner == "real"
    assert asleep.kwh < awake.kwh
    assert asleep.wait_max_s >= asleep.wait_p99_s
    assert asleep.work == pytest.approx(awake.work, rel=0.005)


def test_a_watcher_sees_every_job_come_run_and_end() -> None:
    fleet = Fleet(1, 0, MEASURED)
    folded = FoldedCluster(fleet)
    jobs = [job(96), job(96)]
    operator = PlannedNodes(fleet, folded, SAVING)
    done = run_queueing(
        fleet, jobs, ExtenderScores(folded, WEIGHTS), 30, Beside(Trends(1), operator, folded)
    )

    assert (done.admitted, done.running) == (2, 0)
    assert not folded.cluster_state.pods
    assert folded.cluster_state.nodes["n00000"].pods == 0


@pytest.mark.parametrize("conditions", [USUAL, "cards are reported"])
def test_pods_fill_the_units_of_cards_that_draw_little(conditions: str) -> None:
    """Four cards of 72 W that four pods share, with cores for eight pods, beside large cards."""
    nodes = [
        LoggedNode("large", 128, 8, 800.0, 2.0, 400.0),
        LoggedNode("shared", 32, 16, 150.0, 5.0, 18.0, physical_cards=4),
    ]
    fleet = LoggedFleet(nodes)
    folded = FoldedCluster.under(CONDITIONS[conditions], fleet)
    extender, chosen = ExtenderScores(folded, WEIGHTS), list[int]()
    for number in range(9):
        node = int(np.argmax(extender.scores(fleet, job(4, 1))))
        chosen.append(node)
        fleet.place(node, job(4, 1))
        folded.placed(number, job(4, 1), node)
        folded.settle()

    assert chosen == [1] * 8 + [0]
    folded.ended(3)
    fleet.release(1, job(4, 1))
    folded.settle()
    assert int(np.argmax(extender.scores(fleet, job(4, 1)))) == 1
