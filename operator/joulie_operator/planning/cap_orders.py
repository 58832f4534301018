"""The caps that the writers on the nodes get: those of the plan, for nodes that opted in.

And the nodes on which the caps of class eco would be set, by the reports of the writers.
"""

from collections.abc import Iterable, Iterator

from joulie_bus.events import CapOrder
from joulie_operator.planning.caps import Caps, caps_for, current_caps
from joulie_operator.planning.measured_caps import cap_choice
from joulie_operator.planning.policies import Candidate
from joulie_operator.planning.power.consent import CPU, GPU, is_opted_in, kinds_set
from joulie_operator.planning.rules import Rules
from joulie_projections.state.state import ClusterState, NodeState


def cap_orders(state: ClusterState, position: int) -> Iterator[CapOrder]:
    """One order for each node that opted in, also without a cap. Other nodes get none."""
    plan = next((row.plan.plan for row in state.cluster.values() if row.plan is not None), "")
    for name, node in state.nodes.items():
        if node.present and is_opted_in(node):
            caps = current_caps(node)
            yield CapOrder(
                node=name,
                plan=plan,
                view=position,
                cpu_mw_per_socket=_cpu_mw(node, caps),
                gpu_mw=_gpu_mw(node, caps),
            )


def capped_nodes(
    cluster_state: ClusterState, candidates: Iterable[Candidate], rules: Rules, now: int
) -> set[str]:
    """The candidates on which the caps of class eco would be ordered and set."""
    choice, nodes = cap_choice(cluster_state, rules, now), cluster_state.nodes
    return {
        each.name
        for each in candidates
        if choice.caps(each.name) and _all_are_set(nodes[each.name], rules, now)
    }


def _all_are_set(node: NodeState, rules: Rules, now: int) -> bool:
    """One kind that the writer cannot set may draw up to its own limit."""
    ordered = _ordered_kinds(node, caps_for("eco", node, rules))
    return bool(ordered) and ordered <= kinds_set(node, now)


def _ordered_kinds(node: NodeState, caps: Caps) -> set[str]:
    """The kinds of limits that an order with these caps would set."""
    ordered = {CPU: _cpu_mw(node, caps), GPU: _gpu_mw(node, caps)}
    return {kind for kind, milliwatts in ordered.items() if milliwatts is not None}


def _cpu_mw(node: NodeState, caps: Caps) -> int | None:
    """A cap in per cent needs the maximum of the hardware; without it, no cap is ordered."""
    if caps.cpu_mw_per_socket is not None:
        return caps.cpu_mw_per_socket
    return _share(caps.cpu_pct, node.hardware.cpu_max_mw_per_socket if node.hardware else 0)


def _gpu_mw(node: NodeState, caps: Caps) -> int | None:
    if caps.gpu_mw is not None:
        return caps.gpu_mw
    return _share(caps.gpu_pct, node.hardware.gpu_max_mw if node.hardware else 0)


def _share(pct: int | None, most_mw: int) -> int | None:
    return None if pct is None or pct >= 100 or not most_mw else most_mw * pct // 100
