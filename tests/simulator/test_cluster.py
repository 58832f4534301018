from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import convert

from joulie_projections.demand import ask_of
from joulie_projections.pod import Pod
from joulie_simulator.cluster import SimCluster, SimNode, sample_size
from joulie_simulator.physics import IDLE_SHARE, power_w
from joulie_simulator.shapes import SHAPES, Shape, shape_of
from joulie_simulator.workload import Job, Workload

CPU = Shape(1, "cpu", "CPU", 2, 64, 200, 256)  # 400 W
GPU = Shape(1, "gpu", "CPU", 2, 64, 200, 256, "GPU", 4, 500)  # 400 + 2000 W


def job(cores: float = 1, gpus: int = 0, utilisation: float = 1.0, uid: str = "u") -> Job:
    return Job(uid, uid, "team", "", cores, 1, gpus, 10.0, utilisation)


# --- kube-scheduler's sample ------------------------------------------------------------------


@pytest.mark.parametrize(
    ("nodes", "sent"),
    [
        (1, 1),
        (99, 99),
        (100, 100),
        (300, 144),
        (500, 230),
        (1_000, 420),
        (2_000, 680),
        (3_000, 780),
        (4_000, 720),
        (5_000, 500),
        (10_000, 500),
        (15_000, 750),
    ],
)
def test_as_many_nodes_are_sent_as_kube_scheduler_sends(nodes: int, sent: int) -> None:
    assert sample_size(nodes) == sent


def test_the_window_moves_on_until_all_nodes_were_seen() -> None:
    cluster = SimCluster(300)
    windows = [cluster.sample(job()) for _ in range(3)]

    assert [len(window) for window in windows] == [144, 144, 144]
    assert set().union(*windows) == set(cluster.nodes)


def test_only_nodes_with_room_are_sent() -> None:
    cluster = SimCluster(50)

    assert all(cluster.nodes[name].shape.gpus for name in cluster.sample(job(gpus=1)))
    assert cluster.sample(job(cores=1000)) == []


def test_a_node_is_full_until_a_job_ends() -> None:
    node = SimNode("n", CPU)
    node.take(job(64))
    full = node.fits(job())
    node.release("u")

    assert (full, node.fits(job(64)), node.least_allocated()) == (False, True, 100)


# --- hardware ---------------------------------------------------------------------------------


def test_the_shares_of_the_hardware_add_up_to_all_of_it() -> None:
    assert sum(shape.share for shape in SHAPES) == 100


def test_a_hundred_nodes_in_a_row_have_the_exact_mix() -> None:
    for start in (0, 37, 4_900):
        counted = Counter(shape_of(start + number) for number in range(100))
        assert counted == {shape: shape.share for shape in SHAPES}


@pytest.mark.parametrize("size", [10, 20, 50, 200, 5_000])
def test_a_cluster_of_any_size_has_gpus_and_more_nodes_without(size: int) -> None:
    shapes = [node.shape for node in SimCluster(size).nodes.values()]
    with_gpus = sum(shape.gpus > 0 for shape in shapes)

    assert len(shapes) == size
    assert 0 < with_gpus < size / 2


# --- jobs -------------------------------------------------------------------------------------


def test_the_same_seed_gives_the_same_jobs() -> None:
    one, other, third = Workload(7, "a"), Workload(7, "a"), Workload(8, "a")
    jobs = [[workload.next() for _ in range(50)] for workload in (one, other, third)]

    assert jobs[0] == jobs[1] != jobs[2]
    assert one.pause(10) == other.pause(10)


def test_runs_of_the_same_seed_differ_in_nothing_but_names() -> None:
    [one, other] = [Workload(7, run).next() for run in ("a", "b")]

    assert one != other
    assert one._replace(uid="", name="") == other._replace(uid="", name="")


@settings(deadline=None, max_examples=50)
@given(st.integers(0, 10_000))
def test_what_a_manifest_asks_for_is_what_the_job_takes(seed: int) -> None:
    made = Workload(seed, "a").next()
    asked = ask_of(convert(made.manifest(), Pod))

    assert (asked.cpu_milli, asked.gpu_milli) == (made.cores * 1000, made.gpus * 1000)
    assert asked.memory_bytes == made.memory_gib * 2**30
    assert asked.workload == (made.annotation or "standard")


# --- physics ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("shape", "jobs", "cpu_cap", "gpu_cap", "watts"),
    [
        (CPU, [], None, None, 100),
        (GPU, [], None, None, 600),
        (CPU, [job(32)], None, None, 250),
        (CPU, [job(32, utilisation=0.5)], None, None, 175),
        (CPU, [job(64)], None, None, 400),
        (CPU, [job(64), job(64)], None, None, 400),
        (CPU, [job(64)], 60, None, 240),
        (CPU, [job(64)], 100, 10, 400),
        (GPU, [job(0, gpus=4)], None, 50, 100 + 1000),
        (GPU, [job(0, gpus=2)], None, None, 100 + 1250),
        (CPU, [job(64)], 0, None, 0),
    ],
    ids=[
        "idle",
        "idle with GPUs",
        "half the cores",
        "half busy",
        "flat out",
        "overbooked",
        "capped",
        "no GPU to cap",
        "capped GPUs",
        "half the GPUs",
        "off",
    ],
)
def test_a_node_draws(
    shape: Shape, jobs: list[Job], cpu_cap: int | None, gpu_cap: int | None, watts: float
) -> None:
    assert power_w(shape, jobs, cpu_cap, gpu_cap) == pytest.approx(watts)


loads = st.lists(st.builds(job, st.floats(0, 64), st.integers(0, 4), st.floats(0, 1)), max_size=6)
percent = st.none() | st.integers(0, 100)


@settings(deadline=None, max_examples=100)
@given(loads, percent, percent)
def test_a_node_draws_between_nothing_and_its_rating(
    jobs: list[Job], cpu_cap: int | None, gpu_cap: int | None
) -> None:
    drawn = power_w(GPU, jobs, cpu_cap, gpu_cap)

    assert 0 <= drawn <= 2400
    assert drawn <= power_w(GPU, jobs, None, None)


@settings(deadline=None, max_examples=100)
@given(loads, st.builds(job, st.floats(0, 64), st.integers(0, 4)))
def test_without_a_cap_more_work_never_draws_less(jobs: list[Job], more: Job) -> None:
    idle = IDLE_SHARE * 2400
    before, after = power_w(GPU, jobs, None, None), power_w(GPU, [*jobs, more], None, None)

    assert idle <= before <= after
