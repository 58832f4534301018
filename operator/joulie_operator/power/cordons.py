"""Cordons of nodes while pods move away from them.

A cordon is a server-side apply with a field manager of its own: the one of another stays when ours
is removed. The annotation holds the time until which a run cares for its cordon. Later, the run was
killed, and the next one removes the cordon.
"""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine
from typing import Any

import msgspec

from joulie_bus.errors import AlreadyMoving, KubernetesRefused
from joulie_operator.kube.api_client import (
    CONFLICT,
    NOT_FOUND,
    ApiServer,
    ApiUnreachable,
    object_path,
)
from joulie_operator.observe.watch import NODES
from joulie_operator.resources.timestamps import SECOND, rfc3339

UNTIL = "joulie.io/cordoned-for-moves-until"
FIELDS_OF_MOVES = "joulie-moves"
HELD_S, RENEWED_S = 600, 60
TRIES, PAUSE_S = 5, 2.0


class NodeMeta(msgspec.Struct):
    name: str = ""
    uid: str = ""
    annotations: dict[str, str] | None = None


class NodeSpec(msgspec.Struct):
    unschedulable: bool | None = None


class LiveNode(msgspec.Struct):
    metadata: NodeMeta = msgspec.field(default_factory=NodeMeta)
    spec: NodeSpec = msgspec.field(default_factory=NodeSpec)

    @property
    def cared_until(self) -> str:
        return (self.metadata.annotations or {}).get(UNTIL, "")


_read_node = msgspec.json.Decoder(LiveNode).decode


class Cordons:
    def __init__(
        self,
        api: ApiServer,
        clock: Callable[[], int],
        sleep: Callable[[float], Awaitable[object]],
        say: Callable[[str], None],
    ) -> None:
        self._api, self._clock, self._say = api, clock, say
        self._sleep = sleep
        self._held: NodeMeta | None = None
        self._renew_at = 0  # ns
        self.is_left = False  # whether a cordon could not be removed

    async def remove_abandoned(self) -> None:
        """Those of runs that were killed. Raises AlreadyMoving if a run is under way."""
        pages = [page async for page in self._api.pages(NODES)]
        nodes = [_read_node(item) for page in pages for item in page.items]
        cordoned = [node for node in nodes if node.cared_until]
        for node in cordoned:
            if node.cared_until > rfc3339(self._clock()):
                raise AlreadyMoving(node.metadata.name, node.cared_until)
        for node in cordoned:
            await self._write(node.metadata, None)
            self._say(f"{node.metadata.name} is uncordoned: a run that was killed had cordoned it")

    @contextlib.asynccontextmanager
    async def on(self, name: str) -> AsyncGenerator[NodeMeta, None]:
        """No pod is placed on the node inside of the block; a cordon of another is left alone."""
        found = await self._api.get(object_path(NODES, name))
        node = _read_node(found) if found else LiveNode(NodeMeta(name))
        if found is None or node.spec.unschedulable:
            yield node.metadata
            return
        try:
            await self._hold(node.metadata)
            yield node.metadata
        finally:
            if self._held is not None:
                await _in_any_case(self._remove(node.metadata))

    async def renew(self) -> None:
        """For calls that are more frequent than renewals."""
        if self._held is not None and self._clock() >= self._renew_at:
            await self._hold(self._held)

    async def _hold(self, node: NodeMeta) -> None:
        now, is_new = self._clock(), self._held is None
        self._held = node  # before the call: its reply may be lost
        try:
            await self._write(node, rfc3339(now + HELD_S * SECOND))
        except KubernetesRefused:
            self._held = None if is_new else node
            raise
        self._renew_at = now + RENEWED_S * SECOND

    async def _remove(self, node: NodeMeta) -> None:
        self._held, why = None, ""
        for number in range(TRIES):
            try:
                await self._write(node, None)
                return
            except (KubernetesRefused, *ApiUnreachable) as error:
                if isinstance(error, KubernetesRefused) and error.code in (NOT_FOUND, CONFLICT):
                    return  # the node is gone, or another one has its name
                why = str(error) or type(error).__name__
            if number < TRIES - 1:
                await self._sleep(PAUSE_S)
        self.is_left = True
        self._say(
            f"{node.name} stays cordoned: {why}. `kubectl uncordon {node.name}` removes the "
            f"cordon, or a run with --evict after {HELD_S // 60} minutes"
        )

    async def _write(self, node: NodeMeta, until: str | None) -> None:
        """With the uid, because an apply would create a node that is gone."""
        meta: dict[str, object] = {"name": node.name, "uid": node.uid}
        cordon: dict[str, object] = {}
        if until is not None:
            meta |= {"annotations": {UNTIL: until}}
            cordon = {"spec": {"unschedulable": True}}
        body = {"apiVersion": "v1", "kind": "Node", "metadata": meta, **cordon}
        await self._api.apply(object_path(NODES, node.name), body, manager=FIELDS_OF_MOVES)


async def _in_any_case(work: Coroutine[Any, Any, None]) -> None:
    """Ends the work although the caller is cancelled meanwhile."""
    task = asyncio.create_task(work)
    try:
        await asyncio.shield(task)
    except asyncio.CancelledError:
        await task
        raise
