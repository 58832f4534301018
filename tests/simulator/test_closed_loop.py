"""What a period of a log has that a simulation of invented jobs has not."""

from math import inf

import pytest

from joulie_simulator.energy.closed_loop import Logged, LoggedPod, Timing, Use
from joulie_simulator.energy.logged_fleet import LoggedNode
from joulie_simulator.energy.product import SAVING, WEIGHTS, Product
from joulie_simulator.trial.past import PastRun, Task, run_of

HOUR_S, GIB = 3600.0, float(2**30)
PRODUCT, HALF = Product(SAVING, WEIGHTS), Use(0.5, 0.5)


def nodes(count: int = 4, memory: float = inf) -> list[LoggedNode]:
    return [LoggedNode(f"n{n}", 32, 0, 100.0, 5.0, 0.0, memory=memory) for n in range(count)]


def ran(
    wanted: list[LoggedPod],
    fleet: list[LoggedNode],
    timing: Timing | None = None,
    use: Use = HALF,
) -> PastRun:
    """Eight hours under the product, or under the default without a timing. A step is 14.4 s."""
    logged = Logged(fleet, wanted, 8 * HOUR_S, use)
    task = Task(logged, PRODUCT, 1, timing) if timing else Task(logged, None, 1)
    return run_of(task)[0]


def test_a_pod_waits_for_memory_too() -> None:
    wanted = [LoggedPod(0.0, 1, 0, False, HOUR_S, 3 * GIB) for _ in range(2)]

    together = ran(wanted, nodes(1, memory=8 * GIB))
    apart = ran(wanted, nodes(1, memory=4 * GIB))
    unknown = ran(wanted, nodes(1))

    assert (together.wait_max_s, unknown.wait_max_s) == (0, 0)
    assert apart.wait_max_s == pytest.approx(HOUR_S, abs=15)
    assert apart.placed == 2


def test_a_pod_that_needs_less_memory_is_placed_before_one_that_waits_for_more() -> None:
    big = LoggedPod(60.0, 1, 0, False, HOUR_S, 6 * GIB)
    small = LoggedPod(120.0, 1, 0, False, HOUR_S, 1 * GIB)
    first = LoggedPod(0.0, 1, 0, False, HOUR_S, 4 * GIB)

    found = ran([first, big, small], nodes(1, memory=8 * GIB))

    assert found.placed == 3
    assert found.wait_p50_s == 0


@pytest.mark.parametrize("wake_s", [60.0, 600.0])
def test_a_pod_waits_as_long_as_a_node_takes_to_wake_up(wake_s: float) -> None:
    wanted = [LoggedPod(4 * HOUR_S, 32, 0, False, HOUR_S) for _ in range(4)]

    found = ran(wanted, nodes(), Timing(wake_s))

    assert wake_s <= found.wait_max_s <= wake_s + 60


def test_no_node_sleeps_before_the_first_plan() -> None:
    early, late = (ran([], nodes(), Timing(first_plan_s=at * HOUR_S)) for at in (0, 4))
    idle_kwh = 4 * 0.1 * 8

    assert early.kwh < 0.5 * idle_kwh
    assert late.kwh == pytest.approx(early.kwh + (idle_kwh - early.kwh) / 2, rel=0.05)


def test_cores_and_cards_are_used_apart() -> None:
    node = [LoggedNode("n0", 32, 4, 100.0, 5.0, 200.0)]
    wanted = [LoggedPod(0.0, 8, 2, False, 8 * HOUR_S)]
    watts = 100 + 8 * 5 * 0.25 + 2 * 200 * 0.65 * 0.5

    assert ran(wanted, node, use=Use(0.25, 0.5)).kwh == pytest.approx(watts * 8 / 1000, rel=1e-3)
