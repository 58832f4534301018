"""The cluster state at a position, folded from the facts, and where a pod was bound after it."""

from collections.abc import AsyncIterator
from typing import NamedTuple

from joulie_audit.archive.fact_source import FactSource
from joulie_audit.replay.fold_start import start_before
from joulie_bus.errors import Undecodable
from joulie_bus.events import PodBound, codec
from joulie_bus.streams.subjects import Stream
from joulie_projections.history.history import History
from joulie_projections.state.state import ClusterState

_OBSERVATIONS = frozenset((Stream.OBS,))


async def cluster_state_at(history: History, facts: FactSource, position: int) -> ClusterState:
    """The cluster state after that position, folded from the nearest snapshot."""
    folded = start_before(history, position)
    for manifest in history.manifests(folded.position + 1, position):
        records = await facts.of(manifest)
        folded.skip(records[: position - manifest.p_from + 1])
    return folded.cluster_state


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
