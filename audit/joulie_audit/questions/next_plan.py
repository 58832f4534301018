"""What the operator would plan next, from the newest facts and the settings of its newest plan."""

from typing import NamedTuple

from joulie_bus.events import PlanMade
from joulie_operator.planning.eligible import candidates, is_eligible, selector
from joulie_operator.planning.policies import one_per_family
from joulie_operator.planning.reconcile import LoadedPolicy, Plan, PlanBasis, plan
from joulie_operator.planning.rules import Rules, rules_of
from joulie_operator.planning.sleep import SLEEPING_POLICY, in_order_of_sleep
from joulie_operator.planning.supply import is_empty
from joulie_projections.state.state import ClusterState, NodeState


class NextPlan(NamedTuple):
    """The plan, and the nodes in the order in which later plans turn to them."""

    plan: Plan
    draining: dict[str, int]  # performance pods that delay the eco class of a node
    least_dense_first: list[str]  # performance nodes, as they become eco when fewer are needed
    empty_in_order: dict[str, int]  # as they fall asleep: empty nodes, and since when


def next_plan(
    newest: PlanMade, cluster_state: ClusterState, policy: LoadedPolicy, view: int, now: int
) -> NextPlan:
    rules = rules_of(newest.settings)
    basis = PlanBasis(view, now, newest.pods_known)
    nodes = cluster_state.nodes
    return NextPlan(
        plan(cluster_state, policy, rules, basis),
        {name: node.performance_pods for name, node in nodes.items() if node.draining},
        _least_dense_first(cluster_state, rules),
        _empty_in_order(cluster_state, rules),
    )


def _least_dense_first(cluster_state: ClusterState, rules: Rules) -> list[str]:
    """The densest node of each hardware family is the last to go, as it is the first to come."""
    ordered = candidates(cluster_state.nodes, rules)
    as_they_come = dict.fromkeys([*one_per_family(ordered), *ordered])
    return [
        each.name
        for each in reversed(as_they_come)
        if _is_performance(cluster_state.nodes[each.name])
    ]


def _is_performance(node: NodeState) -> bool:
    return node.profile == "performance" and not node.draining


def _empty_in_order(cluster_state: ClusterState, rules: Rules) -> dict[str, int]:
    if rules.policy != SLEEPING_POLICY:
        return {}
    ours = selector(rules.selector)
    nodes = {
        name: node
        for name, node in cluster_state.nodes.items()
        if is_eligible(node, ours) and node.profile and is_empty(node)
    }
    return {name: nodes[name].empty_since for name in in_order_of_sleep(nodes, nodes)}
