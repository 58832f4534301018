"""Folds facts about nodes."""

from typing import assert_never

from msgspec.structs import replace

from joulie_bus.events import (
    CapsSettable,
    HardwareDiscovered,
    NodeGone,
    NodeSeen,
    TelemetrySampled,
)
from joulie_projections.state.state import (
    CLUSTER,
    NOT_SETTABLE,
    Arrival,
    ClusterRow,
    NodeState,
    Sample,
    SettableCaps,
)
from joulie_projections.state.state_changes import Draft

TREND_WINDOW_NS = 300_000_000_000
SAMPLE_SPACING_NS = 10_000_000_000  # 30 samples in 5 minutes are enough for a trend
NS_PER_MS = 1_000_000
SETTLING_NS = 10_000_000_000  # from binding to steady power: image pull and start
IDLE_NS = 60_000_000_000  # from the end of the last pod, or from a boot, to idle power
IDLE_READINGS = 8  # so much of a new reading counts for the idle power: an eighth


def evolve_node(draft: Draft, fact: NodeSeen | NodeGone | HardwareDiscovered, at: int) -> None:
    match fact:
        case NodeSeen():
            _node_seen(draft, fact, at)
        case NodeGone():
            _node_gone(draft, fact.node, at)
        case HardwareDiscovered():
            _discovered(draft, fact, at)
        case _:
            assert_never(fact)


def _discovered(draft: Draft, found: HardwareDiscovered, at: int) -> None:
    """Hardware from labels never replaces a discovery."""
    node = draft.nodes.get(found.node)
    known = node.hardware if node else None
    if found.source == "labels" and known is not None and known.source != "labels":
        return
    change_node(draft, found.node, at, hardware=found)


def node_of(draft: Draft, name: str, at: int) -> NodeState:
    """The node's state; the first fact about an unknown node assigns it a row."""
    known = draft.nodes.get(name)
    if known is not None:
        return known
    cluster = cluster_of(draft)
    ordinal, *free = cluster.free_rows or (cluster.rows,)
    rows = max(cluster.rows, ordinal + 1)
    draft.cluster.put(CLUSTER, replace(cluster, rows=rows, free_rows=tuple(free)))
    return NodeState(ordinal=ordinal, at=at)


def drop_node(draft: Draft, name: str) -> None:
    """Deletes a node and frees its row for the next node, so that columns stay bounded."""
    known = draft.nodes.get(name)
    if known is None:
        return
    draft.nodes.drop(name)
    cluster = cluster_of(draft)
    free = tuple(sorted((*cluster.free_rows, known.ordinal)))
    draft.cluster.put(CLUSTER, replace(cluster, free_rows=free))


def change_node(draft: Draft, name: str, at: int, **changes: object) -> None:
    draft.nodes.put(name, replace(node_of(draft, name, at), at=at, **changes))


def wake_node(draft: Draft, name: str, at: int) -> None:
    """A node that is still in use has not fallen asleep: it is awake at once."""
    node = draft.nodes.get(name)
    is_awake = node is not None and node.ready and node.schedulable
    power_state = "" if is_awake else "waking"
    change_node(draft, name, at, power_state=power_state, power_at=at, evict_at=0)


def cluster_of(draft: Draft) -> ClusterRow:
    return draft.cluster.get(CLUSTER) or ClusterRow()


def _node_seen(draft: Draft, seen: NodeSeen, at: int) -> None:
    node = node_of(draft, seen.node, at)
    is_awake = node.power_state == "waking" and seen.ready and seen.schedulable
    after = replace(
        node,
        at=at,
        present=True,
        uid=seen.uid,
        labels=seen.labels,
        ready=seen.ready,
        schedulable=seen.schedulable,
        cpu_milli=seen.cpu_milli,
        memory_bytes=seen.memory_bytes,
        gpus=seen.gpus,
        gpu_units=seen.gpu_units,
        gpu_vendor=seen.gpu_vendor,
        power_state="" if is_awake else node.power_state,
        # Another machine of this name: what a writer reported was about the former one.
        settable=node.settable if node.uid == seen.uid else NOT_SETTABLE,
        idle_mw=node.idle_mw if node.uid == seen.uid else 0,
    )
    draft.nodes.put(seen.node, after)


def _node_gone(draft: Draft, name: str, at: int) -> None:
    """Deletes the node. While it has pods, their counts stay, as it may be recreated by name."""
    node = draft.nodes.get(name)
    if node is None or not node.pods:
        drop_node(draft, name)
        return
    blank = NodeState(
        ordinal=node.ordinal,
        at=at,
        pods=node.pods,
        performance_pods=node.performance_pods,
        daemon_pods=node.daemon_pods,
        load=node.load,
        arrivals=node.arrivals,
    )
    draft.nodes.put(name, blank)


def sampled_power(draft: Draft, sampled: TelemetrySampled, at: int) -> None:
    name = sampled.node
    node = draft.nodes.get(name) or node_of(draft, name, at)
    after = with_reading(node, sampled, at)
    if after is not node:
        draft.nodes.put(name, after)


def with_reading(node: NodeState, sampled: TelemetrySampled, at: int) -> NodeState:
    """The node after this reading; `newest_readings` does the same for many nodes at once."""
    made_at = at
    if sampled.late_ms:
        made_at -= sampled.late_ms * NS_PER_MS
        if node.samples and made_at <= node.samples[-1].at:
            return node  # the power of the node does not go back in time
    return replace(
        node,
        at=at,
        samples=with_sample(node.samples, Sample(made_at, sampled.power_mw)),
        source=sampled.source,
        provider=sampled.provider,
        arrivals=node.arrivals and unsettled(node.arrivals, made_at),
        idle_mw=_idle_mw(node, sampled.power_mw, made_at),
    )


def _idle_mw(node: NodeState, power_mw: int, at: int) -> int:
    begin = idle_from(node)
    if begin is None or at < begin:
        return node.idle_mw
    return node.idle_mw + (power_mw - node.idle_mw) // IDLE_READINGS if node.idle_mw else power_mw


def idle_from(node: NodeState) -> int | None:
    """When readings of a node that is empty and awake begin to be its idle power; None for another
    node. Before its first plan the pods of a node may not be known yet."""
    since, is_usable = node.empty_since, node.ready and node.schedulable and not node.power_state
    is_idle = is_usable and node.pods == node.daemon_pods
    return since + IDLE_NS if is_idle and since else None


def settable_caps(draft: Draft, found: CapsSettable, at: int) -> None:
    """Of a node that exists: a report that arrives after its node is gone is no report about the
    next machine of this name. The writer repeats it, so that it counts once the node is known."""
    node = draft.nodes.get(found.node)
    if node is None or not node.present:
        return
    kinds = {"cpu": found.cpu, "gpu": found.gpu, "cards": found.cards, "clocks": found.clocks}
    settable = SettableCaps(at, tuple(kind for kind in kinds if kinds[kind]), found.because)
    draft.nodes.put(found.node, replace(node, at=at, settable=settable))


def unsettled(arrivals: tuple[Arrival, ...], at: int) -> tuple[Arrival, ...]:
    """Arrivals that a reading at this time may not include."""
    return tuple(arrival for arrival in arrivals if at < arrival.at + SETTLING_NS)


def with_sample(samples: tuple[Sample, ...], new: Sample) -> tuple[Sample, ...]:
    """Appends a reading; older ones are thinned to a spacing and dropped after the window."""
    if len(samples) > 1 and samples[-1].at - samples[-2].at < SAMPLE_SPACING_NS:
        samples = samples[:-1]
    oldest = new.at - TREND_WINDOW_NS
    while samples and samples[0].at < oldest:
        samples = samples[1:]
    return (*samples, new)
