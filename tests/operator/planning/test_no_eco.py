"""Without caps that are applied, no node becomes eco."""

from joulie_bus.events import NodeSeen, PodAsk, PodPending, ProfileAssigned
from joulie_operator.planning.policies import BUILT_IN
from joulie_operator.planning.reconcile import LoadedPolicy, Plan, PlanBasis, plan, recompute
from joulie_operator.planning.rules import Rules, rules_of, values_of
from joulie_projections.fold.registry import evolve
from joulie_projections.state.state import ClusterState
from joulie_projections.state.state_changes import Draft

NOW = 10**18
POLICY = LoadedPolicy(BUILT_IN["static_partition"])
NEVER = Rules(eco_without_caps=False, selector="")


def cluster(*pods: PodAsk) -> ClusterState:
    state = ClusterState()
    draft = Draft(state)
    for name in ("a", "b", "c", "d"):
        evolve(draft, NodeSeen(node=name, uid=name, cpu_milli=8000), NOW)
    for pod in pods:
        evolve(draft, PodPending(pod=pod), NOW)
    draft.commit()
    return state


def profiles(made: Plan) -> list[str]:
    found = [event for event in made.events if isinstance(event, ProfileAssigned)]
    return sorted(event.profile for event in found)


def test_no_node_becomes_eco_where_nothing_applies_caps() -> None:
    made = plan(cluster(), POLICY, NEVER, PlanBasis(1, NOW))

    assert profiles(made) == ["performance"] * 4
    assert made.made.inputs["nodes_that_apply_caps"] == 0


def test_the_setting_lets_nodes_become_eco_without_caps() -> None:
    made = plan(cluster(), POLICY, NEVER._replace(eco_without_caps=True), PlanBasis(1, NOW))

    assert profiles(made) == ["eco", "eco", "performance", "performance"]
    assert made.made.settings["eco_without_caps"] is True


def test_a_pod_that_runs_on_eco_nodes_only_gets_one() -> None:
    pod = PodAsk(uid="u", namespace="n", name="p", placement="eco-only")
    made = plan(cluster(pod), POLICY, NEVER, PlanBasis(1, NOW))

    assert profiles(made) == ["eco", "performance", "performance", "performance"]


def test_the_plan_is_recomputed_by_the_rule_that_it_recorded() -> None:
    state = cluster()
    made = plan(state, POLICY, NEVER, PlanBasis(1, NOW))

    assert rules_of(values_of(NEVER)) == NEVER
    assert recompute(made.made, state, POLICY) == made
    assert rules_of({}).eco_without_caps
