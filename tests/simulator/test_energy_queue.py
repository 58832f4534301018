"""The energy experiment with a queue and sleeping nodes: fair, trace, and the command's table."""

import json
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from joulie_cli.main import main
from joulie_simulator.energy.fleet import MEASURED, PEER, Fleet
from joulie_simulator.energy.folded import FoldedCluster
from joulie_simulator.energy.jobs import CLASSES, Job
from joulie_simulator.energy.policies import POLICIES
from joulie_simulator.energy.product import SAVING, PlannedNodes
from joulie_simulator.energy.queueing import Beside, Outcome, run_queueing
from joulie_simulator.energy.streams import Load, fair_jobs, kept_shares, trace_jobs
from joulie_simulator.energy.suites import (
    FIGURES,
    LOADS,
    QUEUE_POLICIES,
    Case,
    Row,
    Size,
    fair,
    trace,
)
from joulie_simulator.energy.switching.autoscaler import AUTOSCALERS
from joulie_simulator.energy.trend import Trends
from joulie_simulator.energy.waiting import Queue, Waiting
from joulie_simulator.plots import energy_plot, energy_table

QUICK_TO_SLEEP = SAVING._replace(policy_numbers="reserve=0,sleep_after_s=60,max_step=1")
SMALL = Size(nodes=50, hours=6.0)
COMMAND = ["simulate", "energy", "--nodes", "20", "--hours", "1", "--seeds", "1"]


def job(cores: int = 1, gpus: int = 0, *, at: float = 0.0, seconds: float = 60.0) -> Job:
    return Job(at, 0, cores, gpus, False, 0.5, 0.5 if gpus else 0.0, seconds)


def run(
    fleet: Fleet,
    *each: Job,
    minutes: int = 10,
    policy: str = "joulie-energy",
    sleeps: bool = False,
) -> Outcome:
    trends = Trends(fleet.size)
    jobs = sorted(each, key=lambda one: one.arrival_s)
    beside = Beside(trends)
    if sleeps:
        folded = FoldedCluster(fleet)
        beside = Beside(trends, PlannedNodes(fleet, folded, QUICK_TO_SLEEP), folded)
    return run_queueing(fleet, jobs, POLICIES[policy](trends), minutes, beside)


def row(policy: str, seed: int, kwh: float, work: float) -> Row:
    return Row("fair", "mid", policy, False, seed, kwh, work, kwh / work, 0, 0, 0.0, 0.0, 0)


def test_a_job_that_fits_nowhere_waits_until_another_ends() -> None:
    done = run(Fleet(1, 0, PEER), job(cores=96, seconds=120), job(cores=1))

    assert (done.admitted, done.waiting) == (2, 0)
    assert done.wait_p99_s == pytest.approx(119, abs=1)


def test_a_job_that_still_waits_counts_with_its_wait() -> None:
    done = run(Fleet(1, 0, PEER), job(cores=97))

    assert (done.admitted, done.waiting) == (0, 1)
    assert done.wait_p50_s == 600


def test_jobs_for_all_cards_of_a_node_that_wait_at_the_end_are_stuck() -> None:
    done = run(Fleet(0, 1, PEER), job(gpus=1, seconds=6000), job(gpus=8), job(gpus=8, at=60.0))

    assert (done.waiting, done.waiting_whole) == (2, 2)


def test_the_queue_tries_jobs_in_order_of_arrival_and_no_larger_one_after_a_failure() -> None:
    queue, tried = Queue(), list[tuple[int, int]]()
    for cores, gpus in ((4, 0), (64, 0), (96, 0), (64, 1), (8, 0)):
        queue.add(0, job(cores, gpus))

    def place(waiting: Waiting) -> bool:
        tried.append((waiting.job.cores, waiting.job.gpus))
        return waiting.job.cores < 64

    queue.offer(place)

    assert tried == [(4, 0), (64, 0), (8, 0)]
    assert len(queue) == 3


def test_a_soft_taint_keeps_jobs_without_cards_off_gpu_nodes_while_others_have_room() -> None:
    fleet = Fleet(1, 1, MEASURED)
    run(
        fleet,
        job(cores=8, gpus=4, seconds=6000),
        job(cores=64, seconds=6000),
        job(cores=64, seconds=6000),
        policy="most-allocated-taint",
    )

    assert list(fleet.jobs) == [1, 2]
    assert list(fleet.free_cores) == [32, 56]


def test_a_job_without_cards_stays_off_free_cards_while_a_cpu_node_has_room() -> None:
    fleet = Fleet(2, 1, MEASURED)
    run(fleet, job(cores=8, gpus=1, seconds=6000), job(cores=8, seconds=6000))

    assert list(fleet.jobs) == [1, 0, 1]


@given(
    asks=st.lists(
        st.tuples(
            st.integers(1, 96), st.sampled_from((0, 0, 1, 8)), st.integers(0, 20), st.integers(1, 9)
        ),
        max_size=30,
    ),
    policy=st.sampled_from([name for name in QUEUE_POLICIES if name not in AUTOSCALERS]),
    sleeps=st.booleans(),
    idle=st.sampled_from((PEER, MEASURED)),
)
def test_no_job_is_lost_and_the_parts_of_the_energy_add_up(
    asks: list[tuple[int, int, int, int]], policy: str, sleeps: bool, idle: Any
) -> None:
    fleet = Fleet(3, 2, idle)
    jobs = [job(cores, gpus, at=60.0 * at, seconds=60.0 * n) for cores, gpus, at, n in asks]
    done = run(fleet, *jobs, minutes=30, policy=policy, sleeps=sleeps)

    assert done.admitted + done.waiting == done.arrived == len(jobs)
    assert sum(done.parts) == pytest.approx(done.kwh)
    assert min(done.parts) >= -1e-9
    assert (fleet.free_cores >= 0).all()
    assert (fleet.free_cards >= 0).all()
    assert not fleet.jobs[~fleet.awake].any()
    if policy != "refuse-big":
        assert done.waiting == 0 or done.wait_p99_s > 0


@pytest.mark.drill
def test_cores_and_cards_have_the_chosen_load() -> None:
    hours, kept = 48.0, kept_shares(400, 100, Load(0.5, 0.4))
    jobs = [each for seed in (1, 2) for each in fair_jobs(seed, hours, kept)]
    cores = sum(each.cores * each.duration_s for each in jobs if not each.gpus)
    cards = sum(each.gpus * each.duration_s for each in jobs)

    assert cores / (2 * 400 * 96 * hours * 3600) == pytest.approx(0.5, rel=0.05)
    assert cards / (2 * 800 * hours * 3600) == pytest.approx(0.4, rel=0.10)
    assert {CLASSES[each.kind].name for each in jobs} == {each.name for each in CLASSES}


def test_the_pods_of_the_trace_request_the_load_of_gpus() -> None:
    jobs = trace_jobs(3, 24.0, 160, 0.54)
    used = sum(each.gpus * min(each.duration_s, 86_400 - each.arrival_s) for each in jobs)

    assert used / (160 * 86_400) == pytest.approx(0.54, rel=0.05)
    assert sum(not each.gpus for each in jobs) / len(jobs) == pytest.approx(1088 / 8152, abs=0.03)


@pytest.mark.slow
@pytest.mark.parametrize("suite", [fair, trace])
@pytest.mark.drill
def test_the_rows_of_a_queue_suite_are_the_same_each_time(suite: Any) -> None:
    cases = [Case("mid" if suite is fair else 0.54, policy, True) for policy in QUEUE_POLICIES]

    once, again = (suite(Size(nodes=25, hours=3.0), 42, cases) for _ in range(2))
    assert once == again
    assert all(each.dropped == 0 for each in once)


@pytest.mark.drill
@pytest.mark.parametrize("load", ["low", "mid"])
def test_policies_do_equal_work_and_the_canary_gets_no_figure(load: str) -> None:
    cases = [Case(load, policy, True) for policy in QUEUE_POLICIES if policy not in AUTOSCALERS]
    base, *others = fair(SMALL, 42, [Case(load, "kube-default", False), *cases])
    shown = {each.policy: energy_table.compared([each], [base]) for each in others}
    work = {each.policy: each.work / base.work for each in others}

    assert shown.pop("refuse-big") == "less work"
    assert work.pop("refuse-big") < 0.9
    assert np.allclose(list(work.values()), 1.0, atol=0.005)
    assert "less work" not in shown.values()


def test_the_table_shows_the_paired_interval_over_seeds() -> None:
    base = [row("kube-default", seed, 100.0 * seed, 50.0 * seed) for seed in (1, 2, 3)]
    ours = [row("joulie-energy", each.seed, each.kwh * part, each.work)
            for each, part in zip(base, (0.7, 0.8, 0.9), strict=True)]  # fmt: skip

    assert energy_table.compared(ours, base) == "-20.00 +- 24.84 %"
    head, (_, last) = energy_table.of([*base, *ours], "kube-default")
    assert "conditions" not in head
    assert len(head) == len(last)
    assert "joulie-energy" in last
    assert "166.7" in last
    assert "100.0" in last


def test_the_plot_has_a_line_and_a_point_for_each_policy() -> None:
    base = [
        row("kube-default", seed, 100.0, 50.0)._replace(power_w=(500.0,) * 60) for seed in (1, 2)
    ]
    ours = [each._replace(policy="joulie-energy", kwh=70.0) for each in base]
    drawn = ElementTree.fromstring(energy_plot.of([*base, *ours], "kube-default"))
    lines = drawn.findall("{*}polyline")
    points = [each for each in drawn.findall("{*}circle") if float(each.attrib["cx"]) > 500]

    assert len(lines) == 3  # and the diagonal
    assert [each.attrib["cx"] for each in points] == [points[0].attrib["cx"]] * 2
    assert float(points[0].attrib["cy"]) < float(points[1].attrib["cy"])


def test_no_circle_of_the_plot_reaches_over_the_edge_of_its_panel() -> None:
    base = row("kube-default", 1, 100.0, 50.0)._replace(power_w=(500.0,) * 60)
    ours = base._replace(policy="joulie-energy", kwh=40.0)
    drawn = ElementTree.fromstring(energy_plot.of([base, ours], "kube-default"))
    circles = [each for each in drawn.findall("{*}circle") if float(each.attrib["cx"]) > 500]
    heights = [float(each.attrib["cy"]) for each in circles]

    assert max(heights) - min(heights) < energy_plot.HEIGHT - 2 * 6  # radius and stroke


def test_a_policy_has_one_colour_and_sleep_is_a_dashed_line() -> None:
    awake = row("kube-default", 1, 100.0, 50.0)._replace(power_w=(500.0,) * 60)
    other = awake._replace(policy="joulie-energy")
    rows = [each._replace(sleep=sleep) for each in (awake, other) for sleep in (False, True)]
    drawn = ElementTree.fromstring(energy_plot.of(rows, "kube-default"))
    lines = [line for line in drawn.findall("{*}polyline") if line.attrib["stroke"] != "#999"]
    colours = [line.attrib["stroke"] for line in lines]

    assert colours[0] == colours[1] != colours[2] == colours[3]
    assert ["stroke-dasharray" in line.attrib for line in lines] == [False, True] * 2


def test_the_plot_is_written_to_a_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = [*COMMAND, "--loads", "low", "--policies", "joulie-energy", "--sleep", "on", "--idle"]
    assert main([*words, "peer", "--plot", str(tmp_path / "plot.svg")]) == 0
    assert "joulie-energy, with sleep" in (tmp_path / "plot.svg").read_text()
    assert len(capsys.readouterr().out.splitlines()) == 3

    assert main([*words, "peer", "--plot", str(tmp_path)]) == 2
    assert "Nothing was written" in capsys.readouterr().err


def test_the_suite_trace_takes_a_list_of_pods(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pods = tmp_path / "pods.csv"
    pods.write_text(
        "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,pod_phase,creation_time,"
        "deletion_time,scheduled_time\np,8000,8192,8,1000,,LS,Running,0,3600,0\n"
    )
    words = [*COMMAND, "--policies", "kube-default", "--sleep", "off", "--trace", str(pods)]
    assert main([*words, "--suite", "trace", "-o", "json"]) == 0
    (found,) = json.loads(capsys.readouterr().out)
    assert found["unfinished"] > 0

    assert main(words) == 2
    assert "--trace needs --suite trace" in capsys.readouterr().err
    assert main([*words, "--suite", "compat", "--idle", "peer"]) == 2


@pytest.mark.slow
@pytest.mark.parametrize("suite", ["fair", "trace"])
def test_the_command_prints_the_rows_that_were_asked_for(
    suite: str, capsys: pytest.CaptureFixture[str]
) -> None:
    words = [*COMMAND, "--suite", suite, "--loads", "low", "--policies", "joulie-energy"]
    assert main([*words, "--sleep", "both", "-o", "json"]) == 0
    rows = json.loads(capsys.readouterr().out)

    assert [(each["policy"], each["sleep"]) for each in rows] == [
        ("joulie-energy", False),
        ("joulie-energy", True),
    ]
    assert {tuple(each) for each in rows} == {FIGURES}

    assert main([*words, "--sleep", "on"]) == 0
    head, base, ours = capsys.readouterr().out.splitlines()
    assert "work kWh" in head
    assert base.split()[1:3] == ["kube-default", "off"]
    assert ours.split()[1:3] == ["joulie-energy", "on"]


@pytest.mark.drill
@pytest.mark.timeout(1800)
@pytest.mark.parametrize(("load", "most"), [("low", -0.45), ("mid", -0.22), ("high", -0.10)])
def test_packing_with_sleep_saves_energy_at_equal_work(load: str, most: float) -> None:
    cases = [Case(load, "kube-default", False), Case(load, "joulie-energy", True)]
    base, ours = fair(Size(nodes=500, hours=48.0), 42, cases)

    assert set(LOADS) == {"low", "mid", "high"}
    assert ours.kwh_per_work / base.kwh_per_work - 1 <= most
    assert ours.dropped == base.dropped == 0
