"""Writes NodeHardware and GPU objects for what agents found on their nodes."""

import asyncio

import msgspec

from joulie_bus.core.undecodable import UNDECODABLE
from joulie_bus.errors import BadName, KubernetesRefused
from joulie_bus.runtime import metrics
from joulie_bus.runtime.logging import get_logger
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
from joulie_projections.view.view import View

INTERVAL_S = 2.0
_read_gpu = msgspec.json.Decoder(Gpu).decode
_read_hardware = msgspec.json.Decoder(NodeHardware).decode
log = get_logger("apply")


class AgentObjectWriter:
    """Keeps the objects of the field manager `joulie-agent` equal to the view."""

    def __init__(
        self, api: ApiServer, view: View, cluster: ObservedCluster, deadline_s: float
    ) -> None:
        self._api = api
        self._view = view
        self._gpus = cluster.gpus
        self._hardware = cluster.hardware
        self._deadline_s = deadline_s

    async def run(self) -> None:
        """Runs until cancelled."""
        await self._gpus.complete.wait()
        await self._hardware.complete.wait()
        while True:
            await self._reconcile()
            await asyncio.sleep(INTERVAL_S)

    async def _reconcile(self) -> None:
        wanted = {(each.path, each.name): each for each in wanted_objects(self._view.cluster_state)}
        for each in wanted.values():
            seen = self._find(each)
            if seen is None or (is_of_agents(seen) and not is_as_wanted(each, seen)):
                await self._attempt(each.path, each.name, each)
        for path, cache in ((GPUS, self._gpus), (NODEHARDWARES, self._hardware)):
            for name in _names_of_agents(cache):
                if (path, name) not in wanted:
                    await self._attempt(path, name, None)

    def _find(self, wanted: Wanted) -> Gpu | NodeHardware | None:
        cache: ObjectCache[Gpu] | ObjectCache[NodeHardware]
        cache = self._gpus if wanted.path == GPUS else self._hardware
        return cache.get(wanted.name)

    async def _attempt(self, path: str, name: str, wanted: Wanted | None) -> None:
        """Writes the object, or deletes it; a failure is tried again in the next round."""
        try:
            async with asyncio.timeout(self._deadline_s):
                await (self._write(wanted) if wanted else self._delete(path, name))
        except (KubernetesRefused, BadName, *UNDECODABLE, *ApiUnreachable) as error:
            metrics.KUBE_WRITES.labels(kind="inventory", outcome="failed").inc()
            log.warning("not_applied", what="inventory", name=name, error=str(error))
        else:
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
