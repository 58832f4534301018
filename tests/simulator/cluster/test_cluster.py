from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from joulie_simulator.cluster.cluster import SimCluster, SimNode, sample_size
from joulie_simulator.cluster.free_resources import FreeResources
from joulie_simulator.cluster.kube_arithmetic import Use, balanced, least_allocated, totals
from joulie_simulator.hardware.physics import Caps
from joulie_simulator.hardware.shapes import H100, L4, SHAPES, Shape, shape_of
from joulie_simulator.workload.workload import Job, Workload

CPU = Shape(1, "cpu", "CPU", 2, 64, 200, 100, 0.25, 256)
GPU = Shape(1, "gpu", "CPU", 2, 64, 200, 100, 0.25, 256, H100)
SHARED = Shape(1, "shared", "CPU", 2, 64, 200, 100, 0.25, 256, L4)  # each card by four pods


def job(cores: float = 1, gpus: int = 0, *, uid: str = "u", seconds: float = 10) -> Job:
    """A job with full utilisation and 1 GiB."""
    return Job(uid, uid, "team", "", cores, 1024, gpus, seconds, 1.0)


def node_of(shape: Shape) -> SimNode:
    """A single node without a cluster."""
    return SimNode("n", shape, FreeResources([shape]), 0)


def use(taken: int, total: int) -> Use:
    return Use(np.array([taken]), np.array([total]))


def test_a_cluster_has_room_for_a_job_while_an_awake_node_has() -> None:
    cluster = SimCluster(1)
    (node,) = cluster.nodes.values()

    assert [cluster.has_room_for(job(cores)) for cores in (1, 10_000)] == [True, False]
    node.set_power("waking")
    assert not cluster.has_room_for(job())


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


@pytest.mark.parametrize(("percentage", "sent"), [(10, 100), (50, 150), (100, 300)])
def test_a_configured_percentage_applies_above_a_hundred_nodes(percentage: int, sent: int) -> None:
    assert sample_size(300, percentage) == sent


def test_the_window_moves_until_all_nodes_were_sent() -> None:
    cluster = SimCluster(300)
    windows = [cluster.sample(job()) for _ in range(3)]

    assert [len(window) for window in windows] == [144, 144, 144]
    assert set().union(*windows) == set(cluster.nodes)


@settings(deadline=None, max_examples=50)
@given(st.integers(0, 1000), st.integers(1, 300))
def test_the_sample_equals_a_round_robin_search_for_enough_fitting_nodes(
    seed: int, size: int
) -> None:
    cluster, workload, at = SimCluster(size), Workload(seed, "run"), 0
    names, wanted = list(cluster.nodes), sample_size(size)
    free = {
        name: (node.shape.cores * 1000, node.shape.units) for name, node in cluster.nodes.items()
    }
    for _ in range(20):
        asked = workload.next()
        walk = [names[(at + step) % size] for step in range(size)]
        fitting = [
            n
            for n in walk
            if asked.milli <= free[n][0]
            and asked.gpus <= min(free[n][1], cluster.nodes[n].shape.gpus)
        ]
        found = cluster.sample(asked._replace(memory_mib=0))
        assert found == fitting[:wanted]

        at = names.index(found[-1]) + 1 if len(found) == wanted else at
        for name in found[:2]:
            cluster.nodes[name].take(asked._replace(uid=f"{asked.uid}-{name}", memory_mib=0), 0)
            free[name] = (free[name][0] - asked.milli, free[name][1] - asked.gpus)


def test_only_nodes_with_room_are_sent() -> None:
    cluster = SimCluster(50)

    assert all(cluster.nodes[name].shape.gpus for name in cluster.sample(job(gpus=1)))
    assert cluster.sample(job(cores=1000)) == []


# --- kube-scheduler's sum ---------------------------------------------------------------------


@pytest.mark.parametrize(
    ("cores", "mib", "score"),
    [(0, 0, 200), (96, 384 * 1024, 150), (192, 0, 50 + 50), (144, 192 * 1024, 50 + 75)],
    ids=["empty", "half of both", "all the cores", "uneven"],
)
def test_plugins_prefer_free_and_balanced_nodes(cores: float, mib: int, score: int) -> None:
    nothing = job(0)._replace(memory_mib=0)
    cluster = SimCluster(1)
    (name,) = cluster.nodes
    cluster.nodes[name].take(job(cores)._replace(memory_mib=mib), 0)

    assert cluster.plugin_scores([name], nothing) == {name: score}


@pytest.mark.parametrize(("cores", "mib"), [(96, 0), (0, 384 * 1024)])
def test_the_requests_of_the_pod_itself_count(cores: float, mib: int) -> None:
    cluster = SimCluster(1)
    (name,) = cluster.nodes
    half = job(cores)._replace(memory_mib=mib)

    assert cluster.plugin_scores([name], half) == {name: 75 + 75}


def test_every_division_is_an_integer_division() -> None:
    assert least_allocated(use(1, 3), use(1, 6)).tolist() == [(66 + 83) // 2] == [74]
    assert balanced(use(1, 3), use(0, 1)).tolist() == [83]


def test_a_point_of_the_extender_is_worth_ten_times_its_weight() -> None:
    added = totals({"a": 150, "b": 140, "c": 7}, {"a": 1, "b": 3, "stranger": 9}, weight=2)

    assert added == {"a": 170, "b": 200, "c": 7}


# --- jobs on nodes ----------------------------------------------------------------------------


def test_a_node_is_full_until_a_job_ends() -> None:
    cluster = SimCluster(1)
    (node,) = cluster.nodes.values()
    node.take(job(192), 0)
    full = cluster.sample(job())
    node.release("u", 5)

    assert (full, cluster.sample(job(192))) == ([], [node.name])


def test_a_job_gets_its_own_cards_and_frees_them_at_its_end() -> None:
    node = node_of(GPU)
    first = node.take(job(gpus=2, uid="a"), 0)
    second = node.take(job(gpus=1, uid="b")._replace(gpu_mb=5000), 0)
    back = node.release("a", 1)

    assert [(card.uuid, card.owner, card.allocated_mb) for card in [*first, *second, *back]] == [
        ("GPU-n-0", "a", 81_559),
        ("GPU-n-1", "a", 81_559),
        ("GPU-n-2", "b", 5000),
        ("GPU-n-0", "", 0),
        ("GPU-n-1", "", 0),
    ]
    assert node.free_cards == [0, 1, 3, 4, 5, 6, 7]


def test_pods_share_a_card_when_each_card_has_one() -> None:
    """As an agent reports it: the card of one pod names it, and the card of several is in use."""
    node = node_of(SHARED)
    seen = [card for uid in "abcde" for card in node.take(job(gpus=1, uid=uid), 0)]
    back = node.release("a", 1)

    assert [(card.uuid, card.owner, card.holder) for card in [*seen, *back]] == [
        ("GPU-n-0", "a", ""),
        ("GPU-n-1", "b", ""),
        ("GPU-n-2", "c", ""),
        ("GPU-n-3", "d", ""),
        ("GPU-n-0", "", "?"),
        ("GPU-n-0", "e", ""),
    ]
    assert node.free_cards == []


def test_a_node_with_shared_cards_takes_as_many_pods_as_it_has_shares() -> None:
    room = FreeResources([SHARED])
    fits = [len(room.fitting(job(gpus=gpus))) for gpus in (1, 4, 5)]
    for number in range(16):
        room.take(0, job(gpus=1, uid=str(number)))

    assert fits == [1, 1, 0]  # no pod gets two shares of one card
    assert len(room.fitting(job(gpus=1))) == 0


@pytest.mark.parametrize(("busy", "seconds"), [(0.5, 10), (0.8, 16)])
def test_pods_that_want_a_shared_card_at_the_same_time_wait_for_one_another(
    busy: float, seconds: float
) -> None:
    node = node_of(SHARED)
    node.take(job(gpus=4, uid="a")._replace(utilisation=busy), 0)
    node.take(job(gpus=4, uid="b")._replace(utilisation=busy), 0)
    end = node.first_end()

    assert end is not None
    assert end.at_s == pytest.approx(seconds)
    added_w = sum(node.card_watts().values()) - 4 * L4.idle_w
    assert added_w == pytest.approx(4 * L4.added_w(min(1.0, 2 * busy)))


def test_a_job_ends_when_its_work_is_done() -> None:
    node = node_of(CPU)
    node.take(job(seconds=10), 100)
    end = node.first_end()

    assert end is not None
    assert end.uid == "u"
    assert end.at_s == pytest.approx(110)


def test_a_cap_prolongs_the_remaining_work() -> None:
    node = node_of(CPU)
    node.take(job(64, seconds=100), 0)
    changed = node.cap(Caps(cpu_pct=40), 50)
    end = node.first_end()

    # 60 of 300 W above idle are left: a fifth of the power, and its square root of the speed.
    assert changed
    assert end is not None
    assert end.at_s == pytest.approx(50 + 50 / 0.2**0.5)


def test_the_same_cap_again_changes_nothing() -> None:
    node = node_of(CPU)

    assert (node.cap(Caps(40), 1), node.cap(Caps(40), 2)) == (True, False)


def test_only_the_newest_forecast_of_a_node_counts() -> None:
    node = node_of(CPU)
    node.take(job(seconds=10), 0)
    first, second = node.first_end(), node.first_end()

    assert first is not None
    assert second is not None
    assert node.turn == second.turn != first.turn


# --- hardware ---------------------------------------------------------------------------------


def test_the_shares_of_the_shapes_add_up_to_a_hundred() -> None:
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


@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: shape.prefix)
def test_discovered_hardware_matches_its_shape(shape: Shape) -> None:
    found = shape.discovered("n")

    assert 0 < found.cpu_min_mw_per_socket < found.cpu_max_mw_per_socket
    assert (found.gpu_min_mw < found.gpu_max_mw) == (found.gpu_count > 0)
