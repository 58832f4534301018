"""The caps that the writers on the nodes get: those of the plan, for nodes that opted in."""

from collections.abc import Iterator

from joulie_bus.events import CapOrder
from joulie_projections.state.state import ClusterState, NodeState

OPT_IN = "joulie.io/caps"  # the label of nodes on which caps may be set: "enforce"


def cap_orders(state: ClusterState, position: int) -> Iterator[CapOrder]:
    """One order for each node that opted in, also without a cap. Other nodes get none."""
    plan = next((row.plan.plan for row in state.cluster.values() if row.plan is not None), "")
    for name, node in state.nodes.items():
        if node.present and node.labels.get(OPT_IN) == "enforce":
            yield CapOrder(
                node=name,
                plan=plan,
                view=position,
                cpu_mw_per_socket=_cpu_mw(node),
                gpu_mw=_gpu_mw(node),
            )


def _cpu_mw(node: NodeState) -> int | None:
    """A cap in per cent needs the maximum of the hardware; without it, no cap is ordered."""
    if node.cpu_cap_mw_per_socket is not None:
        return node.cpu_cap_mw_per_socket
    most_mw = node.hardware.cpu_max_mw_per_socket if node.hardware else 0
    return _share(node.cpu_cap_pct, most_mw)


def _gpu_mw(node: NodeState) -> int | None:
    if node.gpu_cap_mw is not None:
        return node.gpu_cap_mw
    return _share(node.gpu_cap_pct, node.hardware.gpu_max_mw if node.hardware else 0)


def _share(pct: int | None, most_mw: int) -> int | None:
    return None if pct is None or pct >= 100 or not most_mw else most_mw * pct // 100
