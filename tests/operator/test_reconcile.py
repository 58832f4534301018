from typing import Any

import pytest
from msgspec.structs import replace

from joulie_bus.events import (
    CapsSet,
    DrainingBegun,
    PlanEvent,
    Profile,
    ProfileAssigned,
)
from joulie_bus.testing import NOON, hardware
from joulie_operator.policies import Candidate, Wanted
from joulie_operator.reconcile import Caps, candidates, is_eligible, plan, transition
from joulie_projections.world import NodeState

CAPS = Caps()
GPUS = hardware("n", gpus=8)
MANAGED = {"joulie.io/managed": "true"}
GONE = "the last performance pod is gone"
AGAIN = "performance is wanted again"


def node(**fields: Any) -> NodeState:
    """There, ready and ours, with GPUs."""
    usual = NodeState(
        ordinal=0,
        at=NOON,
        present=True,
        ready=True,
        schedulable=True,
        labels=MANAGED,
        hardware=GPUS,
    )
    return replace(usual, **fields)


def eco(**fields: Any) -> NodeState:
    return node(profile="eco", cpu_cap_pct=60, gpu_cap_pct=60, **fields)


def performance(**fields: Any) -> NodeState:
    return node(profile="performance", cpu_cap_pct=100, gpu_cap_pct=100, **fields)


def becomes(profile: Profile, because: str) -> ProfileAssigned:
    return ProfileAssigned(plan="p", node="n", profile=profile, because=because)


def capped(cpu: int, gpu: int | None = None) -> CapsSet:
    return CapsSet(plan="p", node="n", cpu_cap_pct=cpu, gpu_cap_pct=gpu)


def drains(pods: int) -> DrainingBegun:
    because = "eco is wanted, and performance pods still run here"
    return DrainingBegun(plan="p", node="n", performance_pods=pods, because=because)


WANTS_ECO, WANTS_PERFORMANCE = "the policy wants eco here", "the policy wants performance here"


@pytest.mark.parametrize(
    ("state", "wanted", "expected"),
    [
        (node(), "performance", [becomes("performance", WANTS_PERFORMANCE), capped(100, 100)]),
        (node(), "eco", [becomes("eco", WANTS_ECO), capped(60, 60)]),
        (node(performance_pods=1), "eco", [drains(1)]),
        (performance(), "performance", []),
        (performance(), "eco", [becomes("eco", WANTS_ECO), capped(60, 60)]),
        (performance(pods=9), "eco", [becomes("eco", WANTS_ECO), capped(60, 60)]),
        (performance(performance_pods=2), "eco", [drains(2)]),
        (performance(performance_pods=2), "performance", []),
        (performance(draining=True, performance_pods=1), "eco", []),
        (performance(draining=True), "eco", [becomes("eco", GONE), capped(60, 60)]),
        (
            performance(draining=True, performance_pods=1),
            "performance",
            [becomes("performance", AGAIN)],
        ),
        (eco(), "eco", []),
        (eco(performance_pods=1), "eco", []),
        (eco(), "performance", [becomes("performance", WANTS_PERFORMANCE), capped(100, 100)]),
    ],
    ids=[
        "new to performance",
        "new to eco",
        "new with pods drains",
        "performance stays",
        "performance to eco",
        "standard pods block nobody",
        "performance pods make it drain",
        "performance pods where they belong",
        "draining waits, caps untouched",
        "drained to eco",
        "draining is called back",
        "eco stays",
        "eco with a stray performance pod stays",
        "eco to performance",
    ],
)
def test_the_life_of_a_node(state: NodeState, wanted: Profile, expected: list[PlanEvent]) -> None:
    assert list(transition("p", "n", state, wanted, CAPS)) == expected


def test_a_node_without_gpus_gets_no_gpu_cap() -> None:
    plain = node(hardware=hardware("n"))

    assert list(transition("p", "n", plain, "eco", CAPS))[1:] == [capped(60)]


def test_a_node_of_unknown_hardware_gets_no_gpu_cap() -> None:
    assert list(transition("p", "n", node(hardware=None), "eco", CAPS))[1:] == [capped(60)]


def test_caps_that_were_changed_are_set_again() -> None:
    assert list(transition("p", "n", eco(), "eco", Caps(cpu_eco=70))) == [capped(70, 60)]


@pytest.mark.parametrize(
    ("state", "expected"),
    [
        (node(), True),
        (node(present=False), False),
        (node(ready=False), False),
        (node(schedulable=False), False),
        (node(labels={}), False),
        (node(labels={"joulie.io/managed": "false"}), False),
        (node(labels={**MANAGED, "joulie.io/reserved": "true"}), False),
        (node(labels={**MANAGED, "joulie.io/reserved": "false"}), True),
    ],
    ids=["fine", "gone", "not ready", "cordoned", "no label", "not managed", "reserved", "free"],
)
def test_only_nodes_that_are_ours_and_well_are_planned(state: NodeState, expected: bool) -> None:
    assert is_eligible(state, MANAGED) is expected


def test_an_empty_selector_takes_every_node() -> None:
    assert is_eligible(node(labels={}), {})


def test_gpus_count_as_much_as_cores() -> None:
    nodes = {
        "cpu": node(hardware=hardware("cpu", cores=192)),
        "gpu": node(hardware=hardware("gpu", cores=0, gpus=8)),
        "both": node(hardware=hardware("both", cores=96, gpus=8)),
        "guessed": node(hardware=None, cpu_milli=96_000),
        "cordoned": node(schedulable=False),
    }

    assert candidates(nodes, MANAGED) == [
        Candidate("both", "NVIDIA H100 SXM5", 0.75),
        Candidate("cpu", "AMD EPYC 9654", 0.5),
        Candidate("gpu", "NVIDIA H100 SXM5", 0.5),
        Candidate("guessed", "cpu", 0.25),
    ]


def test_a_plan_tells_what_it_rests_on_and_changes_nodes_in_order() -> None:
    wanted = Wanted({"b": "eco", "a": "performance"}, {"x": 1}, "so")
    made, changes = plan(wanted, {"a": node(), "b": eco()}, "static_partition", 41, CAPS)

    assert (made.plan, made.view, made.nodes, made.performance) == ("p41", 41, 2, 1)
    assert (made.changes, made.inputs, made.because) == (2, {"x": 1}, "so")
    assert [(change.TYPE, change.key) for change in changes] == [
        ("plan.profile-assigned", "a"),
        ("plan.caps-set", "a"),
    ]
