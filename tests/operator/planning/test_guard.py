import re
from pathlib import Path

import pytest

from bus_kit import NOON, SECOND
from joulie_bus.events import Profile
from joulie_operator.planning.guard import (
    AGAIN,
    BUSY,
    DWELLS,
    EMPTIED,
    EMPTY,
    OVERDUE,
    UNKNOWN,
    WAITS,
    WANTED,
    GuardInput,
    Hold,
    Stage,
    Transition,
    caps_profile,
    guard_input,
    next_transition,
    stage_of,
)
from joulie_operator.planning.node_states import transitions
from joulie_projections.state.state import NodeState

PAGE = Path(__file__).parents[3] / "docs" / "policies.md"
STAGES = "|".join(Stage)
ROW = re.compile(rf"^\| ({STAGES}) \| ({STAGES}) \| (.+) \|$", re.MULTILINE)
PERFORMANCE, DRAINING, ECO = Stage.PERFORMANCE, Stage.DRAINING, Stage.ECO


def node(
    profile: str = "", *, draining: bool = False, age_s: float = 0, pods: int = 0
) -> NodeState:
    """A node in its class for `age_s` at noon, with this number of performance pods."""
    since = NOON - int(age_s * SECOND)
    return NodeState(
        ordinal=0,
        at=since,
        profile=profile,
        draining=draining,
        class_at=since,
        performance_pods=pods,
    )


def test_the_table_of_the_page_has_the_transitions_of_the_code() -> None:
    listed = {Transition(Stage(a), Stage(b), why) for a, b, why in ROW.findall(PAGE.read_text())}

    assert transitions() == listed


@pytest.mark.parametrize(
    ("stage", "pods", "wanted", "expected"),
    [
        (Stage.UNPLANNED, None, "performance", Transition(Stage.UNPLANNED, PERFORMANCE, WANTED)),
        (Stage.UNPLANNED, 0, "eco", Transition(Stage.UNPLANNED, ECO, EMPTY)),
        (Stage.UNPLANNED, None, "eco", Hold(UNKNOWN)),
        (PERFORMANCE, 3, "performance", None),
        (PERFORMANCE, 0, "eco", Transition(PERFORMANCE, ECO, EMPTY)),
        (PERFORMANCE, 3, "eco", Transition(PERFORMANCE, DRAINING, BUSY)),
        (PERFORMANCE, None, "eco", Hold(UNKNOWN)),
        (DRAINING, 3, "eco", Hold(WAITS)),
        (DRAINING, 0, "eco", Transition(DRAINING, ECO, EMPTIED)),
        (DRAINING, None, "eco", Hold(UNKNOWN)),
        (DRAINING, 3, "performance", Transition(DRAINING, PERFORMANCE, AGAIN)),
        (ECO, 3, "eco", None),
        (ECO, None, "performance", Transition(ECO, PERFORMANCE, WANTED)),
    ],
)
def test_each_stage_has_its_next_transition(
    stage: Stage, pods: int | None, wanted: Profile, expected: Transition | Hold | None
) -> None:
    assert next_transition(GuardInput(stage, pods), wanted) == expected


def test_a_deadline_ends_draining_despite_running_pods() -> None:
    assert next_transition(GuardInput(DRAINING, 3, overdue=True), "eco") == Transition(
        DRAINING, ECO, OVERDUE
    )


def test_a_deadline_does_not_replace_knowledge_of_the_pods() -> None:
    assert next_transition(GuardInput(DRAINING, None, overdue=True), "eco") == Hold(UNKNOWN)


@pytest.mark.parametrize(("stage", "wanted"), [(PERFORMANCE, "eco"), (ECO, "performance")])
def test_a_class_lasts_for_its_dwell_time(stage: Stage, wanted: Profile) -> None:
    assert next_transition(GuardInput(stage, 0, dwells=True), wanted) == Hold(DWELLS)


@pytest.mark.parametrize(("pods", "wanted"), [(0, "eco"), (3, "performance")])
def test_draining_may_end_at_any_time(pods: int, wanted: Profile) -> None:
    transition = next_transition(GuardInput(DRAINING, pods, dwells=True), wanted)

    assert isinstance(transition, Transition)


@pytest.mark.parametrize(
    ("state", "stage"),
    [
        (node(), Stage.UNPLANNED),
        (node("performance"), PERFORMANCE),
        (node("performance", draining=True), DRAINING),
        (node(draining=True), DRAINING),
        (node("eco"), ECO),
    ],
)
def test_the_state_of_a_node_determines_its_stage(state: NodeState, stage: Stage) -> None:
    assert stage_of(state) == stage


@pytest.mark.parametrize(
    ("age_s", "deadline_s", "overdue"),
    [(59, 60, False), (60, 60, True), (1e6, 0, False)],
    ids=["before", "at the deadline", "no deadline"],
)
def test_a_draining_node_is_overdue_from_its_deadline_on(
    age_s: float, deadline_s: float, overdue: bool
) -> None:
    draining = node("performance", draining=True, age_s=age_s)
    facts = guard_input(draining, NOON, pods_known=True, deadline_s=deadline_s, dwell_s=0)

    assert facts.overdue is overdue


def test_a_node_that_is_not_draining_has_no_deadline() -> None:
    facts = guard_input(node("eco", age_s=99), NOON, pods_known=True, deadline_s=1, dwell_s=0)

    assert facts.overdue is False


@pytest.mark.parametrize(("age_s", "dwells"), [(0, True), (59, True), (60, False)])
def test_a_node_dwells_since_its_class_changed(age_s: float, dwells: bool) -> None:
    facts = guard_input(node("eco", age_s=age_s), NOON, pods_known=True, deadline_s=0, dwell_s=60)

    assert facts.dwells is dwells


def test_a_node_that_was_never_planned_does_not_dwell() -> None:
    new = NodeState(ordinal=0, at=NOON)

    assert not guard_input(new, NOON, pods_known=True, deadline_s=0, dwell_s=1e10).dwells


def test_unknown_pods_do_not_count_as_gone() -> None:
    facts = guard_input(node("eco"), NOON, pods_known=False, deadline_s=0, dwell_s=0)

    assert facts.performance_pods is None


@pytest.mark.parametrize(
    ("state", "expected"),
    [
        (node(), None),
        (node("performance"), "performance"),
        (node("performance", pods=2), "performance"),
        (node("performance", draining=True, age_s=99), None),
        (node("eco", age_s=4.9), None),
        (node("eco", age_s=5), "eco"),
        (node("eco", age_s=99, pods=1), None),
    ],
    ids=["unplanned", "performance", "busy", "draining", "just eco", "settled", "somebody came"],
)
def test_eco_caps_need_a_settled_class_and_no_performance_pods(
    state: NodeState, expected: str | None
) -> None:
    assert caps_profile(state, NOON, pods_known=True, settle_s=5) == expected


def test_eco_caps_need_known_pods() -> None:
    assert caps_profile(node("eco", age_s=99), NOON, pods_known=False, settle_s=5) is None
