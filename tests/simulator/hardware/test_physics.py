import random
import statistics

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from joulie_projections.catalog_file import shipped_catalog
from joulie_simulator.hardware.physics import (
    SLOWEST,
    Caps,
    Draw,
    Load,
    ambient_c,
    cooling_w,
    day_factor,
    draw,
    reading_mw,
)
from joulie_simulator.hardware.shapes import A100, H100, L4, CardShape, Shape

CPU = Shape(1, "cpu", "CPU", 2, 64, 200, 100, 0.25, 256)  # 100 to 400 W
GPU = Shape(
    1, "gpu", "CPU", 2, 64, 200, 100, 0.25, 256, CardShape("GPU", 4, 500, 100, 50, 16_384, True)
)  # and 200 to 2000 W
COOL_C = 20.0
NO_CAPS = Caps()
HALF = 2 * 0.5 - 0.5**1.4


@pytest.mark.parametrize(
    ("shape", "load", "caps", "watts"),
    [
        (CPU, Load(), NO_CAPS, 100),
        (GPU, Load(), NO_CAPS, 300),
        (CPU, Load(32), NO_CAPS, 100 + 300 * HALF),
        (CPU, Load(64), NO_CAPS, 400),
        (CPU, Load(128), NO_CAPS, 400),
        (CPU, Load(64), Caps(60), 240),
        (CPU, Load(64), Caps(100, 10), 400),
        (GPU, Load(0, (1.0,) * 4), Caps(None, 50), 100 + 1000),
        (GPU, Load(0, (1.0, 1.0)), NO_CAPS, 100 + 1100),
        (CPU, Load(64), Caps(0), 100),
    ],
    ids=[
        "idle",
        "idle with cards",
        "half the cores",
        "flat out",
        "overbooked",
        "capped",
        "no cards to cap",
        "capped cards",
        "half the cards",
        "no cap takes away idling",
    ],
)
def test_the_power_of_a_node(shape: Shape, load: Load, caps: Caps, watts: float) -> None:
    assert draw(shape, load, caps, COOL_C).watts == pytest.approx(watts)


def test_a_card_with_a_cap_of_its_own_is_slower_and_the_others_are_not() -> None:
    flat_out = (1.0,) * 4
    drawn = draw(GPU, Load(0, flat_out, flat_out), Caps(each=(50, None, None, None)), COOL_C)
    assert drawn.watts == pytest.approx(100 + 250 + 3 * 500)
    (slow, *others) = [speed for _, speed in drawn.cards]
    assert slow < 1
    assert others == [1, 1, 1]


def test_a_measured_card_draws_by_its_curve_and_a_job_that_does_nothing_raises_its_power() -> None:
    assert H100.power is not None
    node = Shape(1, "gpu", "CPU", 2, 64, 200, 100, 0.25, 256, H100)

    def watts(*use: float) -> float:
        return draw(node, Load(0, use), NO_CAPS, COOL_C).gpu_w

    assert watts() == 8 * 73
    assert [watts(use) - 7 * 73 for use in (0.0, 0.1, 0.5, 1.0)] == [125, 199, 483, 692]
    assert watts(0.5, 0.5) > watts(1.0)


def test_the_curves_of_the_simulation_are_those_of_the_catalog() -> None:
    catalog = shipped_catalog()
    for cards in (H100, A100, L4):
        model = catalog.gpu(cards.model)
        assert model is not None
        measured = tuple(watts * 1000 for watts in model.measured_w or ())
        assert cards.figures.gpu_curve_mw == measured


def test_half_a_load_costs_more_than_half_the_watts() -> None:
    assert draw(CPU, Load(32), NO_CAPS, COOL_C).watts > 250


@pytest.mark.parametrize(
    ("caps", "cpu_speed", "gpu_speed"),
    [
        (NO_CAPS, 1, 1),
        (Caps(100, 100), 1, 1),
        (Caps(cpu_pct=62), (148 / 300) ** 0.5, 1),
        (Caps(gpu_pct=50), 1, (800 / 1800) ** 0.5),
        (Caps(0, 0), SLOWEST, SLOWEST),
    ],
    ids=["none", "loose", "CPU", "cards", "the floor"],
)
def test_a_cap_costs_speed_if_it_reduces_watts(
    caps: Caps, cpu_speed: float, gpu_speed: float
) -> None:
    found = draw(GPU, Load(64, (1.0,) * 4), caps, COOL_C)

    assert (found.cpu_speed, found.gpu_speed) == pytest.approx((cpu_speed, gpu_speed))


def test_a_cap_above_the_drawn_power_costs_no_speed() -> None:
    assert draw(CPU, Load(6), Caps(60), COOL_C) == draw(CPU, Load(6), NO_CAPS, COOL_C)


def test_fans_draw_more_in_a_warm_room() -> None:
    cool, warm = draw(CPU, Load(64), NO_CAPS, 22), draw(CPU, Load(64), NO_CAPS, 32)

    assert (cool.watts, warm.watts) == pytest.approx((400, 416))


def test_the_room_is_warmest_in_the_afternoon() -> None:
    by_hour = {hour: ambient_c(hour * 3600) for hour in range(48)}

    assert max(by_hour, key=lambda hour: by_hour[hour]) % 24 == 16
    assert (min(by_hour.values()), max(by_hour.values())) == pytest.approx((17, 29))


def test_cooling_draws_more_when_it_is_warm() -> None:
    assert (cooling_w(300, 22), cooling_w(300, 32)) == pytest.approx((100, 110))


def test_the_load_is_highest_in_the_afternoon_and_one_on_average() -> None:
    factors = [day_factor(minute * 60) for minute in range(1440)]

    assert statistics.mean(factors) == pytest.approx(1)
    assert (factors.index(min(factors)), factors.index(max(factors))) == (4 * 60, 16 * 60)


def test_the_noise_of_sensors_is_one_percent() -> None:
    noise = random.Random(1)
    readings = [reading_mw(400, noise) for _ in range(2000)]

    assert statistics.mean(readings) == pytest.approx(400_000, rel=0.001)
    assert statistics.stdev(readings) == pytest.approx(4_000, rel=0.1)


SAME = st.just(())  # all cards have one cap
use = st.lists(st.floats(0, 1), max_size=8).map(tuple)
loads = st.builds(Load, st.floats(0, 200), use, SAME)
percent = st.none() | st.integers(0, 100)
caps = st.builds(Caps, percent, percent, SAME)
rooms = st.floats(-10, 45)
lawful = settings(deadline=None, max_examples=100)


@lawful
@given(loads, caps, rooms)
def test_a_node_draws_between_idle_and_rated_power(load: Load, limits: Caps, room: float) -> None:
    idle, found, free = (
        draw(GPU, *it, room) for it in ((Load(), limits), (load, limits), (load, NO_CAPS))
    )

    assert idle.watts <= found.watts <= free.watts <= 2400 * 1.1
    assert SLOWEST <= min(found.cpu_speed, found.gpu_speed) <= 1


@lawful
@given(loads, loads, rooms)
def test_more_work_never_draws_less(one: Load, other: Load, room: float) -> None:
    both = Load(one.cores + other.cores, one.cards + other.cards)

    assert draw(GPU, one, NO_CAPS, room).watts <= draw(GPU, both, NO_CAPS, room).watts + 1e-9


@lawful
@given(loads, st.integers(0, 100), st.integers(0, 100))
def test_a_lower_cap_never_raises_speed_or_power(load: Load, one: int, other: int) -> None:
    low, high = min(one, other), max(one, other)
    slow, fast = (draw(GPU, load, Caps(at, at), COOL_C) for at in (low, high))

    assert isinstance(slow, Draw)
    pairs = zip(slow[:4], fast[:4], strict=True)
    assert all(a <= b for a, b in pairs if isinstance(a, float) and isinstance(b, float))
