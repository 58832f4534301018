"""What keeps a node awake, where a policy lets nodes sleep. No I/O, no clock."""

from joulie_answers.schema.responses import PodBrief
from joulie_answers.views.cluster_view import node_state
from joulie_answers.views.own_pods import own_pods
from joulie_bus.core.times import duration
from joulie_operator.planning.eligible import is_covered, selector
from joulie_operator.planning.rules import rules_of
from joulie_operator.planning.sleep import SLEEPING_POLICY, sleep_numbers, spared
from joulie_operator.planning.supply import is_empty
from joulie_projections.state.state import ClusterState, NodeState

NS = 10**9
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
    return spared(name, state, rules, now) or SOON


def _in_use(node: NodeState, pods: list[PodBrief]) -> str:
    many = node.pods - node.daemon_pods
    run = "one pod runs here" if many == 1 else f"{many} pods run here"
    if own := own_pods(pods):
        named = ", ".join(own[:NAMED])
        return f"{run}, {len(own)} of them of Joulie itself: {named}"
    return run
