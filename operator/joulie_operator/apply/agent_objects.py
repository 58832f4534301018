"""Writes NodeHardware and GPU objects for what agents found on their nodes."""

import asyncio
import time
from collections.abc import Callable, Mapping
from typing import NamedTuple

import msgspec

from joulie_bus.core.backoff import Backoff
from joulie_bus.core.undecodable import UNDECODABLE
from joulie_bus.errors import BadName, KubernetesRefused
from joulie_bus.runtime import metrics
from joulie_bus.runtime.logging import get_logger
from joulie_operator.apply.writer import HasClusterState
from joulie_operator.desired.agent_objects import (
    Wanted,
    is_as_wanted,
    is_of_agents,
    wanted_objects,
)
from joulie_operator.kube.api_client import ApiServer, ApiUnreachable, object_path
from joulie_operator.kube.object_cache import ObjectCache
from joulie_operator.observe.watch import ObservedCluster
from joulie_operator.resources.custom_resources import (
    AGENT_MANAGER,
    GPUS,
    NODEHARDWARES,
    Gpu,
    NodeHardware,
)

INTERVAL_S = 2.0
PAUSES = Backoff(2.0, 60.0)  # after a failure, for one object
_read_gpu = msgspec.json.Decoder(Gpu).decode
_read_hardware = msgspec.json.Decoder(NodeHardware).decode
log = get_logger("apply")


class _Failed(NamedTuple):
    """The failures in a row of one object."""

    why: str
    times: int
    not_before: float  # monotonic seconds


_NEVER = _Failed("", 0, 0.0)


class AgentObjectWriter:
    """Keeps the objects of the field manager `joulie-agent` equal to the view."""

    def __init__(
        self,
        api: ApiServer,
        view: HasClusterState,
        cluster: ObservedCluster,
        deadline_s: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._api = api
        self._view = view
        self._gpus = cluster.gpus
        self._hardware = cluster.hardware
        self._deadline_s, self._clock = deadline_s, clock
        self._failed: dict[tuple[str, str], _Failed] = {}
        self._contested: dict[str, tuple[str, ...]] = {}

    async def run(self) -> None:
        """Runs until cancelled."""
        await self._gpus.complete.wait()
        await self._hardware.complete.wait()
        try:
            while True:
                await self._reconcile()
                await asyncio.sleep(INTERVAL_S)
        finally:
            metrics.CONTESTED_CARDS.set(0)  # another operator may lead from now on

    async def _reconcile(self) -> None:
        state = self._view.cluster_state
        self._report_contested({uuid: each.contested for uuid, each in state.gpus.items()})
        wanted = {(each.path, each.name): each for each in wanted_objects(state)}
        due: dict[tuple[str, str], Wanted | None] = {}
        for key, each in wanted.items():
            seen = self._find(each)
            if seen is None or (is_of_agents(seen) and not is_as_wanted(each, seen)):
                due[key] = each
        for path, cache in ((GPUS, self._gpus), (NODEHARDWARES, self._hardware)):
            due |= {
                (path, name): None for name in _names_of_agents(cache) if (path, name) not in wanted
            }
        self._failed = {key: failed for key, failed in self._failed.items() if key in due}
        for (path, name), due_object in due.items():
            await self._attempt(path, name, due_object)

    def _report_contested(self, cards: Mapping[str, tuple[str, ...]]) -> None:
        """A line for each change."""
        found = {uuid: nodes for uuid, nodes in cards.items() if nodes}
        metrics.CONTESTED_CARDS.set(len(found))
        for uuid, nodes in found.items():
            if self._contested.get(uuid) != nodes:
                log.warning(
                    "card_contested",
                    card=uuid,
                    nodes=nodes,
                    what="agents of several nodes list it: no new pod gets it, on any of them",
                )
        for uuid in self._contested.keys() - found.keys():
            log.info("card_contested_no_more", card=uuid)
        self._contested = found

    def _find(self, wanted: Wanted) -> Gpu | NodeHardware | None:
        cache: ObjectCache[Gpu] | ObjectCache[NodeHardware]
        cache = self._gpus if wanted.path == GPUS else self._hardware
        return cache.get(wanted.name)

    async def _attempt(self, path: str, name: str, wanted: Wanted | None) -> None:
        """Writes the object, or deletes it. A failure is tried again after a pause of its own, and
        logged when its reason changes."""
        before = self._failed.get((path, name), _NEVER)
        if self._clock() < before.not_before:
            return
        try:
            async with asyncio.timeout(self._deadline_s):
                await (self._write(wanted) if wanted else self._delete(path, name))
        except (KubernetesRefused, BadName, *UNDECODABLE, *ApiUnreachable) as error:
            metrics.KUBE_WRITES.labels(kind="inventory", outcome="failed").inc()
            why, times = str(error) or type(error).__name__, before.times + 1
            not_before = self._clock() + PAUSES.after(times)
            self._failed[path, name] = _Failed(why, times, not_before)
            if why != before.why:
                log.warning("not_applied", what="inventory", name=name, error=why)
        else:
            self._failed.pop((path, name), None)
            metrics.KUBE_WRITES.labels(kind="inventory", outcome="done").inc()

    async def _write(self, wanted: Wanted) -> None:
        path = object_path(wanted.path, wanted.name)
        written = await self._api.apply(path, wanted.body(), manager=AGENT_MANAGER)
        if wanted.status:
            path = object_path(wanted.path, wanted.name, "status")
            written = await self._api.apply(path, wanted.status_body(), manager=AGENT_MANAGER)
        if wanted.path == GPUS:
            self._gpus.put(_read_gpu(written))
        else:
            self._hardware.put(_read_hardware(written))

    async def _delete(self, path: str, name: str) -> None:
        await self._api.delete(object_path(path, name))
        (self._gpus if path == GPUS else self._hardware).drop(name)


def _names_of_agents(cache: ObjectCache[Gpu] | ObjectCache[NodeHardware]) -> list[str]:
    return [name for name in cache.names() if (seen := cache.get(name)) and is_of_agents(seen)]
