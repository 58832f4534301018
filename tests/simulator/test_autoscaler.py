"""The comparator `cluster-autoscaler`: its rules on nodes that sleep and wake."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from joulie_simulator.energy.fleet import ASLEEP, MEASURED, Fleet, work_w
from joulie_simulator.energy.jobs import Job
from joulie_simulator.energy.queueing import Outcome
from joulie_simulator.energy.suites import Case, run_case
from joulie_simulator.energy.switching.autoscaler import AUTOSCALERS


def job(cores: int = 1, gpus: int = 0, *, at: float = 0.0, minutes: int = 10) -> Job:
    return Job(at, 0, cores, gpus, False, 0.5, 0.5 if gpus else 0.0, minutes * 60.0)


def run(fleet: Fleet, *jobs: Job, minutes: int, policy: str = "cluster-autoscaler") -> Outcome:
    return run_case(fleet, jobs, Case("", policy, sleep=True), minutes)


def test_nodes_that_are_unneeded_for_ten_minutes_are_switched_off() -> None:
    fleet = Fleet(3, 1, MEASURED)
    run(fleet, minutes=10)
    assert fleet.awake.all()

    fleet = Fleet(3, 1, MEASURED)
    run(fleet, minutes=11)
    assert not fleet.awake.any()
    assert fleet.power_w.tolist() == [ASLEEP.cpu_node_w] * 3 + [ASLEEP.gpu_node_w]


def test_pods_of_a_node_below_the_threshold_are_evicted_and_begin_again() -> None:
    """kube-scheduler spreads the two jobs; the node of one of them is removed."""
    each = job(24, minutes=60)
    fleet = Fleet(2, 0, MEASURED)
    done = run(fleet, each, each, minutes=40)

    assert (done.restarts, done.admitted, done.running) == (1, 2, 2)
    assert sorted(fleet.jobs.tolist()) == [0, 2]
    evicted_at = 40 - (done.work_kwh * 3_600_000 / work_w(each) - 40 * 60) / 60
    assert evicted_at == pytest.approx(11)  # what it did until then is no work


def test_pods_that_must_not_be_evicted_keep_their_node() -> None:
    fleet = Fleet(3, 0, MEASURED)
    each = job(24, minutes=60)
    done = run(fleet, each, each, minutes=40, policy="cluster-autoscaler-no-evict")

    assert done.restarts == 0
    assert sorted(fleet.jobs.tolist()) == [0, 1, 1]
    assert fleet.awake.sum() == 2


def test_a_node_at_the_threshold_or_without_room_elsewhere_is_kept() -> None:
    for cores in (48, 80):
        fleet = Fleet(2, 0, MEASURED)
        each = job(cores, minutes=60)
        assert run(fleet, each, each, minutes=40).restarts == 0


def test_pending_pods_wake_as_few_nodes_as_hold_them() -> None:
    late = [*(job(48, at=1200.0) for _ in range(4)), job(8, 2, at=1200.0)]
    done = run(Fleet(4, 2, MEASURED), *late, minutes=40)

    assert done.admitted == 5
    assert done.switched.wakes == 2  # a GPU node has room for two of the other pods
    assert done.wait_max_s == 300


def test_pods_without_cards_wake_gpu_nodes_when_no_cpu_node_is_left() -> None:
    late = [job(96, at=1200.0), job(96, at=1200.0)]
    done = run(Fleet(1, 1, MEASURED), *late, minutes=40)

    assert (done.admitted, done.switched.wakes) == (2, 2)


def test_nothing_is_removed_within_ten_minutes_of_an_addition() -> None:
    """The second pod wakes a node in minute 30: the first node, free since minute 27, stays."""
    jobs = [job(96, at=1200.0, minutes=2), job(96, at=1800.0, minutes=60)]
    fleet = Fleet(2, 0, MEASURED)
    run(fleet, *jobs, minutes=34)
    assert fleet.awake.sum() == 1

    late = [job(96, at=1200.0, minutes=2), job(97, at=1800.0, minutes=60)]
    fleet = Fleet(1, 1, MEASURED)
    run(fleet, *late, minutes=38)
    assert fleet.awake.all()  # a GPU node was added in minute 30
    fleet = Fleet(1, 1, MEASURED)
    run(fleet, *late, minutes=41)
    assert fleet.awake.tolist() == [False, True]


@pytest.mark.parametrize("policy", AUTOSCALERS)
@given(
    asks=st.lists(
        st.tuples(
            st.integers(1, 96),
            st.sampled_from((0, 0, 1, 8)),
            st.integers(0, 60),
            st.integers(1, 50),
        ),
        max_size=30,
    )
)
def test_no_job_is_lost_however_nodes_come_and_go(
    policy: str, asks: list[tuple[int, int, int, int]]
) -> None:
    fleet = Fleet(3, 2, MEASURED)
    jobs = [job(cores, gpus, at=60.0 * at, minutes=n) for cores, gpus, at, n in sorted(asks)]
    jobs.sort(key=lambda each: each.arrival_s)
    done = run(fleet, *jobs, minutes=90, policy=policy)

    assert done.admitted + done.waiting == done.arrived == len(jobs)
    assert sum(done.parts) == pytest.approx(done.kwh)
    assert min(done.parts) >= -1e-9
    assert done.work_kwh <= sum(work_w(each) * each.duration_s for each in jobs) / 3.6e6 + 1e-9
    assert (fleet.free_cores >= 0).all()
    assert (fleet.free_cards >= 0).all()
    assert not fleet.jobs[fleet.power_w <= np.where(fleet.cards > 0, *reversed(ASLEEP))].any()


def test_nodes_that_boot_draw_their_idle_power() -> None:
    done = run(Fleet(1, 0, MEASURED), job(96, at=1200.0), minutes=30)

    assert done.switched.boot_kwh == pytest.approx(5 * 350 / 60_000)
