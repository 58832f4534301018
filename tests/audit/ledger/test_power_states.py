"""When nodes were off, by the log."""

import pytest

from joulie_audit.ledger.pods_in_log import Lives, Off
from joulie_bus.events import Fact, NodeSeen, SleepOrdered, WakeOrdered

SLEEP, WAKE = SleepOrdered(node="n1", plan="p"), WakeOrdered(node="n1", plan="p")
READY, NOT_READY = (NodeSeen(node="n1", uid="n1", ready=ready) for ready in (True, False))
CORDONED = NodeSeen(node="n1", uid="n1", ready=True, schedulable=False)


@pytest.mark.parametrize(
    ("facts", "off"),
    [
        pytest.param([SLEEP], [], id="an order switches nothing off"),
        pytest.param([SLEEP, CORDONED], [], id="nor does a cordon"),
        pytest.param([NOT_READY], [], id="a broken node is not asleep"),
        pytest.param([SLEEP, NOT_READY], [Off(1)], id="still off"),
        pytest.param([SLEEP, NOT_READY, NOT_READY, WAKE, READY], [Off(1, 3)], id="booting"),
        pytest.param([SLEEP, NOT_READY, READY], [Off(1, 2)], id="switched on by hand"),
        pytest.param(
            [SLEEP, NOT_READY, WAKE, NOT_READY, READY, SLEEP, NOT_READY],
            [Off(1, 2), Off(6)],
            id="twice",
        ),
    ],
)
def test_a_node_is_off_from_when_it_is_not_ready_to_the_order_to_wake_up(
    facts: list[Fact], off: list[Off]
) -> None:
    lives = Lives()
    for at_ms, fact in enumerate(facts):
        lives.fold(fact, at_ms)

    assert lives.power.off.get("n1", []) == off


@pytest.mark.parametrize(
    ("facts", "booted"),
    [
        pytest.param([SLEEP, NOT_READY, WAKE, NOT_READY, READY], [2], id="from order to ready"),
        pytest.param([SLEEP, NOT_READY, WAKE, NOT_READY], [], id="not yet"),
        pytest.param([SLEEP, WAKE, READY], [], id="it was not off"),
        pytest.param([SLEEP, NOT_READY, READY], [], id="switched on by hand"),
    ],
)
def test_a_node_boots_from_the_order_until_it_is_ready(
    facts: list[Fact], booted: list[int]
) -> None:
    lives = Lives()
    for at_ms, fact in enumerate(facts):
        lives.fold(fact, at_ms)

    assert lives.power.booted_ms == booted
