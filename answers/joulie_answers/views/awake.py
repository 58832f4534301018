"""What keeps a node awake, where a policy lets nodes sleep. No I/O, no clock."""

import math

from joulie_answers.schema.responses import PodBrief
from joulie_answers.views.cluster_view import node_state
from joulie_answers.views.own_pods import own_pods
from joulie_bus.core.times import duration
from joulie_operator.planning.density import families
from joulie_operator.planning.eligible import is_covered, selector
from joulie_operator.planning.rules import rules_of
from joulie_operator.planning.sleep import (
    RESERVE,
    SLEEPING_POLICY,
    ZONE_LABEL,
    in_order_of_sleep,
    sleep_numbers,
)
from joulie_operator.planning.supply import is_empty
from joulie_projections.state.state import ClusterState, NodeState

NS = 10**9
LAST = "it is the last of its hardware family or zone that is awake"
SOON = "it is empty, and the next plans may put it to sleep, so many at once"
NAMED = 3  # of Joulie's own pods


def keeps_awake(name: str, state: ClusterState, pods: list[PodBrief], now: int) -> str:
    """Empty of a node that sleeps or wakes up, and while no plan was made."""
    node, plan = state.nodes[name], state.plan
    if plan is None or node.power_state:
        return ""
    if plan.policy != SLEEPING_POLICY:
        return f"the policy {plan.policy} lets no node sleep"
    rules = rules_of(plan.settings)
    if not is_covered(node, selector(rules.selector)):
        return "plans do not cover it"
    if (found := node_state(node)) != "awake":
        return f"it is {found}"
    if not is_empty(node):
        return _in_use(node, pods)
    if not node.profile:
        return "no plan has given it a class yet"
    empty_s, least_s = (now - node.empty_since) / NS, sleep_numbers(rules).sleep_after_s
    if empty_s < least_s:
        return f"it is empty for {duration(empty_s)}, and sleeps after {duration(least_s)}"
    return _spared(name, state, sleep_numbers(rules).reserve)


def _in_use(node: NodeState, pods: list[PodBrief]) -> str:
    many = node.pods - node.daemon_pods
    run = "one pod runs here" if many == 1 else f"{many} pods run here"
    if own := own_pods(pods):
        named = ", ".join(own[:NAMED])
        return f"{run}, {len(own)} of them of Joulie itself: {named}"
    return run


def _spared(name: str, state: ClusterState, share: float) -> str:
    """Of a node that was empty for long enough."""
    node = state.nodes[name]
    pool = {
        each: other
        for each, other in state.nodes.items()
        if other.present and (other.gpus > 0) == (node.gpus > 0)
    }
    awake = {each: other for each, other in pool.items() if node_state(other) == "awake"}
    empty = in_order_of_sleep(awake, [each for each, other in awake.items() if is_empty(other)])
    family, zone = families(pool), node.labels.get(ZONE_LABEL)
    alike = [each for each in awake if family[each] == family[name]]
    near = [each for each in awake if awake[each].labels.get(ZONE_LABEL) == zone]
    if len(alike) == 1 or (zone and len(near) == 1):
        return LAST
    reserve = math.ceil(share * len(pool))
    return RESERVE if name in empty[max(0, len(empty) - reserve) :] else SOON
