"""Time travel: the cluster state at a position, and what plans changed on a node."""

from collections.abc import AsyncIterator
from typing import NamedTuple

import msgspec

from joulie_audit.archive.fact_source import FactSource, plan_facts
from joulie_audit.replay.fold_start import start_before
from joulie_bus.errors import Undecodable
from joulie_bus.events import PlanMade, PodBound, codec
from joulie_bus.streams.subjects import Stream
from joulie_projections.history.history import NEWEST, History
from joulie_projections.state.state import ClusterState, NodeState
from joulie_projections.twin.facility import halls_of
from joulie_projections.twin.twin import Twin, twin_of

_OBSERVATIONS = frozenset((Stream.OBS,))


class NodeChange(NamedTuple):
    """A change that a plan made to a node."""

    position: int
    at: int
    what: str
    because: str


class TwinAt(NamedTuple):
    node: str
    position: int
    committed_at: int
    state: NodeState
    twin: Twin


async def cluster_state_at(history: History, facts: FactSource, position: int) -> ClusterState:
    """The cluster state after that position, folded from the nearest snapshot."""
    folded = start_before(history, position)
    for manifest in history.manifests(folded.position + 1, position):
        records = await facts.of(manifest)
        folded.skip(records[: position - manifest.p_from + 1])
    return folded.cluster_state


def twin_at(
    cluster_state: ClusterState, node: str, position: int, committed_at: int
) -> TwinAt | None:
    state = cluster_state.nodes.get(node)
    if state is None:
        return None
    twin = twin_of(state, halls_of(cluster_state.facilities))
    return TwinAt(node, position, committed_at, state, twin)


async def node_changes(
    history: History, facts: FactSource, node: str, last: int = NEWEST
) -> list[NodeChange]:
    """The changes that plans made to a node, oldest first, each with its reason."""
    reasons: dict[str, str] = {}
    changes: list[NodeChange] = []
    async for found in plan_facts(history, facts, 1, last):
        event = found.event
        if isinstance(event, PlanMade):
            reasons[event.plan] = f"{event.plan}: {event.because}"
        elif event.node == node:
            because = "; ".join(
                part
                for part in (getattr(event, "because", ""), reasons.get(event.plan, ""))
                if part
            )
            changes.append(NodeChange(found.position, found.at, _describe(event), because))
    return changes


def _describe(event: msgspec.Struct) -> str:
    """A plan event as text: its type and the values that it sets."""
    hidden = ("plan", "node", "because")
    sets = {k: v for k, v in msgspec.structs.asdict(event).items() if k not in hidden}
    kind = str(getattr(event, "TYPE", "")).removeprefix("plan.").replace("-", " ")
    values = ", ".join(f"{name} {value}" for name, value in sets.items() if value is not None)
    return f"{kind}: {values}" if values else kind


class Binding(NamedTuple):
    position: int
    node: str


async def binding_of(history: History, facts: FactSource, uid: str, after: int) -> Binding | None:
    """The node that the cluster reported for a pod, after a decision about it."""
    async for position, event in _observed(history, facts, after):
        if isinstance(event, PodBound) and event.pod.uid == uid:
            return Binding(position, event.node)
    return None


async def _observed(
    history: History, facts: FactSource, after: int
) -> AsyncIterator[tuple[int, object]]:
    for manifest in history.manifests(after + 1):
        if any(part.stream is Stream.OBS for part in manifest.ranges):
            for record in await facts.of(manifest, _OBSERVATIONS):
                try:
                    yield manifest.p_to, codec.decoded(record.data, "obs")
                except Undecodable:
                    continue
