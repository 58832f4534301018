"""A cache of the objects of one kind, fed by lists, watches and responses to writes."""

import asyncio
from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

from joulie_operator.resources.custom_resources import ObjectMeta

K = TypeVar("K")


class ObjectCache(Generic[K]):
    """Objects by name; an older version never replaces a newer one.

    `reduced` returns the part of an object that is kept.
    """

    def __init__(
        self, meta: Callable[[K], ObjectMeta], reduced: Callable[[K], K] = lambda it: it
    ) -> None:
        self._meta = meta
        self._reduced = reduced
        self._objects: dict[str, K] = {}
        self._listed: set[str] = set()
        self.complete = asyncio.Event()  # set after the first complete list
        self.changed = asyncio.Event()

    def get(self, name: str) -> K | None:
        return self._objects.get(name)

    def names(self) -> list[str]:
        return list(self._objects)

    def begin_list(self) -> None:
        self._listed = set()

    async def add_listed(self, objects: Sequence[K]) -> None:
        for obj in objects:
            self._listed.add(self._meta(obj).name)
            self.put(obj)

    async def end_list(self) -> None:
        for name in self._objects.keys() - self._listed:
            del self._objects[name]
        self.complete.set()
        self.changed.set()

    async def apply_events(self, events: Sequence[tuple[str, K]]) -> None:
        for kind, obj in events:
            if kind == "DELETED":
                self.drop(self._meta(obj).name)
            else:
                self.put(obj)

    def put(self, obj: K) -> None:
        """Ignores older versions: the response to a write may come before or after its event."""
        meta = self._meta(obj)
        known = self._objects.get(meta.name)
        if known is not None and _version(self._meta(known)) >= _version(meta):
            return
        self._objects[meta.name] = self._reduced(obj)
        self.changed.set()

    def drop(self, name: str) -> None:
        self._objects.pop(name, None)
        self.changed.set()


def _version(meta: ObjectMeta) -> int:
    """Resource versions are opaque by contract, but growing numbers in every API server."""
    return int(meta.resource_version) if meta.resource_version.isdecimal() else 0
