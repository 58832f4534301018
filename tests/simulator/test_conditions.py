"""`joulie simulate energy --sensitivity`: what a saving by sleep depends on."""

import json

import numpy as np
import pytest

from joulie_cli.main import main
from joulie_simulator.energy.fleet import ASLEEP, CURVED, MEASURED, Asleep, Fleet
from joulie_simulator.energy.folded import FoldedCluster
from joulie_simulator.energy.jobs import Job
from joulie_simulator.energy.policies import POLICIES
from joulie_simulator.energy.product import SAVING, PlannedNodes
from joulie_simulator.energy.queueing import Beside, Outcome, run_queueing
from joulie_simulator.energy.suites import Case, run_case
from joulie_simulator.energy.switching.conditions import CONDITIONS, USUAL, Conditions, baseline_of
from joulie_simulator.energy.trend import Trends

COMMAND = ["simulate", "energy", "--nodes", "20", "--hours", "2", "--seeds", "1", "--loads", "low"]


def job(cores: int, gpus: int = 0, *, at: float = 0.0, minutes: int = 10) -> Job:
    return Job(at, 0, cores, gpus, True, 0.5, 0.5 if gpus else 0.0, minutes * 60.0)


def under(conditions: Conditions, fleet: Fleet, *jobs: Job, minutes: int = 240) -> Outcome:
    trends, folded = Trends(fleet.size), FoldedCluster(fleet)
    operator = PlannedNodes(fleet, folded, SAVING, conditions)
    policy = POLICIES["most-allocated"](trends)
    return run_queueing(fleet, jobs, policy, minutes, Beside(trends, operator, folded))


LATE = [job(96, at=7200.0, minutes=60) for _ in range(15)]


def test_every_condition_differs_from_the_usual_ones_in_one_thing() -> None:
    usual = CONDITIONS[USUAL]
    for name, each in CONDITIONS.items():
        changed = [a for a, b in zip(usual, each, strict=True) if a != b]
        assert len(changed) == (name != USUAL), name


def test_the_baseline_follows_the_idle_power_alone() -> None:
    assert {baseline_of(name) for name in CONDITIONS} == {
        USUAL,
        "idle 25 % of peak",
        "cards by a measured curve",
    }


def test_a_longer_boot_is_a_longer_wait_and_more_boot_energy() -> None:
    short, long = (
        under(Conditions(wake_minutes=n), Fleet(20, 0, MEASURED), *LATE) for n in (5, 15)
    )

    assert long.wait_max_performance_s == short.wait_max_performance_s + 600
    assert short.switched.wakes == long.switched.wakes > 0
    assert short.switched.boot_kwh == pytest.approx(short.switched.wakes * 5 * 350 / 60_000)
    assert long.switched.boot_kwh == pytest.approx(3 * short.switched.boot_kwh)


def test_nodes_that_do_not_come_back_are_counted_and_others_wake_instead() -> None:
    done = under(Conditions(lost_wakes=0.5), Fleet(30, 0, MEASURED), *LATE)

    assert done.switched.lost > 0
    assert done.admitted == len(LATE)
    assert under(Conditions(), Fleet(30, 0, MEASURED), *LATE).switched.lost == 0


@pytest.mark.parametrize(("name", "asleep"), [(USUAL, 8), ("only CPU nodes sleep", 0)])
def test_only_those_nodes_sleep(name: str, asleep: int) -> None:
    fleet = Fleet(20, 20, MEASURED)
    run_case(fleet, [], Case("", "joulie-energy", sleep=True, conditions=name), 120)

    assert (~fleet.awake[:20]).sum() > 8
    assert (~fleet.awake[20:]).sum() >= asleep
    assert asleep or fleet.awake[20:].all()


def test_a_sleeping_node_draws_what_the_conditions_name() -> None:
    fleet = Fleet(1, 1, MEASURED, Asleep(40.0, 200.0))
    fleet.set_asleep(np.arange(2), asleep=True)

    assert fleet.power_w.tolist() == [40.0, 200.0]
    assert Asleep(15.0, 80.0) == ASLEEP


def test_the_command_has_a_row_for_each_condition(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*COMMAND, "--sensitivity", "-o", "json"]) == 0
    rows = json.loads(capsys.readouterr().out)

    assert [(row["conditions"], row["policy"], row["sleep"]) for row in rows] == [
        (name, "joulie-energy", True) for name in CONDITIONS
    ]
    by_name = {row["conditions"]: row["kwh"] for row in rows}
    assert by_name["asleep 40 and 200 W"] > by_name[USUAL] > by_name["idle 25 % of peak"]


def test_its_table_names_the_conditions(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*COMMAND, "--sensitivity"]) == 0
    head, *lines = capsys.readouterr().out.splitlines()

    assert head.startswith("conditions")
    bases = [line for line in lines if "kube-default" in line]
    width = head.index("load")
    named = [line[:width].strip() for line in bases]
    assert named == [USUAL, "idle 25 % of peak", "cards by a measured curve"]
    assert len(lines) == len(CONDITIONS) + len(named)


@pytest.mark.parametrize(
    "words",
    [
        ["--sensitivity", "--idle", "peer"],
        ["--sensitivity", "--sleep", "off"],
        ["--sensitivity", "--suite", "compat"],
        ["--policies", "cluster-autoscaler", "--sleep", "off"],
        ["--policies", "cluster-autoscaler", "--suite", "compat"],
    ],
)
def test_what_cannot_be_combined_is_refused(
    words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*COMMAND, *words]) == 2
    assert "Nothing was simulated." in capsys.readouterr().err


def test_cards_by_a_curve_draw_most_above_the_line_at_a_part_of_their_work() -> None:
    line, curve = (Fleet(0, 1, idle) for idle in (MEASURED, CURVED))
    half, whole = job(8, 1)._replace(cpu_use=0.0), job(8, 1)._replace(cpu_use=0.0, gpu_use=1.0)

    more = [curve.dynamic_of(0, each) - line.dynamic_of(0, each) for each in (half, whole)]

    assert more == pytest.approx([430.2 - 297.5, 654.2 - 595.0], abs=0.1)
