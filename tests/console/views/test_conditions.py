"""What a person must know, by the state of the cluster and the warnings of the page."""

import inspect
import re
from typing import Any, get_args

import pytest
from msgspec.structs import replace

from bus_kit import NOON, eco, node_seen, plan_made, records
from joulie_answers.schema.responses import Part, Warning
from joulie_bus.events import AnyEvent
from joulie_console.views import conditions, health
from joulie_console.views.conditions import KINDS, MOST_NAMED, OF_PARTS, OTHERS, S, conditions_of
from joulie_projections.fold.sequence import fold
from joulie_projections.state.state import CLUSTER, ClusterState
from joulie_projections.state.state_changes import Draft


def cluster(*names: str) -> ClusterState:
    cluster_state = ClusterState()
    draft = Draft(cluster_state)
    facts: list[AnyEvent] = [*map(node_seen, names), plan_made("p1"), *map(eco, names)]
    fold(draft, records(*facts, step_s=0), 0)
    draft.commit()
    return cluster_state


def changed(state: ClusterState, name: str, **values: Any) -> None:
    state.nodes[name] = replace(state.nodes[name], **values)


def test_every_part_that_the_page_warns_of_has_a_kind() -> None:
    named = set(re.findall(r'part="(\w+)"', inspect.getsource(health)))

    assert set(get_args(Part)) == OF_PARTS.keys() == named
    assert set(OF_PARTS.values()) < set(KINDS)


def test_a_healthy_cluster_has_no_conditions() -> None:
    assert conditions_of([], cluster("n1", "n2"), NOON) == []


def test_warnings_of_one_kind_are_one_condition() -> None:
    warnings = [
        Warning(part="broker", level="warning", text="One."),
        Warning(part="ledger", level="warning", text="Two."),
        Warning(part="broker", level="serious", text="Three."),
    ]

    first, second = conditions_of(warnings, ClusterState(), NOON)

    assert (first.kind, first.level, first.text) == ("broker.silent", "serious", "One. Three.")
    assert (second.kind, second.level, second.text) == ("ledger.behind", "warning", "Two.")


def test_a_silent_operator_is_known_by_its_last_plan() -> None:
    state = cluster("n1")
    warning = Warning(part="operator", level="warning", text="Silent.")

    [found] = conditions_of([warning], state, NOON)

    assert found.since == str(state.planned_at // S)


@pytest.mark.parametrize(("waited_s", "is_lost"), [(899, False), (901, True)])
def test_a_node_that_does_not_wake_is_named_after_the_timeout_of_the_operator(
    waited_s: int, is_lost: bool
) -> None:
    state = cluster("n1", "n2")
    changed(state, "n1", power_state="waking", power_at=NOON)
    changed(state, "n2", power_state="asleep", power_at=NOON)

    found = conditions_of([], state, NOON + waited_s * S)

    named = [("node.not-woken", "n1", str(NOON // S))] if is_lost else []
    assert [(each.kind, each.subject, each.since) for each in found] == named


def test_a_node_that_refuses_its_caps_is_named_with_the_reason() -> None:
    state = cluster("n1", "n2")
    changed(state, "n1", refused_caps="no permission", caps_at=NOON)
    changed(state, "n2", refused_caps="gone", present=False)

    [found] = conditions_of([], state, NOON)

    assert (found.kind, found.subject, found.since) == ("caps.refused", "n1", str(NOON // S))
    assert found.text.endswith("no permission")


def test_a_missed_target_is_named_by_its_feed() -> None:
    state = cluster("n1")
    assert state.plan is not None
    inputs = {"target_w": 500.0, "drawn_w": 400.0, "target_w_a": 300.0, "drawn_w_a": 301.0}
    row = state.cluster[CLUSTER]
    state.cluster[CLUSTER] = replace(row, plan=replace(state.plan, inputs=inputs))

    [found] = conditions_of([], state, NOON)

    assert (found.kind, found.subject) == ("target.missed", "a")
    assert "301 W, more than their target of 300 W" in found.text


def test_of_very_many_nodes_some_are_named_and_the_others_counted() -> None:
    state = cluster(*(f"n{number:03}" for number in range(MOST_NAMED + 5)))
    for name in list(state.nodes):
        changed(state, name, refused_caps="no")

    found = conditions_of([], state, NOON)

    assert len(found) == MOST_NAMED + 1
    assert (found[-1].subject, found[-1].text) == (OTHERS, "5 more, of 105.")


def test_the_kinds_are_words_of_an_event_type() -> None:
    assert [kind for kind in conditions.KINDS if not re.fullmatch(r"[a-z]+\.[a-z-]+", kind)] == []
