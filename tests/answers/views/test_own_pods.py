"""Joulie's own pods keep a node of a small cluster awake; `joulie explain node` names them."""

import pytest

from joulie_answers.schema.responses import PodBrief
from joulie_answers.views.own_pods import own_pods


def pod(name: str, phase: str = "running", exempt: str = "") -> PodBrief:
    return PodBrief(
        uid=name,
        namespace="joulie-system",
        name=name,
        workload="standard",
        placement="general",
        rule="default",
        exempt=exempt,
        cores=0.25,
        memory_gib=0.1,
        gpus=0.0,
        phase=phase,  # type: ignore[arg-type]
        node="n1",
        bound_at_ms=1,
    )


@pytest.mark.parametrize(
    ("here", "named"),
    [
        ([pod("joulie-projector-0"), pod("train-0")], ["joulie-system/joulie-projector-0"]),
        ([pod("joulie-agent-x2", exempt="daemonset")], []),
        ([pod("joulie-test", phase="finished")], []),
        ([pod("train-0")], []),
    ],
)
def test_pods_of_joulie_that_run_and_are_of_no_daemonset_keep_a_node_awake(
    here: list[PodBrief], named: list[str]
) -> None:
    assert own_pods(here) == named
