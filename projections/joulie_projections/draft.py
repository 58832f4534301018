"""Changes beside a world, which stays as it is until they are committed."""

from collections.abc import Iterator, Mapping
from typing import Generic, NamedTuple, TypeVar

from joulie_projections.world import State, World

S = TypeVar("S", bound=State)


class Overlay(Generic[S]):
    """A table with changes on top: reads see them, the table below does not."""

    def __init__(self, base: dict[str, S]) -> None:
        self._base = base
        self.changes: dict[str, S | None] = {}

    def get(self, key: str) -> S | None:
        return self.changes[key] if key in self.changes else self._base.get(key)

    def put(self, key: str, state: S) -> None:
        self.changes[key] = state

    def drop(self, key: str) -> None:
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


class Draft:
    """What some facts would change. Throw it away, or `commit` it once the database has."""

    def __init__(self, world: World) -> None:
        self.nodes = Overlay(world.nodes)
        self.pods = Overlay(world.pods)
        self.gpus = Overlay(world.gpus)
        self.facilities = Overlay(world.facilities)
        self.producers = Overlay(world.producers)
        self.cluster = Overlay(world.cluster)

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
            overlay.commit()
