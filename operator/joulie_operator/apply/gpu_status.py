"""Writes the claims of cards into the status of their `GPU` resources."""

import asyncio
import time

import msgspec

from joulie_bus.core.undecodable import UNDECODABLE
from joulie_bus.errors import BadName, KubernetesRefused
from joulie_bus.runtime import metrics
from joulie_bus.runtime.logging import get_logger
from joulie_bus.runtime.tasks import wait_and_clear
from joulie_operator.kube.api_client import ApiServer, ApiUnreachable, object_path
from joulie_operator.observe.watch import ObservedCluster
from joulie_operator.resources.custom_resources import GPU_GROUP, GPUS, VERSION, Gpu
from joulie_operator.resources.gpu_objects import RepeatedWrites, StatusWrite, status_write_of
from joulie_projections.view.view import View

CHECK_INTERVAL_S = 0.5
CARD = {"apiVersion": f"{GPU_GROUP}/{VERSION}", "kind": "GPU"}
_read = msgspec.json.Decoder(Gpu).decode
log = get_logger("apply")


class GpuStatusWriter:
    """Keeps the status of GPU resources equal to the claims in the view."""

    def __init__(
        self, api: ApiServer, view: View, cluster: ObservedCluster, deadline_s: float
    ) -> None:
        self._api = api
        self._view = view
        self._gpus = cluster.gpus
        self._deadline_s = deadline_s
        self._repeated = RepeatedWrites()

    async def run(self) -> None:
        """Runs until cancelled. Cards are written one at a time: they change one at a time."""
        await self._gpus.complete.wait()
        while True:
            for name in self._gpus.names():
                await self._reconcile(name)
            await wait_and_clear(self._gpus.changed, CHECK_INTERVAL_S)

    async def _reconcile(self, name: str) -> None:
        gpu = self._gpus.get(name)
        if gpu is None or gpu.spec is None:
            return
        write = status_write_of(gpu, self._view.cluster_state.gpus.get(gpu.spec.uuid))
        if write is None or not self._repeated.allows(write, time.monotonic()):
            return
        try:
            async with asyncio.timeout(self._deadline_s):
                self._gpus.put(await self._written(write))
        except (KubernetesRefused, BadName, *UNDECODABLE, *ApiUnreachable) as error:
            metrics.KUBE_WRITES.labels(kind="card", outcome="failed").inc()
            log.warning("not_applied", what="card", card=name, error=str(error))
        else:
            metrics.KUBE_WRITES.labels(kind="card", outcome="done").inc()

    async def _written(self, write: StatusWrite) -> Gpu:
        status = msgspec.to_builtins(write.status)
        body = CARD | {"metadata": {"name": write.name}, "status": status}
        return _read(await self._api.apply(object_path(GPUS, write.name, "status"), body))
