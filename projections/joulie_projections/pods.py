"""What facts about pods change: the pods themselves, and what their nodes carry. Pure."""

from typing import assert_never

from msgspec.structs import replace

from joulie_bus.events import PodAsk, PodBound, PodFact, PodFinished, PodGone, PodPending
from joulie_projections.draft import Draft
from joulie_projections.nodes import node_of
from joulie_projections.world import NodeState, PodState


def evolve_pod(draft: Draft, fact: PodFact, at: int) -> None:
    match fact:
        case PodPending():
            _pod_pending(draft, fact)
        case PodBound():
            _pod_bound(draft, fact, at)
        case PodFinished():
            _pod_finished(draft, fact.uid)
        case PodGone():
            _pod_finished(draft, fact.uid)
            draft.pods.drop(fact.uid)
        case _:
            assert_never(fact)


def _pod_pending(draft: Draft, pending: PodPending) -> None:
    if draft.pods.get(pending.pod.uid) is None:  # a bound pod is not pending again
        draft.pods.put(pending.pod.uid, PodState(pod=pending.pod))


def _pod_bound(draft: Draft, bound: PodBound, at: int) -> None:
    known = draft.pods.get(bound.pod.uid)
    if known is not None and (known.node or known.finished):
        return
    draft.pods.put(bound.pod.uid, PodState(pod=bound.pod, node=bound.node, bound_at=at))
    draft.nodes.put(
        bound.node, node_of(draft, bound.node, at)
    )  # pods may be seen before their node
    _count_pod(draft, bound.node, bound.pod, +1)


def _pod_finished(draft: Draft, uid: str) -> None:
    known = draft.pods.get(uid)
    if known is None or known.finished:
        return
    draft.pods.put(uid, replace(known, finished=True))
    if known.node:
        _count_pod(draft, known.node, known.pod, -1)


def _count_pod(draft: Draft, name: str, pod: PodAsk, by: int) -> None:
    node = draft.nodes.get(name)
    if node is None:
        return
    performance = by if pod.workload == "performance" else 0
    counted = replace(
        node, pods=node.pods + by, performance_pods=node.performance_pods + performance
    )
    if counted == NodeState(ordinal=node.ordinal, at=node.at):  # gone, and now its last pod too
        draft.nodes.drop(name)
    else:
        draft.nodes.put(name, counted)
