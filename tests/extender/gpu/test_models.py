"""Names of models match as words, and free cards are what no bound pod requests."""

import numpy as np
import pytest

from bus_kit import NOON, ask, hardware
from joulie_extender.gpu.free import asks_no_card, free_cards, free_cores_of
from joulie_extender.gpu.models import is_model, read, written
from joulie_extender.gpu.pool import Pool, PoolNode
from joulie_extender.gpu.shapes import Shape, hundredths
from joulie_projections.pods.load import Load
from joulie_projections.state.state import NodeState
from joulie_projections.twin.columns import TwinColumns

ALIASES = (("NVIDIA A100 SXM4", "BIG"), ("NVIDIA L4", "SMALL", "TINY"))
A100 = "NVIDIA-A100-SXM4-40GB"


@pytest.mark.parametrize(
    ("asked", "model", "matches"),
    [
        ("A100", A100, True),
        ("a100 40gb", A100, True),
        ("A100 80GB", A100, False),
        ("A10", A100, False),
        ("6000 RTX", "RTX 6000", False),
        ("", A100, False),
        ("SMALL", "TINY", True),
        ("SMALL", "BIG", False),
        ("NVIDIA L4", "SMALL", True),
        ("UNKNOWN", "OTHER", False),
    ],
)
def test_a_name_is_a_model_by_its_words_or_by_a_whole_alias(
    asked: str, model: str, matches: bool
) -> None:
    assert is_model(asked, model, ALIASES) is matches


def test_aliases_are_read_as_they_are_written() -> None:
    assert written(ALIASES) == "NVIDIA A100 SXM4\tBIG\nNVIDIA L4\tSMALL\tTINY"
    assert read(written(ALIASES)) == ALIASES
    assert read("") == ()


def test_cores_that_bound_pods_request_are_not_free() -> None:
    cores, cpu_w = np.array([96.0, 96.0, 96.0]), np.array([360.0, 360.0, 0.0])

    free = free_cores_of(cores, cpu_w, np.array([0.0, 90.0, 0.0]))

    assert free.tolist() == [96.0, 72.0, 0.0]


def test_a_pod_asks_for_a_card_by_any_of_its_requests() -> None:
    assert asks_no_card(ask())
    assert not asks_no_card(ask(gpus=0.5))


# --- a pool -------------------------------------------------------------------------------------

POOL = (PoolNode(8000, 1000, 2, "A"), PoolNode(4000, 500, 1, "B"), PoolNode(4000, 500, 0))
ROWS = np.arange(3)


@pytest.mark.parametrize(
    ("shape", "fits"),
    [
        (Shape(4000, 500, 0, 0), [True, True, True]),
        (Shape(4001, 500, 0, 0), [True, False, False]),
        (Shape(4000, 501, 0, 0), [True, False, False]),
        (Shape(1, 1, 1, 1000), [True, True, False]),
        (Shape(1, 1, 2, 1000), [True, False, False]),
        (Shape(1, 1, 1, 500, ("B",)), [False, True, False]),
        (Shape(1, 1, 0, 0, ("A", "B")), [True, True, False]),
    ],
)
def test_a_shape_fits_where_cores_memory_cards_and_model_do(shape: Shape, fits: list[bool]) -> None:
    assert Pool(POOL).fits(shape, ROWS).tolist() == fits


def test_what_a_shape_takes_is_no_longer_free() -> None:
    pool = Pool(POOL)
    pool.take(Shape(3000, 400, 1, 600), 0, [1])

    assert (pool.capacity, pool.allocated()) == (3000, 600)
    assert (pool.free_milli[0], pool.free_memory[0]) == (5000, 600)
    assert pool.rest.tolist() == [[1000, 400], [1000, 0], [0, 0]]
    assert pool.milli[0] == 8000
    assert not pool.fits(Shape(1, 1, 2, 500), ROWS)[0]


def test_hundredths_of_a_card_are_rounded_up() -> None:
    assert [hundredths(milli) for milli in (0, 1, 10, 11, 1000)] == [0, 1, 1, 2, 100]
    assert Shape(1, 1, 3, 250).gpu_milli == 750


def test_cards_that_bound_pods_request_are_not_free() -> None:
    nodes = {
        f"n{at}": NodeState(
            ordinal=at, at=NOON, present=True, hardware=hardware(f"n{at}", gpus=cards),
            load=Load(0, 0, standard, performance),
        )
        for at, (cards, standard, performance) in enumerate(
            [(4, 0, 0), (4, 1500, 1000), (4, 3000, 1000), (0, 0, 0)]
        )
    }  # fmt: skip
    columns = TwinColumns.of(nodes, 0)
    rows = np.array([columns.rows[name] for name in nodes])

    assert free_cards(columns, rows).tolist() == [4.0, 1.5, 0.0, 0.0]
    assert free_cards(columns, rows[3:]).tolist() == [0.0]
