"""With eco_without_caps=false a node is eco only while its writer can set the caps."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bus_kit import bound, eco, hardware, node_seen, noon, records
from joulie_bus.events import (
    CapsMeasured,
    CapsSettable,
    Fact,
    NodeGone,
    PodAsk,
    PodPending,
    ProfileAssigned,
)
from joulie_operator.planning.policies import BUILT_IN, FOR_ECO_ONLY, NO_CAPS, NO_SLOT
from joulie_operator.planning.power.consent import SIGN_OF_LIFE_S
from joulie_operator.planning.reconcile import LoadedPolicy, Plan, PlanBasis, plan, recompute
from joulie_operator.planning.rules import Rules
from joulie_projections.fold.sequence import fold
from joulie_projections.state.state import ClusterState
from joulie_projections.state.state_changes import Draft

POLICY = LoadedPolicy(BUILT_IN["static_partition"])
ALL_ECO = Rules(eco_without_caps=False, static_hp_frac=0.0)
ENDED = CapsSettable(node="n1", because="the writer has ended")


def node(name: str, *, gpus: int = 0, caps: str = "enforce") -> list[Fact]:
    return [node_seen(name, gpus=gpus, caps=caps), hardware(name, gpus=gpus)]


def can(name: str, *kinds: str) -> CapsSettable:
    return CapsSettable(node=name, cpu="cpu" in kinds, gpu="gpu" in kinds)


def cluster(*facts: Fact) -> ClusterState:
    draft = Draft(state := ClusterState())
    fold(draft, records(*facts, step_s=0), 0)
    draft.commit()
    return state


def planned(*facts: Fact, rules: Rules = ALL_ECO, after_s: float = 0.0) -> Plan:
    state = cluster(*facts)
    made = plan(state, POLICY, rules, PlanBasis(1, noon(after_s)))
    assert recompute(made.made, state, POLICY) == made
    return made


def profiles(made: Plan) -> dict[str, str]:
    """Of the nodes that change."""
    return {each.node: each.profile for each in assigned(made)}


def assigned(made: Plan) -> list[ProfileAssigned]:
    return [each for each in made.events if isinstance(each, ProfileAssigned)]


def test_the_node_with_a_writer_becomes_eco_and_the_one_without_does_not() -> None:
    made = planned(*node("n1"), *node("n2"), can("n1", "cpu"))

    assert profiles(made) == {"n1": "eco", "n2": "performance"}
    assert made.made.inputs["nodes_that_apply_caps"] == 1
    assert made.made.because == "static_partition: 1 of 2 nodes supply performance"
    [why] = [each.because for each in assigned(made) if each.node == "n2"]
    assert why == f"performance is wanted; {NO_CAPS}"


@pytest.mark.parametrize(
    "facts",
    [
        pytest.param([*node("n1", caps="no"), can("n1", "cpu")], id="the node did not opt in"),
        pytest.param([*node("n1"), can("n1")], id="the writer can set no limit"),
        pytest.param([*node("n1"), can("n1", "gpu")], id="the writer cannot set what is ordered"),
        pytest.param([node_seen("n1", caps="enforce"), can("n1", "cpu")], id="nothing is ordered"),
        pytest.param([*node("n1"), can("n1", "cpu"), ENDED], id="the writer has ended"),
        pytest.param([*node("n1"), can("n2", "cpu")], id="the writer is another node's"),
        pytest.param([*node("n1", gpus=2), can("n1", "cpu")], id="the cards stay uncapped"),
        pytest.param(
            [*node("n1"), can("n1", "cpu"), NodeGone(node="n1"), *node("n1")],
            id="the node was removed and added again",
        ),
    ],
)
def test_a_node_whose_caps_would_not_be_applied_supplies_performance(facts: list[Fact]) -> None:
    made = planned(*facts, *node("n9"), can("n9", "cpu"))
    assert profiles(made) == {"n1": "performance", "n9": "eco"}


def test_all_limits_that_are_ordered_have_to_be_set() -> None:
    made = planned(*node("n1", gpus=2), can("n1", "cpu", "gpu"))
    assert profiles(made) == {"n1": "eco"}
    only_cpu = ALL_ECO._replace(gpu_eco_pct=None)
    assert profiles(planned(*node("n1", gpus=2), can("n1", "cpu"), rules=only_cpu)) == {"n1": "eco"}


def test_a_writer_that_was_silent_for_too_long_counts_no_more() -> None:
    facts = [*node("n1"), can("n1", "cpu")]
    assert profiles(planned(*facts, after_s=SIGN_OF_LIFE_S)) == {"n1": "eco"}
    assert profiles(planned(*facts, after_s=SIGN_OF_LIFE_S + 1)) == {"n1": "performance"}


@pytest.mark.parametrize("others", [[], [*node("n2"), can("n2", "cpu"), eco("n2")]])
def test_an_eco_node_whose_writer_ended_supplies_performance_again(others: list[Fact]) -> None:
    facts = [*node("n1"), can("n1", "cpu"), eco("n1"), *others]
    assert profiles(planned(*facts)) == {}
    assert profiles(planned(*facts, ENDED)) == {"n1": "performance"}


def test_a_draining_node_whose_writer_ended_drains_no_longer() -> None:
    pod = bound("p", "n1", performance=True)
    facts = [*node("n1"), can("n1", "cpu"), pod]
    first = planned(*facts)
    assert [each.TYPE for each in first.events] == ["plan.draining-begun"]
    assert profiles(planned(*facts, *first.events, ENDED)) == {"n1": "performance"}


def test_a_pod_that_runs_on_eco_nodes_only_gets_a_node_with_caps() -> None:
    waits = PodPending(pod=PodAsk(uid="u", namespace="n", name="p", placement="eco-only"))
    rules, whys = ALL_ECO._replace(static_hp_frac=1.0), set[str]()
    for capped in ("n1", "n2", "n3"):
        made = planned(
            *node("n1"), *node("n2"), *node("n3"), can(capped, "cpu"), waits, rules=rules
        )
        found = {each.node: each.because for each in assigned(made) if each.profile == "eco"}
        assert list(found) == [capped]
        whys.add(found[capped].rpartition("; ")[2])
    assert whys == {NO_SLOT, FOR_ECO_ONLY}


def test_a_cap_that_was_measured_not_to_save_makes_no_node_eco() -> None:
    rules = ALL_ECO._replace(policy_numbers="caps_where_measured=1")
    saves = CapsMeasured(
        workload="standard",
        low_permille=-90,
        mid_permille=-70,
        high_permille=-50,
        capped_pods=50,
        other_pods=50,
        from_ms=0,
        to_ms=1,
    )
    facts = [*node("n1"), can("n1", "cpu")]
    assert profiles(planned(*facts, rules=rules)) == {"n1": "performance"}
    assert profiles(planned(*facts, saves, rules=rules)) == {"n1": "eco"}


@given(
    st.lists(st.tuples(st.booleans(), st.sampled_from(["", "cpu", "gpu"])), min_size=1, max_size=8),
    st.floats(0, 1),
)
@settings(deadline=None, max_examples=60)
def test_no_other_node_is_eco_whatever_share_the_policy_asks_for(
    nodes: list[tuple[bool, str]], share: float
) -> None:
    facts: list[Fact] = []
    for number, (agrees, kind) in enumerate(nodes):
        facts += node(f"n{number}", caps="enforce" if agrees else "no")
        facts.append(can(f"n{number}", kind))
    rules = ALL_ECO._replace(static_hp_frac=share)
    made = planned(*facts, rules=rules)
    free = planned(*facts, rules=rules._replace(eco_without_caps=True))

    capped = {f"n{number}" for number, each in enumerate(nodes) if each == (True, "cpu")}
    found = {name for name, profile in profiles(made).items() if profile == "eco"}
    asked = {name for name, profile in profiles(free).items() if profile == "eco"}
    assert found == asked & capped
