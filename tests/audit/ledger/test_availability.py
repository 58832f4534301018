"""When nodes took pods, by the log."""

import pytest

from joulie_audit.ledger.pods_in_log import Lives
from joulie_bus.events import Fact, NodeGone, NodeSeen, SleepOrdered, WakeOrdered

SLEEP, WAKE = SleepOrdered(node="n1", plan="p"), WakeOrdered(node="n1", plan="p")
READY, NOT_READY = (NodeSeen(node="n1", uid="n1", ready=ready) for ready in (True, False))
CORDONED = NodeSeen(node="n1", uid="n1", ready=True, schedulable=False)


@pytest.mark.parametrize(
    ("facts", "changes"),
    [
        pytest.param([READY, READY], [(0, True)], id="a node that is ready"),
        pytest.param([NOT_READY, CORDONED], [], id="a node that was never ready"),
        pytest.param([READY, CORDONED, READY], [(0, True), (1, False), (2, True)], id="cordoned"),
        pytest.param([READY, SLEEP, NOT_READY], [(0, True), (1, False)], id="ordered to sleep"),
        pytest.param(
            [READY, SLEEP, NOT_READY, WAKE, NOT_READY, READY],
            [(0, True), (1, False), (5, True)],
            id="a node that boots takes no pods",
        ),
        pytest.param(
            [READY, SLEEP, WAKE], [(0, True), (1, False), (2, True)], id="woken before it slept"
        ),
        pytest.param(
            [READY, NodeGone(node="n1"), READY], [(0, True), (1, False), (2, True)], id="gone"
        ),
    ],
)
def test_a_node_takes_pods_while_it_is_ready_and_not_ordered_to_sleep(
    facts: list[Fact], changes: list[tuple[int, bool]]
) -> None:
    lives = Lives()
    for at_ms, fact in enumerate(facts):
        lives.fold(fact, at_ms)

    assert [(each.at_ms, each.takes_pods) for each in lives.available.changes] == changes
