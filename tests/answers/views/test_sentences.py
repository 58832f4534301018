"""What happened is one sentence, with a subject, a reason and a full stop."""

from typing import Any

import pytest

from joulie_answers.schema.responses import Transition
from joulie_answers.views.plan_text import transition_of
from joulie_answers.views.sentences import transition_sentence
from joulie_bus.events import (
    CapsSet,
    DrainingBegun,
    EvictionOrdered,
    PlacementClosed,
    PlacementOpened,
    ProfileAssigned,
    Resized,
    ResizeOrdered,
    ResizeRefused,
    SleepOrdered,
    TransitionCompleted,
    WakeOrdered,
)
from joulie_bus.events.resizes import ContainerRequest

OF_NODE: dict[str, Any] = {"plan": "p1", "node": "n1"}
REQUESTS = (ContainerRequest(name="app", cpu_milli=500, memory_bytes=2**30),)
OF_POD: dict[str, Any] = {"node": "n1", "uid": "u", "pod": "team/web"}


@pytest.mark.parametrize(
    ("event", "sentence"),
    [
        (SleepOrdered(**OF_NODE, because="it is empty"), "n1 falls asleep: it is empty."),
        (WakeOrdered(**OF_NODE, because="pods wait"), "n1 wakes up: pods wait."),
        (EvictionOrdered(**OF_NODE, because="x"), "Pods are moved from n1: x."),
        (PlacementClosed(**OF_NODE), "n1 gets no more pods of class standard."),
        (PlacementOpened(**OF_NODE), "n1 gets pods of class standard again."),
        (ProfileAssigned(**OF_NODE, profile="eco", because="x"), "n1 becomes eco: x."),
        (
            TransitionCompleted(**OF_NODE, profile="eco"),
            "n1 becomes eco: the transition is complete.",
        ),
        (
            DrainingBegun(**OF_NODE, performance_pods=2, because="x"),
            "n1 gets no more pods of class performance, and becomes eco: x.",
        ),
        (CapsSet(**OF_NODE, cpu_cap_pct=60), "n1 gets caps: CPU 60 %, GPU none."),
        (CapsSet(**OF_NODE), "n1 has no cap any more."),
        (
            ResizeOrdered(
                **OF_POD,
                change="lower",
                original=REQUESTS,
                before=REQUESTS,
                after=REQUESTS,
                because="it uses less",
            ),
            "The requests of team/web on n1 are to change (lower): it uses less.",
        ),
        (
            Resized(**OF_POD, change="lower", after=REQUESTS),
            "The requests of team/web on n1 have changed (lower): it requests 0.5 cores, 1 GiB.",
        ),
        (
            ResizeRefused(**OF_POD, reason="scaled", because="an autoscaler sets them"),
            "The requests of team/web on n1 stay as they are (scaled): an autoscaler sets them.",
        ),
    ],
    ids=lambda each: getattr(each, "TYPE", ""),
)
def test_each_step_of_a_plan_is_a_sentence(event: Any, sentence: str) -> None:
    found = transition_of(event, 1, 0)

    assert found is not None
    assert found.text == sentence


def test_a_step_of_a_later_version_still_names_its_node() -> None:
    later = Transition(
        position=1, at_ms=0, plan="p", node="n1", kind="later", to="warm", because=""
    )

    assert transition_sentence(later) == "n1: warm."
