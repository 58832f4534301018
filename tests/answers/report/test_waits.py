"""The report counts the time that pods waited for a node, as the simulated baseline does."""

from collections.abc import Sequence

from msgspec.structs import replace

from bus_kit import ask, power
from joulie_answers.report.form import Period
from joulie_answers.report.gather import Gathered
from joulie_answers.report.question import Measured, asked_of
from joulie_audit.ledger.pods_in_log import Lives
from joulie_bus.events import (
    Fact,
    NodeSeen,
    PlanMade,
    PodBound,
    PodGone,
    PodPending,
    SleepOrdered,
    WakeOrdered,
)
from joulie_extender.catalogue.weights import Weights
from joulie_projections.energy.report import Reading
from joulie_projections.energy.saved import LedgerState
from joulie_simulator.energy.counterfactual import Happened

HOUR_S = 3600
PLAN = PlanMade(plan="p", policy="static_partition", view=1, nodes=2, performance=0, changes=0)
Timed = tuple[float, Fact]  # seconds


def node(name: str, *, ready: bool = True) -> NodeSeen:
    return NodeSeen(node=name, uid=name, ready=ready, cpu_milli=8000, gpus=2)


def pending(uid: str, cores: int = 4, cards: int = 0) -> PodPending:
    return PodPending(pod=replace(ask(uid), cpu_milli=cores * 1000, gpu_milli=cards * 1000))


def pod(
    uid: str, name: str, asked: float, bound: float, cores: int = 4, cards: int = 0
) -> list[Timed]:
    wanted = pending(uid, cores, cards)
    return [(asked, wanted), (bound, PodBound(pod=wanted.pod, node=name))]


def happened(*facts: Timed, again: Sequence[str] = ()) -> Happened:
    """An hour of two nodes with eight cores and two cards each."""
    ordered: list[Timed] = sorted(
        [(0, node("n1")), (0, node("n2")), (0, PLAN), *facts], key=lambda each: each[0]
    )
    state, lives = LedgerState(), Lives()
    ends: list[Timed] = [(0.0, power("n1", 300)), (float(HOUR_S), power("n1", 300))]
    state.ledger.fold((fact, 1 + round(at * 1e9)) for at, fact in [*ordered, *ends])
    for at, fact in ordered:
        lives.fold(fact, 1 + round(at * 1000))
    period = Period(0, HOUR_S * 1000)
    got = Gathered(
        period, 0, Reading([]), state, lives, {}, {}, Weights(scoring="energy"), frozenset(again)
    )
    found = asked_of(got, *period, Measured(0)).question.happened
    assert found is not None
    return found


def waits(*facts: Timed, again: Sequence[str] = ()) -> list[float]:
    return [round(wait) for wait in happened(*facts, again=again).waits_s]


def test_a_pod_for_which_a_node_had_room_waited_for_the_scheduler() -> None:
    late = pod("a", "n1", 10, 40)

    assert waits(*late) == [0]
    assert happened(*late).of_scheduler == 1


def test_all_pods_of_a_burst_with_room_waited_for_the_scheduler() -> None:
    burst = [each for n in range(4) for each in pod(f"p{n}", f"n{1 + n // 2}", 10, 15)]

    assert waits(*burst) == [0, 0, 0, 0]


def test_a_pod_of_a_burst_whose_room_others_took_waited_for_a_node() -> None:
    burst = [each for n in range(4) for each in pod(f"p{n}", f"n{1 + n // 2}", 10, 15)]
    last = pod("last", "n1", 10, 600)

    assert waits(*burst, *last, (600, PodGone(uid="p0")))[-1] == 590


def test_a_pod_that_no_node_had_room_for_waited_for_a_node() -> None:
    both = pod("a", "n1", 1, 1, cores=8), pod("b", "n2", 1, 1, cores=8)
    facts = [each for one in both for each in one]

    assert waits(*facts, *pod("c", "n1", 10, 70), (70, PodGone(uid="a"))) == [0, 0, 60]


def test_a_pod_that_waited_for_cards_waited_for_a_node() -> None:
    both = [*pod("a", "n1", 1, 1, cards=2), *pod("b", "n2", 1, 1, cards=1)]

    assert waits(*both, *pod("c", "n1", 10, 70, 1, cards=2), (70, PodGone(uid="a"))) == [0, 0, 60]


def test_units_of_a_card_that_pods_share_by_time_are_room() -> None:
    units = replace(node("n1"), gpu_units=8)
    taken = [each for n in range(2) for each in pod(f"p{n}", "n1", 2, 2, 1, cards=1)]
    gone = node("n2", ready=False)
    shared: list[Timed] = [(1, units), (1, gone), *taken]

    assert waits(*shared, *pod("a", "n1", 10, 70, 1, cards=2)) == [0, 0, 0]
    assert waits(*shared, *pod("a", "n1", 10, 70, 1, cards=3)) == [0, 0, 60]


def test_a_node_that_sleeps_or_boots_has_no_room() -> None:
    asleep: list[Timed] = [
        (1, SleepOrdered(plan="p", node="n2")),
        (2, node("n2", ready=False)),
        (20, WakeOrdered(plan="p", node="n2")),
        (300, node("n2")),
    ]
    full = pod("a", "n1", 1, 1, cores=8)

    assert waits(*asleep, *full, *pod("b", "n2", 10, 300)) == [0, 290]
    assert waits(*asleep, *full, *pod("b", "n2", 30, 300)) == [0, 270]


def test_a_pod_that_all_nodes_refused_waited_for_a_node() -> None:
    """The filter was asked again, although a node had room."""
    assert waits(*pod("a", "n1", 10, 40), again=["a"]) == [30]


def test_a_pod_that_was_never_bound_waits_to_the_end() -> None:
    assert waits((600, pending("a"))) == [3000]
