"""The objects of one kind, as the API server has them: by lists and watches, and by its answers."""

import asyncio
from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

from joulie_operator.kube.custom_resources import ObjectMeta

K = TypeVar("K")


class Mirror(Generic[K]):
    """A dictionary by name that never goes back to an older version."""

    def __init__(self, meta: Callable[[K], ObjectMeta]) -> None:
        self._meta = meta
        self._objects: dict[str, K] = {}
        self._listed: set[str] = set()
        self.complete = asyncio.Event()  # after the first whole list
        self.changed = asyncio.Event()

    def get(self, name: str) -> K | None:
        return self._objects.get(name)

    def names(self) -> list[str]:
        return list(self._objects)

    def begin(self) -> None:
        self._listed = set()

    async def listed(self, things: Sequence[K]) -> None:
        for thing in things:
            self._listed.add(self._meta(thing).name)
            self.put(thing)

    async def whole(self) -> None:
        for name in self._objects.keys() - self._listed:
            del self._objects[name]
        self.complete.set()
        self.changed.set()

    async def happened(self, events: Sequence[tuple[str, K]]) -> None:
        for kind, thing in events:
            if kind == "DELETED":
                self.drop(self._meta(thing).name)
            else:
                self.put(thing)

    def put(self, thing: K) -> None:
        """Newer ones only: an answer to a write may come before or after the watch tells of it."""
        meta = self._meta(thing)
        known = self._objects.get(meta.name)
        if known is not None and _version(self._meta(known)) >= _version(meta):
            return
        self._objects[meta.name] = thing
        self.changed.set()

    def drop(self, name: str) -> None:
        self._objects.pop(name, None)
        self.changed.set()


def _version(meta: ObjectMeta) -> int:
    """Opaque by the letter; a number in every API server there is, and growing."""
    return int(meta.resource_version) if meta.resource_version.isdecimal() else 0
