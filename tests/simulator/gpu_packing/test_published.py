"""`simulate gpus --published`: the method, its policies and the bound."""

from pathlib import Path

import pytest

from joulie_bus.errors import BadTrace
from joulie_extender.gpu.pool import Pool, PoolNode
from joulie_extender.gpu.shapes import Shape
from joulie_simulator.gpu_packing.card_watts import watts_of
from joulie_simulator.gpu_packing.published import LEVELS, Row, bounds, filled, misfit, pool_of
from joulie_simulator.gpu_packing.published_policies import POLICIES
from joulie_simulator.trace_file import shapes_of

G2 = PoolNode(96_000, 393_216, 8, "G2")
T4 = PoolNode(104_000, 524_288, 2, "T4")
NODES = [G2] * 6 + [T4] * 6
PODS = (
    [Shape(11_000, 30_000, 1, 1000)] * 10
    + [Shape(4000, 15_000, 1, 810)] * 4
    + [Shape(24_000, 30_000, 1, 470)] * 3
    + [Shape(64_000, 200_000, 8, 1000)]
    + [Shape(8000, 15_000, 0, 0)] * 3
)


def rows_of(name: str, pods: list[Shape], nodes: list[PoolNode], seed: int = 1) -> list[Row]:
    pool = Pool(nodes)
    return filled(name, POLICIES[name](pool, pods, seed), pool, pods, seed)


@pytest.mark.parametrize("name", POLICIES)
def test_every_policy_gives_a_row_for_each_level_and_none_exceeds_the_bound(name: str) -> None:
    rows = rows_of(name, PODS, NODES)
    most = bounds(Pool(NODES), PODS, [1])

    assert [row.arrived for row in rows] == list(LEVELS)
    for row in rows:
        assert 0 < row.allocated <= most[row.arrived] + 0.01
        assert row.watts > 0
    assert rows == rows_of(name, PODS, NODES)  # the same seed gives the same rows


def test_nodes_without_gpus_take_no_part() -> None:
    assert pool_of([PoolNode(32_000, 1024, 0), T4]).nodes == (T4,)


def test_a_pod_that_does_not_fit_is_dropped_and_counts_as_arrived() -> None:
    too_large = [Shape(200_000, 1024, 1, 1000)]

    assert [row.allocated for row in rows_of("fgd", too_large, NODES)] == [0.0] * len(LEVELS)


@pytest.mark.parametrize("name", POLICIES)
def test_the_models_of_a_pod_are_obeyed(name: str) -> None:
    only_t4 = [Shape(1000, 1024, 1, 1000, ("T4",))]
    share = 100 * 12 / 60  # all cards of the T4 nodes

    assert rows_of(name, only_t4, NODES)[-1].allocated == pytest.approx(share)


def test_power_counts_cards_in_use_and_sockets() -> None:
    pool = Pool([T4])
    assert watts_of(pool).tolist() == [4 * 15 + 2 * 10]
    pool.take(Shape(33_000, 1024, 1, 500), 0, [0])
    assert watts_of(pool).tolist() == [2 * 15 + 2 * 120 + 10 + 70]


def test_joulie_packs_better_than_kube_scheduler() -> None:
    ours, theirs = rows_of("joulie", PODS, NODES * 4), rows_of("kube-default", PODS, NODES * 4)

    assert ours[3].allocated > theirs[3].allocated


def test_a_list_may_stop_at_gpu_milli(tmp_path: Path) -> None:
    file = tmp_path / "pods.csv"
    file.write_text("name,cpu_milli,memory_mib,num_gpu,gpu_milli\na,1000,2048,1,460\nb,500,1,0,0\n")

    assert shapes_of(file) == [Shape(1000, 2048, 1, 460), Shape(500, 1, 0, 0)]


def test_allowed_models_are_read(tmp_path: Path) -> None:
    file = tmp_path / "pods.csv"
    file.write_text("cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec\n1000,2048,1,1000,T4|P100\n")

    assert shapes_of(file) == [Shape(1000, 2048, 1, 1000, ("P100", "T4"))]


@pytest.mark.parametrize("milli", ["0", "1001", "-5"])
def test_a_share_that_is_no_part_of_a_card_is_refused_with_its_line(
    milli: str, tmp_path: Path
) -> None:
    file = tmp_path / "pods.csv"
    file.write_text(f"cpu_milli,memory_mib,num_gpu,gpu_milli\n1000,2048,1,{milli}\n")

    with pytest.raises(BadTrace, match=r"line 2.*milli of a card"):
        shapes_of(file)


def test_what_cannot_be_filled_is_named() -> None:
    assert "node" in misfit(PODS, Pool([PoolNode(1000, 1024, 0)]))
    assert "pod" in misfit([Shape(1000, 1, 0, 0)], Pool(NODES))
    assert not misfit(PODS, Pool(NODES))


def test_savings_draw_less_than_fgd_while_half_of_the_gpus_are_asked_for_and_pack_as_well() -> None:
    nodes = [PoolNode(96_000, 393_216, 8, "G3")] * 8 + [T4] * 32
    small = [pod for pod in PODS if pod.cards < 8]
    fgd, savings = (rows_of(name, small, nodes) for name in ("fgd", "joulie-savings"))

    half, full = LEVELS.index(50), LEVELS.index(100)
    assert savings[half].allocated == fgd[half].allocated
    assert savings[half].watts < 0.9 * fgd[half].watts
    assert savings[full].allocated >= fgd[full].allocated - 0.5
