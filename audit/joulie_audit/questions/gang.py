"""The group of pods that a pod is placed together with: running members and missing ones."""

from typing import NamedTuple

from joulie_bus.events import PodAsk
from joulie_projections.state.state import ClusterState, gang_of

EXAMPLES = 5  # members that are named


class GangNow(NamedTuple):
    """By the newest state: pods that have ended are no members any more."""

    name: str
    bound: int
    nodes: dict[str, int]  # members on each
    missing: list[str]  # members that are known and wait, and this pod if it is not known


def gang_now(pod: PodAsk, cluster_state: ClusterState) -> GangNow | None:
    """None for a pod that is in no group. A member that was never created is not known."""
    if not (gang := gang_of(pod)):
        return None
    nodes, missing = dict[str, int](), list[str]()
    for each in cluster_state.pods.values():
        if gang_of(each.pod) != gang or each.finished:
            continue
        if each.node:
            nodes[each.node] = nodes.get(each.node, 0) + 1
        else:
            missing.append(each.pod.name)
    return GangNow(pod.group, sum(nodes.values()), dict(sorted(nodes.items())), sorted(missing))


def in_words(gang: GangNow) -> str:
    places = [f"{node} ({count})" if count > 1 else node for node, count in gang.nodes.items()]
    where = f" on {_few(places)}" if places else ""
    known = gang.bound + len(gang.missing)
    text = f"{gang.name}: {gang.bound} of {known} known pods run{where}"
    return f"{text}; missing: {_few(gang.missing)}" if gang.missing else text


def _few(names: list[str]) -> str:
    more = f" and {len(names) - EXAMPLES} more" if len(names) > EXAMPLES else ""
    return ", ".join(names[:EXAMPLES]) + more
