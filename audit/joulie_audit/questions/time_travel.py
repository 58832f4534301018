"""Back to a moment: the world at a position, and what became of a node on the way."""

from collections.abc import AsyncIterator
from typing import NamedTuple

import msgspec

from joulie_audit.archive.fact_source import Facts, plan_facts
from joulie_audit.replay.fold_start import start_before
from joulie_bus.errors import Undecodable
from joulie_bus.events import PlanMade, PodBound, codec
from joulie_bus.streams.subjects import Stream
from joulie_projections.history.history import NEWEST, History
from joulie_projections.state.state import ClusterState, NodeState
from joulie_projections.twin.twin import Twin, twin_of

_SEEN = frozenset((Stream.OBS,))


class Step(NamedTuple):
    """Something that changed what a node is."""

    position: int
    at: int
    what: str
    because: str


class TwinThen(NamedTuple):
    node: str
    position: int
    committed_at: int
    state: NodeState
    twin: Twin


async def cluster_state_at(history: History, facts: Facts, position: int) -> ClusterState:
    """As it was believed after that position; from the nearest place where it is known."""
    past = start_before(history, position)
    for manifest in history.manifests(past.position + 1, position):
        records = await facts.of(manifest)
        past.skip(records[: position - manifest.p_from + 1])
    return past.cluster_state


def twin_then(
    cluster_state: ClusterState, node: str, position: int, committed_at: int
) -> TwinThen | None:
    state = cluster_state.nodes.get(node)
    if state is None:
        return None
    return TwinThen(node, position, committed_at, state, twin_of(state))


async def steps_of(history: History, facts: Facts, node: str, last: int = NEWEST) -> list[Step]:
    """What plans did to a node, oldest first, each with its reason."""
    whys: dict[str, str] = {}
    steps: list[Step] = []
    async for found in plan_facts(history, facts, 1, last):
        event = found.event
        if isinstance(event, PlanMade):
            whys[event.plan] = f"{event.plan}: {event.because}"
        elif event.node == node:
            because = "; ".join(
                part for part in (getattr(event, "because", ""), whys.get(event.plan, "")) if part
            )
            steps.append(Step(found.position, found.at, _said(event), because))
    return steps


def _said(event: msgspec.Struct) -> str:
    """A plan event in words: its kind, and what it sets."""
    hidden = ("plan", "node", "because")
    sets = {k: v for k, v in msgspec.structs.asdict(event).items() if k not in hidden}
    kind = str(getattr(event, "TYPE", "")).removeprefix("plan.").replace("-", " ")
    values = ", ".join(f"{name} {value}" for name, value in sets.items() if value is not None)
    return f"{kind}: {values}" if values else kind


class Bound(NamedTuple):
    position: int
    node: str


async def binding_of(history: History, facts: Facts, uid: str, after: int) -> Bound | None:
    """Where a pod went, as the cluster said it, after a decision about it."""
    async for position, event in _observed(history, facts, after):
        if isinstance(event, PodBound) and event.pod.uid == uid:
            return Bound(position, event.node)
    return None


async def _observed(
    history: History, facts: Facts, after: int
) -> AsyncIterator[tuple[int, object]]:
    for manifest in history.manifests(after + 1):
        if any(part.stream is Stream.OBS for part in manifest.ranges):
            for record in await facts.of(manifest, _SEEN):
                try:
                    yield manifest.p_to, codec.read(codec.open_envelope(record.data, "obs"), "obs")
                except Undecodable:
                    continue
