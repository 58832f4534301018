"""The metrics of what a plan was made from: power targets and caps that nodes refuse."""

from itertools import islice

from joulie_bus.runtime import metrics
from joulie_operator.planning.power_target import by_feed
from joulie_operator.planning.reconcile import Plan
from joulie_projections.state.state import ClusterState

MOST_FEEDS = 50  # with a label; a target has the feed that a user names


def show(made: Plan, cluster_state: ClusterState) -> None:
    metrics.NODES_HELD.set(len(made.held))
    nodes = cluster_state.nodes.values()
    metrics.NODES_REFUSING_CAPS.set(sum(bool(node.present and node.refused_caps) for node in nodes))
    for gauge, name in ((metrics.POWER_TARGET, "target_w"), (metrics.POWER_DRAWN, "drawn_w")):
        gauge.clear()  # of targets that are over
        for feed, watts in islice(by_feed(made.made.inputs, name).items(), MOST_FEEDS):
            gauge.labels(feed=feed).set(watts)


def clear() -> None:
    """Another operator may plan from now on."""
    for gauge in (
        *(metrics.NODES_HELD, metrics.NODES_REFUSING_CAPS),
        *(metrics.POWER_TARGET, metrics.POWER_DRAWN),
    ):
        gauge.forget()
