"""Decisions on state that the database lost are named, and are no mismatches."""

import pytest
from msgspec.structs import replace

from audit_kit import NAMES, RULES, RecordedLog
from bus_kit import NOON, ask, hardware, node_seen, power
from joulie_audit.questions.explain import explain_pod
from joulie_audit.replay.replay import ReplayReport, replay
from joulie_audit.replay.set_backs import CLOCKS_NS, Recorded, SetBacks
from joulie_bus.events import StateSetBack
from joulie_extender.catalogue.weights import Weights
from joulie_extender.decide.context import DecisionContext
from joulie_extender.decide.decide import decide_prioritize
from joulie_operator.planning.reconcile import PlanBasis, plan
from joulie_operator.plugins import load_policy
from joulie_projections.twin.columns import TwinColumns

pytestmark = pytest.mark.anyio


async def record_lost_state(recorded: RecordedLog, incarnation: str = "inc") -> int:
    """A decision and a plan at four positions after the returned one, which then get other facts
    than those that were decided on.
    """
    made = recorded.builder
    await made.declare()
    await made.facts(*map(node_seen, NAMES), *map(hardware, NAMES))
    shared, lost = made.position, made.position + 4
    columns = TwinColumns.of_state(made.cluster_state)
    moment = DecisionContext(columns, lost, 3, made.clock(), 0, incarnation)
    basis = PlanBasis(lost, made.clock())
    planned = plan(made.cluster_state, load_policy(RULES.policy), RULES, basis).made
    await made.publish(decide_prioritize(ask("lost"), NAMES, moment, Weights()))
    await made.facts(*(power(name, 150 + 90 * at) for at, name in enumerate(NAMES)))
    await made.facts(replace(planned, performance=planned.performance + 1))
    return shared


async def replayed(recorded: RecordedLog) -> ReplayReport:
    async with recorded.reading() as (history, facts):
        return await replay(history, facts)


def set_back(position: int, before: str = "inc", incarnation: str = "inc2") -> StateSetBack:
    return StateSetBack(incarnation=incarnation, before=before, position=position)


async def test_what_was_made_on_lost_state_is_named_apart_from_mismatches(
    recorded: RecordedLog,
) -> None:
    shared = await record_lost_state(recorded)
    await recorded.builder.publish(set_back(shared))

    done = await replayed(recorded)

    assert (done.mismatches, done.set_back) == (0, 2)
    assert [each.kind for each in done.lost] == ["score-differs", "plan-differs"]


@pytest.mark.parametrize(
    "found",
    [
        pytest.param([], id="nothing"),
        pytest.param([set_back(12)], id="a loss after the view"),
    ],
)
async def test_a_difference_that_no_loss_explains_is_a_mismatch(
    recorded: RecordedLog, found: list[StateSetBack]
) -> None:
    await record_lost_state(recorded)
    await recorded.builder.publish(*found)

    done = await replayed(recorded)

    assert (done.mismatches, done.set_back) == (2, 0)


async def test_an_explanation_notes_that_its_state_was_lost(recorded: RecordedLog) -> None:
    shared = await record_lost_state(recorded)
    await recorded.builder.publish(set_back(shared))

    async with recorded.reading() as (history, _):
        explained = explain_pod(history, "lost")

    assert "the database lost this state afterwards" in explained.view_text


def took_back(found: list[StateSetBack], incarnation: str, view: int, now: int = NOON) -> bool:
    return SetBacks([Recorded(NOON, each) for each in found]).took_back(incarnation, view, now)


def test_decisions_up_to_the_position_of_each_loss_remain() -> None:
    found = [set_back(100, "a", "b"), set_back(50, "b", "c")]

    assert [took_back(found, "a", view) for view in (50, 51)] == [False, True]
    assert [took_back(found, "b", view) for view in (50, 51)] == [False, True]
    assert not took_back(found, "c", 10**6)


def test_a_second_standby_may_lack_the_history_that_began_on_the_first() -> None:
    found = [set_back(50, "a", "b"), set_back(100, "a", "c")]

    assert [took_back(found, "a", view) for view in (100, 101)] == [False, True]
    assert [took_back(found, "b", view) for view in (50, 51)] == [False, True]


def test_a_rebuild_between_two_losses_takes_nothing_back() -> None:
    found = [set_back(100, "a", "b"), set_back(150, "rebuilt", "c")]

    assert [took_back(found, "b", view) for view in (150, 151)] == [False, True]
    assert [took_back(found, "a", view) for view in (100, 101)] == [False, True]


def test_decisions_of_versions_without_incarnations_are_compared() -> None:
    assert not took_back([set_back(1)], "", 10**6)


def test_a_loss_in_another_history_takes_nothing_back() -> None:
    assert not took_back([set_back(8, "other", "newest")], "a", 9)


async def test_what_was_made_before_an_empty_database_is_named_apart_from_mismatches(
    recorded: RecordedLog,
) -> None:
    await record_lost_state(recorded)
    await recorded.builder.publish(set_back(0, before=""))

    done = await replayed(recorded)

    assert (done.mismatches, done.set_back) == (0, 2)


def test_an_empty_database_takes_back_what_was_decided_until_it_began() -> None:
    found = [set_back(0, "", "b")]

    assert took_back(found, "a", 1)
    assert not took_back(found, "a", 0)
    assert not took_back(found, "b", 10**6)
    assert not took_back(found, "a rebuild of b", 10**6, NOON + CLOCKS_NS)


def test_a_second_empty_database_takes_back_what_the_first_one_began() -> None:
    found = [set_back(0, "", "b"), set_back(40, "b", "c"), set_back(0, "", "d")]

    assert [took_back(found, each, 1) for each in ("a", "b", "c", "d")] == [True, True, True, False]


def test_a_plan_is_lost_if_it_was_made_before_the_loss_beyond_its_position() -> None:
    losses = SetBacks([Recorded(NOON, set_back(50))])
    before, long_after = NOON - 1, NOON + CLOCKS_NS

    assert losses.took_back_plan(51, before)
    assert not losses.took_back_plan(50, before)
    assert not losses.took_back_plan(51, long_after)
