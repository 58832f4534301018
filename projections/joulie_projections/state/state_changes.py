"""Drafts: changes on top of a cluster state, which stays unchanged until they are committed."""

from collections.abc import Iterator, Mapping
from typing import Generic, NamedTuple, Protocol, TypeVar

from joulie_projections.state.cards import CardState
from joulie_projections.state.state import (
    ClusterRow,
    FacilityState,
    NodeState,
    PodState,
    ProducerState,
    State,
)

S = TypeVar("S", bound=State)


class OverlayBase(Protocol[S]):
    """What an overlay is on top of: a table of the cluster state, or another overlay."""

    def get(self, key: str, /) -> S | None: ...

    def update(self, kept: dict[str, S], /) -> None: ...

    def pop(self, key: str, default: None, /) -> object: ...


class Overlay(Generic[S]):
    """Pending changes on top of a table; reads return the changed values."""

    def __init__(self, base: OverlayBase[S]) -> None:
        self._base = base
        self.changes: dict[str, S | None] = {}

    def get(self, key: str) -> S | None:
        return self.changes[key] if key in self.changes else self._base.get(key)

    def put(self, key: str, state: S) -> None:
        self.changes[key] = state

    def drop(self, key: str) -> None:
        self.changes[key] = None

    def update(self, kept: Mapping[str, S]) -> None:
        self.changes.update(kept)

    def pop(self, key: str, _: None) -> None:
        self.changes[key] = None

    def before(self, key: str) -> S | None:
        return self._base.get(key)

    def commit(self) -> None:
        kept = {key: state for key, state in self.changes.items() if state is not None}
        self._base.update(kept)
        for key in [key for key in self.changes if key not in kept]:
            self._base.pop(key, None)
        self.changes.clear()


class Change(NamedTuple):
    table: str
    key: str
    before: State | None
    after: State | None


class DraftBase(Protocol):
    """The tables that a draft is on top of: a cluster state, or another draft."""

    @property
    def nodes(self) -> OverlayBase[NodeState]: ...
    @property
    def pods(self) -> OverlayBase[PodState]: ...
    @property
    def gpus(self) -> OverlayBase[CardState]: ...
    @property
    def facilities(self) -> OverlayBase[FacilityState]: ...
    @property
    def producers(self) -> OverlayBase[ProducerState]: ...
    @property
    def cluster(self) -> OverlayBase[ClusterRow]: ...


class Draft:
    """Pending changes of some facts. Discard it, or `commit` it after the database transaction.

    A draft on top of another draft is committed into that one.
    """

    def __init__(self, base: DraftBase) -> None:
        self.nodes: Overlay[NodeState] = Overlay(base.nodes)
        self.pods: Overlay[PodState] = Overlay(base.pods)
        self.gpus: Overlay[CardState] = Overlay(base.gpus)
        self.facilities: Overlay[FacilityState] = Overlay(base.facilities)
        self.producers: Overlay[ProducerState] = Overlay(base.producers)
        self.cluster: Overlay[ClusterRow] = Overlay(base.cluster)

    @property
    def tables(self) -> Mapping[str, Overlay]:  # type: ignore[type-arg]
        return {
            "node": self.nodes,
            "pod": self.pods,
            "gpu": self.gpus,
            "facility": self.facilities,
            "producer": self.producers,
            "cluster": self.cluster,
        }

    def changed(self) -> Iterator[Change]:
        for table, overlay in self.tables.items():
            for key, after in overlay.changes.items():
                yield Change(table, key, overlay.before(key), after)

    def commit(self) -> None:
        for overlay in self.tables.values():
            if overlay.changes:
                overlay.commit()
