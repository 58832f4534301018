"""Folds facts about pods: the pods, and the counts and load of their nodes."""

from typing import assert_never

from msgspec.structs import replace

from joulie_bus.events import PodAsk, PodBound, PodFact, PodFinished, PodGone, PodPending
from joulie_projections.fold.node_facts import drop_node, node_of, unsettled
from joulie_projections.pods.load import load_of
from joulie_projections.state.gpu_arrivals import (
    PRIOR,
    PRIOR_DEMAND,
    renewed,
    shape_of,
    with_pod,
)
from joulie_projections.state.state import (
    GPU_ARRIVALS,
    GPU_DEMAND,
    Arrival,
    ClusterRow,
    NodeState,
    PodState,
    gang_of,
)
from joulie_projections.state.state_changes import Draft


def evolve_pod(draft: Draft, fact: PodFact, at: int) -> None:
    match fact:
        case PodPending():
            _pod_pending(draft, fact)
        case PodBound():
            _pod_bound(draft, fact, at)
        case PodFinished():
            _pod_finished(draft, fact.uid, at)
        case PodGone():
            _pod_finished(draft, fact.uid, at)
            draft.pods.drop(fact.uid)
        case _:
            assert_never(fact)


def _pod_pending(draft: Draft, pending: PodPending) -> None:
    known = draft.pods.get(pending.pod.uid)
    if known is not None:
        if not (known.node or known.finished) and _asks_anew(known.pod, pending.pod):
            draft.pods.put(pending.pod.uid, replace(known, pod=pending.pod))
    else:  # a bound pod does not become pending
        draft.pods.put(pending.pod.uid, PodState(pod=pending.pod))
        _count_shape(draft, pending.pod)


def _count_shape(draft: Draft, pod: PodAsk) -> None:
    """When the pod is first seen, waiting or bound: once, however often it is scored."""
    shape = shape_of(pod)
    if shape is None or _daemon(pod):
        return
    row, demand = draft.cluster.get(GPU_ARRIVALS), draft.cluster.get(GPU_DEMAND)
    arrivals = with_pod((row and row.gpu_arrivals) or PRIOR, shape, pod.gpu.model)
    if new := renewed(arrivals, (demand and demand.gpu_demand) or PRIOR_DEMAND):
        arrivals, used = new
        draft.cluster.put(GPU_DEMAND, ClusterRow(gpu_demand=used))
    draft.cluster.put(GPU_ARRIVALS, ClusterRow(gpu_arrivals=arrivals))


def _pod_bound(draft: Draft, bound: PodBound, at: int) -> None:
    known = draft.pods.get(bound.pod.uid)
    if known is not None and (known.node or known.finished):
        _seen_again(draft, known, bound)
        return
    if known is None:
        _count_shape(draft, bound.pod)
    draft.pods.put(bound.pod.uid, PodState(pod=bound.pod, node=bound.node, bound_at=at))
    node = node_of(draft, bound.node, at)  # the pod may be seen before its node
    load = load_of(bound.pod)
    after = replace(
        node,
        pods=node.pods + 1,
        performance_pods=node.performance_pods + _performance(bound.pod),
        daemon_pods=node.daemon_pods + _daemon(bound.pod),
        load=node.load + load,
        arrivals=_with_arrival(node, Arrival(bound.pod.uid, at, load)),
        gangs=_with_member(node.gangs, bound.pod, 1),
    )
    draft.nodes.put(bound.node, after)


def _asks_anew(known: PodAsk, pod: PodAsk) -> bool:
    """Which devices a pod holds, or asks for, may be known later than the pod."""
    return bool(pod.devices.claims) and pod != known


def _seen_again(draft: Draft, known: PodState, bound: PodBound) -> None:
    """Facts about a pod that runs may change: its devices, its cores and memory where it is
    resized, and what a newer version adds."""
    if known.finished or known.node != bound.node:
        return
    pod = bound.pod
    if not _asks_anew(known.pod, pod):
        pod = replace(
            known.pod, ties=pod.ties, cpu_milli=pod.cpu_milli, memory_bytes=pod.memory_bytes
        )
    if pod == known.pod:
        return
    draft.pods.put(pod.uid, replace(known, pod=pod))
    node, load = draft.nodes.get(known.node), load_of(pod)
    if node is None:
        return
    after = replace(
        node,
        performance_pods=node.performance_pods - _performance(known.pod) + _performance(pod),
        daemon_pods=node.daemon_pods - _daemon(known.pod) + _daemon(pod),
        load=node.load - load_of(known.pod) + load,
        arrivals=tuple(
            replace(each, load=load) if each.uid == pod.uid else each for each in node.arrivals
        ),
        gangs=_with_member(_with_member(node.gangs, known.pod, -1), pod, 1),
    )
    draft.nodes.put(known.node, after)


def _with_member(gangs: dict[str, int], pod: PodAsk, more: int) -> dict[str, int]:
    if not (gang := gang_of(pod)):
        return gangs  # the common case
    found = gangs | {gang: gangs.get(gang, 0) + more}
    return {key: found[key] for key in sorted(found) if found[key] > 0}


def _with_arrival(node: NodeState, new: Arrival) -> tuple[Arrival, ...]:
    """Adds an arrival that the newest reading, or the first one to come, may not include."""
    if not node.samples:
        return (*unsettled(node.arrivals, new.at), new)
    return (*node.arrivals, *unsettled((new,), node.samples[-1].at))


def _pod_finished(draft: Draft, uid: str, at: int) -> None:
    known = draft.pods.get(uid)
    if known is None or known.finished:
        return
    draft.pods.put(uid, replace(known, finished=True))
    node = draft.nodes.get(known.node)
    if node is None:
        return
    after = replace(
        node,
        pods=node.pods - 1,
        performance_pods=node.performance_pods - _performance(known.pod),
        daemon_pods=node.daemon_pods - _daemon(known.pod),
        load=node.load - load_of(known.pod),
        arrivals=tuple(arrival for arrival in node.arrivals if arrival.uid != uid),
        gangs=_with_member(node.gangs, known.pod, -1),
    )
    if node.present and after.pods == after.daemon_pods and not _daemon(known.pod):
        after = replace(after, emptied_at=at)
    # A deleted node is removed with its last pod.
    if after == NodeState(ordinal=node.ordinal, at=node.at):
        drop_node(draft, known.node)
    else:
        draft.nodes.put(known.node, after)


def _performance(pod: PodAsk) -> int:
    """1 for a pod that a drain waits for. Exempt pods may run on any node, and DaemonSet pods never
    leave theirs, so a drain that waited for them would not end."""
    return int(pod.workload == "performance" and not pod.exempt)


def _daemon(pod: PodAsk) -> int:
    """1 for a pod of a DaemonSet, and for a static pod: they stay and go with their node. Other
    critical pods, such as those of a DNS server, run anywhere and keep their node awake."""
    return int(pod.exempt in ("daemonset", "mirror"))
