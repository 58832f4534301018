"""Watches of the stand-in API server: from a version, with bookmarks, until they are cut."""

import asyncio
from collections.abc import Callable

from aiohttp import web

from joulie_bus.runtime.tasks import wait_and_clear
from kube_fields import Kind, Refused, Tree
from kube_objects import Change, Objects
from kube_requests import encode


class Watch:
    """One watch of a client."""

    def __init__(
        self,
        objects: Objects,
        bookmark_s: float,
        kind: Kind,
        namespace: str,
        fits: Callable[[Tree], bool],
        response: web.StreamResponse,
    ) -> None:
        self._objects = objects
        self._bookmark_s = bookmark_s
        self._kind = kind
        self._namespace = namespace
        self._fits = fits
        self._response = response
        self._changed = asyncio.Event()
        self.version = 0
        self.has_failed = False
        self.is_cut = False
        self.is_silent = False  # the connection stays open, and nothing arrives any more

    async def send_initial_events(self, *, mark_end: bool, midway: Callable[[], None]) -> None:
        """`mark_end` adds the final bookmark, after the changes that happened meanwhile."""
        self.version = self._objects.version
        rows = sorted(self._objects.table(self._kind).items())
        for number, (_, tree) in enumerate(rows):
            if number == len(rows) // 2:
                midway()
            if self.is_cut:
                return
            if self._fits(tree):
                await self._write("ADDED", tree)
        await self._send_changes()
        if mark_end:
            await self.bookmark({"k8s.io/initial-events-end": "true"})

    async def follow(self, *, bookmarks: bool) -> None:
        listeners = self._objects.listeners
        listeners.append(self._changed.set)
        try:
            while not self.is_cut and not self.has_failed and await self._send_changes():
                if not await wait_and_clear(self._changed, self._bookmark_s) and bookmarks:
                    await self.bookmark()
        finally:
            listeners.remove(self._changed.set)

    def cut(self) -> None:
        self.is_cut = True
        self._changed.set()

    async def _send_changes(self) -> bool:
        objects = self._objects
        try:
            happened = objects.since(self.version)
        except Refused as refused:
            await self.fail(refused)
            return False
        for event in happened:
            if (kind := self._seen(event)) is not None:
                left = kind == "DELETED" and event.type != "DELETED" and event.before
                await self._write(kind, _as_it_was(left, event) if left else event.after)
        self.version = max(self.version, objects.version)
        return True

    async def fail(self, refused: Refused) -> None:
        self.has_failed = True
        await self._write("ERROR", refused.body)

    def _seen(self, event: Change) -> str | None:
        """An object that enters the selection is ADDED; one that leaves it is DELETED."""
        if event.kind != self._kind:
            return None
        if self._namespace not in ("", event.after["metadata"].get("namespace", "")):
            return None
        was = event.before is not None and self._fits(event.before)
        is_ = event.type != "DELETED" and self._fits(event.after)
        return {(True, True): "MODIFIED", (False, True): "ADDED", (True, False): "DELETED"}.get(
            (was, is_)
        )

    async def bookmark(self, annotations: Tree | None = None) -> None:
        meta: Tree = {"resourceVersion": str(self.version)}
        if annotations:
            meta["annotations"] = annotations
        kind = self._kind
        bookmark = {"kind": kind.kind, "apiVersion": kind.api_version, "metadata": meta}
        await self._write("BOOKMARK", bookmark)

    async def _write(self, kind: str, tree: Tree) -> None:
        if self.is_silent:
            return
        await self._response.write(encode({"type": kind, "object": tree}) + b"\n")


def _as_it_was(before: Tree, event: Change) -> Tree:
    """An object that leaves the selection is sent in its last selected state, newly versioned."""
    return {**before, "metadata": {**before["metadata"], "resourceVersion": str(event.version)}}
