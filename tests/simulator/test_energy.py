"""The energy experiment: job streams, power, and rows with energy and work."""

import json

import numpy as np
import pytest

from joulie_cli.main import main
from joulie_simulator.energy.fleet import MEASURED, PEER, Fleet
from joulie_simulator.energy.jobs import CLASSES, Job, reference_jobs
from joulie_simulator.energy.policies import BASELINE, POLICIES, chosen
from joulie_simulator.energy.simulation import Result, run_dropping
from joulie_simulator.energy.suites import FIGURES, Size, compat
from joulie_simulator.energy.trend import Trends, slope_weights

SMALL = Size(nodes=50, hours=2.0)
# Of the published experiment at seed 42: kWh, and jobs that were dropped.
PUBLISHED = {
    "reference-baseline": (127_454.9, 909_565),
    "reference-redesign": (119_236.1, 791_668),
    "reference-legacy": (121_169.8, 783_594),
    "joulie": (119_398.5, 782_227),
}


# Ours at the same seed and size, as docs/simulation.md shows them.
OURS = {"joulie-energy-r1": (127_020.3, 789_066), "joulie-energy-r7": (118_634.5, 668_642)}


def job(cores: int = 1, gpus: int = 0, *, at: float = 0.0, seconds: float = 60.0) -> Job:
    return Job(at, 0, cores, gpus, False, 0.5, 0.5 if gpus else 0.0, seconds)


def run(fleet: Fleet, *each: Job, minutes: int = 5, policy: str = BASELINE) -> Result:
    trends = Trends(fleet.size)
    return run_dropping(fleet, each, POLICIES[policy](trends), trends, minutes)


def test_an_empty_node_draws_its_idle_power() -> None:
    assert list(Fleet(1, 1, PEER).power_w) == [35.0, 825.0]
    assert list(Fleet(1, 1, MEASURED).power_w) == [350.0, 1400.0]


def test_half_of_a_mixed_fleet_are_newer_nodes_that_draw_less() -> None:
    fleet = Fleet(10, 4, MEASURED, mixed=True)

    assert list(fleet.power_w).count(350.0) == list(fleet.power_w).count(210.0) == 5
    assert list(fleet.power_w).count(1400.0) == 2
    assert list(fleet.power_w).count(840 * 0.7 + 560) == 2
    assert sorted(set(fleet.cpu_peak_w[:10])) == [420.0, 700.0]


def test_a_job_draws_by_its_share_of_the_cores_and_its_use_of_them() -> None:
    fleet = Fleet(1, 0, PEER)
    fleet.place(0, job(cores=48))
    fleet.update_power(0)

    assert fleet.power_w[0] == pytest.approx(70 + 700 * 0.7 * 0.5 * 0.5)

    fleet.release(0, job(cores=48))
    fleet.update_power(0)

    assert fleet.power_w[0] == 35.0


def test_a_job_that_fits_nowhere_is_dropped_and_does_no_work() -> None:
    done = run(Fleet(1, 0, PEER), job(cores=96, seconds=120), job(cores=1))

    assert (done.admitted, done.dropped) == (1, 1)
    assert done.work_kwh == pytest.approx(96 * 0.5 * 5.1 * 120 / 3_600_000)


def test_a_job_ends_after_its_minutes_and_frees_its_resources() -> None:
    first, second = job(cores=96, seconds=61), job(cores=96, at=120.0)

    assert run(Fleet(1, 0, PEER), first, second).dropped == 0
    assert run(Fleet(1, 0, PEER), first, second._replace(arrival_s=60.0)).dropped == 1


def test_work_counts_only_inside_the_window() -> None:
    long = run(Fleet(1, 0, PEER), job(cores=10, seconds=6000), minutes=5)
    short = run(Fleet(1, 0, PEER), job(cores=10, seconds=300), minutes=5)

    assert long.work_kwh == pytest.approx(short.work_kwh)
    assert (long.unfinished, short.unfinished) == (1, 1)


@pytest.mark.slow
@pytest.mark.parametrize("policy", POLICIES)
def test_every_job_is_admitted_or_dropped_and_no_node_is_overfull(policy: str) -> None:
    fleet, stream = Fleet(8, 2, PEER), reference_jobs(7, 1.0)
    trends = Trends(fleet.size)
    done = run_dropping(fleet, stream, POLICIES[policy](trends), trends, 60)

    assert done.admitted + done.dropped == sum(each.arrival_s <= 59 * 60 for each in stream)
    assert (fleet.free_cores >= 0).all()
    assert (fleet.free_cards >= 0).all()
    assert done.power_w.min() >= 8 * 35 + 2 * 25


def test_the_first_of_equal_nodes_is_chosen() -> None:
    fleet = Fleet(3, 0, PEER)

    assert chosen(fleet, job(), np.zeros(3)) == 0
    assert chosen(fleet, job(), np.array([0.0, 1.0, 1.0])) == 1
    assert chosen(fleet, job(cores=97), np.zeros(3)) == -1


def test_a_policy_with_a_reserve_keeps_cards_from_class_performance_alone() -> None:
    """7 % of 80 cards are reserved: the ninth job leaves 8 free, the tenth would leave none."""
    training = job(cores=16, gpus=8)._replace(performance=True, duration_s=600.0)
    jobs = [*[training] * 10, job(cores=16, gpus=8, seconds=600)]
    done = run(Fleet(0, 10, PEER), *jobs, policy="joulie-energy-r7")

    assert (done.admitted, done.dropped) == (10, 1)


def test_a_policy_with_a_reserve_refuses_many_cores_per_card_from_class_performance() -> None:
    many = job(cores=5, gpus=1)
    jobs = [many, many._replace(performance=True), many._replace(performance=True, gpus=2)]
    done = run(Fleet(0, 10, PEER), *jobs, policy="joulie-energy-r7")

    assert (done.admitted, done.dropped) == (2, 1)


def test_a_policy_with_a_reserve_keeps_cores_beside_free_cards() -> None:
    """Each of 8 free cards keeps 8 of 128 cores."""
    jobs = [job(cores=8, seconds=600)] * 9
    done = run(Fleet(0, 1, PEER), *jobs, policy="joulie-energy-r1")

    assert (done.admitted, done.dropped) == (8, 1)


def test_the_trend_of_constant_power_is_zero() -> None:
    trends = Trends(2)
    for watts in range(20):
        trends.sample(np.array([35.1, float(watts)]))

    assert trends.node_w_per_min[0] == pytest.approx(0.0, abs=1e-12)
    assert trends.node_w_per_min[1] == pytest.approx(1.0)
    assert len(slope_weights(1)) == 1


@pytest.mark.long
def test_the_stream_has_the_classes_in_their_shares() -> None:
    stream = reference_jobs(3, 6.0)
    kinds = [each.kind for each in stream]
    shares = np.bincount(kinds, minlength=len(CLASSES)) / len(kinds)

    assert shares == pytest.approx([each.share for each in CLASSES], abs=0.01)
    assert stream == sorted(stream, key=lambda each: each.arrival_s)


@pytest.mark.slow
def test_the_rows_of_a_suite_are_the_same_each_time() -> None:
    once, again = (compat(SMALL, 42, [BASELINE, "kube-default"]) for _ in range(2))

    assert once == again
    assert [row.policy for row in once] == [BASELINE, "kube-default"]


@pytest.mark.slow
def test_the_command_prints_energy_with_its_work(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["simulate", "energy", "--nodes", "50", "--hours", "1", "--seeds", "1"]
    words += ["--suite", "compat"]
    assert main([*words, "--policies", "joulie", "-o", "json"]) == 0
    rows = json.loads(capsys.readouterr().out)

    assert [set(row) for row in rows] == [set(FIGURES)] * 2
    assert all(row["work"] > 0 for row in rows)

    assert main([*words, "--policies", "joulie"]) == 0
    head, *lines = capsys.readouterr().out.splitlines()
    assert "work kWh" in head
    assert len(lines) == 2


def test_an_unknown_policy_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["simulate", "energy", "--policies", "greedy"]) == 2
    assert "'greedy' is not a policy" in capsys.readouterr().err
    assert main(["simulate", "energy", "--loads", "most"]) == 2
    assert "'most' is not a load" in capsys.readouterr().err
    assert main(["simulate", "energy", "--suite", "compat", "--sleep", "on"]) == 2
    assert "No node sleeps in the suite compat" in capsys.readouterr().err


@pytest.mark.drill
@pytest.mark.timeout(900)
@pytest.mark.parametrize("policy", [*PUBLISHED, *OURS])
def test_the_figures_of_compat_are_reproduced_to_the_digit(policy: str) -> None:
    (row,) = compat(Size(), 42, [policy])

    assert (round(row.kwh, 1), row.dropped) == (PUBLISHED | OURS)[policy]
