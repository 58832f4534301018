"""Lives that begin with the state at a cut are those of the whole log from there on."""

from collections.abc import Iterator
from typing import Any, NamedTuple

from hypothesis import example, given, settings
from hypothesis import strategies as st

from bus_kit import bound, pending
from joulie_audit.ledger.pods_in_log import Lives
from joulie_bus.events import (
    Fact,
    NodeGone,
    NodeSeen,
    PlanMade,
    PodFinished,
    PodGone,
    SleepOrdered,
    WakeOrdered,
)
from joulie_projections.fold.registry import evolve
from joulie_projections.state.state import ClusterState
from joulie_projections.state.state_changes import Draft

MS = 1_000_000
STEP_MS = 1000
CHOICES = st.tuples(st.integers(0, 10), st.integers(0, 5), st.integers(0, 1))


def seen(node: str, *, ready: bool, schedulable: bool = True) -> NodeSeen:
    return NodeSeen(node=node, uid=node, ready=ready, schedulable=schedulable)


def plan(reserve: int) -> PlanMade:
    numbers: dict[str, float | str | bool] = {"policy": "p", "reserve": float(reserve)}
    return PlanMade(
        plan="p", policy="p", view=1, nodes=1, performance=0, changes=0, settings=numbers
    )


class Cluster:
    """Makes facts as a cluster does: orders to sleep go to nodes that are ready, no deleted pod
    comes back, and no node is deleted that ever had an order."""

    def __init__(self) -> None:
        self.ready: set[str] = set()
        self.seen: set[str] = set()
        self.ordered: set[str] = set()
        self.gone: set[str] = set()

    def facts(self, choices: list[tuple[int, int, int]]) -> Iterator[Fact]:
        for kind, number, node_number in choices:
            uid, node = f"pod-{number}", f"n{node_number}"
            fact = self._of_pod(kind, uid, node) if kind < 4 else self._of_node(kind, node, number)
            if fact is not None:
                yield fact

    def _of_pod(self, kind: int, uid: str, node: str) -> Fact | None:
        if uid in self.gone:
            return None
        if kind == 3:
            self.gone.add(uid)
        made = (pending(uid), bound(uid, node), PodFinished(uid=uid), PodGone(uid=uid))
        return made[kind]

    def _of_node(self, kind: int, node: str, number: int) -> Fact | None:
        if kind <= 6:
            self.seen.add(node)
            (self.ready.add if kind < 6 else self.ready.discard)(node)
            return seen(node, ready=kind < 6, schedulable=kind == 4)
        if kind == 7 and node not in self.ordered:
            self.ready.discard(node)
            self.seen.discard(node)
            return NodeGone(node=node)
        if kind == 8 and node in self.ready:
            self.ordered.add(node)
            return SleepOrdered(node=node, plan="p")
        if kind == 9 and node in self.ordered:
            return WakeOrdered(node=node, plan="p")
        return plan(number // 2) if kind == 10 else None


class Known(NamedTuple):
    """What a report of the time after the cut can see."""

    pods: Any
    off: Any
    takes_pods: Any
    changes: Any
    settings: Any
    sleeps: bool
    woken: Any


def after(lives: Lives, cut_ms: int) -> Known:
    # A pod that was asked for before the cut may have been so at any time: no wait counts then.
    pods = {
        uid: each._replace(asked_ms=max(each.asked_ms, cut_ms))
        for uid, each in lives.pods.items()
        if not each.end_ms or each.end_ms > cut_ms
    }
    off = {
        node: [each._replace(start_ms=max(each.start_ms, cut_ms)) for each in times]
        for node, found in lives.power.off.items()
        if (times := [each for each in found if not each.end_ms or each.end_ms > cut_ms])
    }
    changes = lives.available.changes
    # Of those up to the cut, the ones in force then.
    since = {max(each.since_ms, cut_ms): each.values for each in lives.settings}
    return Known(
        pods,
        off,
        {node for _, node, takes in _newest(changes, cut_ms) if takes},
        [each for each in changes if each.at_ms > cut_ms],
        since,
        lives.sleeps > 0,
        [at_ms for at_ms in lives.power.woken_ms if at_ms > cut_ms],
    )


def _newest(changes: Any, cut_ms: int) -> Any:
    return {each.node: each for each in changes if each.at_ms <= cut_ms}.values()


READY, NOT_READY, SLEEP = (5, 0, 0), (6, 0, 0), (8, 0, 0)


@settings(max_examples=300)
@example([READY, SLEEP, NOT_READY], 3)  # rare: off at the cut
@example([READY, SLEEP, NOT_READY], 2)  # rare: ordered to sleep at the cut
@given(st.lists(CHOICES, max_size=40), st.integers(0, 40))
def test_lives_begun_at_a_cut_are_those_of_the_whole_log(
    choices: list[tuple[int, int, int]], cut: int
) -> None:
    log = list(Cluster().facts(choices))
    whole, part, state = Lives(), Lives(), ClusterState()
    for number, fact in enumerate(log[:cut], 1):
        whole.fold(fact, number * STEP_MS)
        draft = Draft(state)
        evolve(draft, fact, number * STEP_MS * MS)
        draft.commit()
    cut_ms = len(log[:cut]) * STEP_MS
    part.begin(state, cut_ms)
    for number, fact in enumerate(log[cut:], len(log[:cut]) + 1):
        whole.fold(fact, number * STEP_MS)
        part.fold(fact, number * STEP_MS)

    assert after(part, cut_ms) == after(whole, cut_ms)
