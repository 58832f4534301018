"""What caps save, by the pods that finished on capped nodes and on others."""

import random
from collections.abc import Sequence

import pytest

from bus_kit import ask, hardware, node_seen
from joulie_audit.ledger.cap_effect import CappedLives, Finished, effect_of, finished_pods
from joulie_bus.events import CapsSet, Fact, PodBound, PodFinished
from joulie_projections.energy.intervals import Interval, NodeEnergy, PodEnergy
from joulie_projections.fold.registry import evolve
from joulie_projections.state.state import ClusterState
from joulie_projections.state.state_changes import Draft

HOUR_MS = 3_600_000


def pods(count: int, energy: float, *, capped: bool, group: str = "g") -> list[Finished]:
    draw = random.Random(count)
    return [
        Finished((group,), capped, round(energy * draw.uniform(0.9, 1.1))) for _ in range(count)
    ]


def test_a_saving_is_found_with_its_interval() -> None:
    found = effect_of("standard", [*pods(400, 9e9, capped=True), *pods(400, 1e10, capped=False)])

    assert found.change is not None
    low, mid, high = found.change
    assert low < mid < high < 0
    assert mid == pytest.approx(-0.1, abs=0.01)
    event = found.event(0, HOUR_MS)
    assert event is not None
    assert event.low_permille < event.mid_permille < event.high_permille < 0


def test_groups_are_compared_with_themselves_alone() -> None:
    """Small pods run on capped nodes and large ones elsewhere: caps change nothing."""
    found = effect_of(
        "standard",
        [
            *pods(300, 1e9, capped=True, group="small"),
            *pods(40, 1e9, capped=False, group="small"),
            *pods(40, 1e11, capped=True, group="large"),
            *pods(300, 1e11, capped=False, group="large"),
            *pods(300, 1e12, capped=True, group="only capped"),
        ],
    )

    assert found.change is not None
    assert found.change[0] < 0 < found.change[2]
    assert (found.capped_pods, found.other_pods) == (340, 340)


def test_too_few_pods_give_no_figure() -> None:
    found = effect_of("standard", [*pods(29, 1.0, capped=True), *pods(400, 9.0, capped=False)])

    assert found.change is None
    assert found.event(0, HOUR_MS) is None


def all_finished(found: CappedLives, intervals: Sequence[Interval]) -> dict[str, list[Finished]]:
    return finished_pods(found, intervals, 10 * HOUR_MS)


def lives(*facts: Fact) -> CappedLives:
    made = CappedLives()
    for number, fact in enumerate(facts):
        made.fold(fact, 1000 + number)
    return made


def capped(percent: int | None, node: str = "n1") -> CapsSet:
    return CapsSet(plan="p", node=node, cpu_cap_pct=percent)


def bound(uid: str, node: str = "n1") -> PodBound:
    return PodBound(pod=ask(uid), node=node)


def hour(*rows: PodEnergy, nodes: tuple[NodeEnergy, ...] = ()) -> Interval:
    return Interval("hour", 0, nodes, (), rows)


def energy(uid: str, node: str = "n1") -> PodEnergy:
    return PodEnergy(uid, "team", uid, "standard", node, pods_uj=3, idle_uj=2)


def test_the_caps_of_a_pod_are_those_of_its_node_while_it_runs() -> None:
    found = all_finished(
        lives(
            hardware("n1"),
            bound("before"),
            capped(60),
            bound("after"),
            PodFinished(uid="before"),
            PodFinished(uid="after"),
            capped(100),
            bound("last"),
            PodFinished(uid="last"),
        ),
        [hour(*map(energy, ("before", "after", "last")))],
    )["standard"]

    assert [(each.is_capped, each.energy_uj) for each in found] == [(True, 5), (False, 5)]


def test_pods_on_other_hardware_are_another_group() -> None:
    found = all_finished(
        lives(
            hardware("n1"),
            hardware("n2", gpus=8),
            bound("a"),
            bound("b", "n2"),
            PodFinished(uid="a"),
            PodFinished(uid="b"),
        ),
        [hour(energy("a"), energy("b", "n2"))],
    )["standard"]

    assert found[0].group != found[1].group


@pytest.mark.parametrize(
    "node",
    [
        pytest.param(NodeEnergy("n1", "", unknown_ms=1), id="a gap"),
        pytest.param(NodeEnergy("n1", "", modelled_uj=1), id="a model"),
    ],
)
def test_a_pod_whose_energy_is_not_measured_throughout_does_not_count(node: NodeEnergy) -> None:
    made = lives(bound("a"), PodFinished(uid="a"))

    assert all_finished(made, [hour(energy("a"))])["standard"]
    assert not all_finished(made, [hour(energy("a"), nodes=(node,))])


def test_a_pod_that_runs_or_began_before_the_period_does_not_count() -> None:
    made = lives(bound("a"), bound("b"), PodFinished(uid="b"))
    later = Interval("hour", HOUR_MS, (), (), [energy("b")])

    assert not all_finished(made, [hour(energy("a"))])
    assert not all_finished(made, [later])


@pytest.mark.parametrize(
    ("facts", "capped_pods"),
    [
        pytest.param([capped(60), bound("a")], [True], id="the caps did not change"),
        pytest.param([bound("a"), capped(60)], [], id="they changed, or may have"),
    ],
)
def test_a_pod_that_began_before_a_trim_counts_if_its_caps_did_not_change(
    facts: Sequence[Fact], capped_pods: list[bool]
) -> None:
    state, made = ClusterState(), CappedLives()
    for at_ms, fact in enumerate([node_seen("n1"), hardware("n1"), *facts], 1):
        draft = Draft(state)
        evolve(draft, fact, at_ms * 1_000_000)
        draft.commit()
    made.begin(state, 10)
    for fact in (bound("a"), PodFinished(uid="a")):  # a pod is seen again after a restart
        made.fold(fact, 20)

    found = all_finished(made, [hour(energy("a"))])["standard"]
    assert [each.is_capped for each in found] == capped_pods


def test_a_pod_that_ended_after_the_ledger_is_complete_does_not_count() -> None:
    made = lives(bound("a", "n1"), PodFinished(uid="a"))
    end_ms = made.pods["a"].end_ms

    assert finished_pods(made, [hour(energy("a"))], end_ms)["standard"]
    assert not finished_pods(made, [hour(energy("a"))], end_ms - 1)
