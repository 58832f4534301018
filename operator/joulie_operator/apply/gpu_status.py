"""Writes into `GPU` resources what the log says of their cards."""

import asyncio
import time

import msgspec

from joulie_bus.errors import BadName, KubernetesRefused
from joulie_bus.runtime import metrics
from joulie_bus.runtime.logging import get_logger
from joulie_bus.runtime.tasks import rung
from joulie_operator.kube.api_client import ApiServer, Unanswered, object_path
from joulie_operator.kube.custom_resources import GPU_GROUP, GPUS, VERSION, Gpu
from joulie_operator.kube.gpu_objects import Truces, Wish, wish_of
from joulie_operator.observe.watch import Cluster
from joulie_projections.view.view import View

LOOK_S = 0.5
CARD = {"apiVersion": f"{GPU_GROUP}/{VERSION}", "kind": "GPU"}
_read = msgspec.json.Decoder(Gpu).decode
log = get_logger("apply")


class CardStatus:
    def __init__(self, api: ApiServer, view: View, cluster: Cluster, deadline_s: float) -> None:
        self._api = api
        self._view = view
        self._gpus = cluster.gpus
        self._deadline_s = deadline_s
        self._truces = Truces()

    async def run(self) -> None:
        """For ever. Cards change one by one, and so are they written."""
        await self._gpus.complete.wait()
        while True:
            for name in self._gpus.names():
                await self._look_at(name)
            await rung(self._gpus.changed, LOOK_S)

    async def _look_at(self, name: str) -> None:
        gpu = self._gpus.get(name)
        if gpu is None or gpu.spec is None:
            return
        wish = wish_of(gpu, self._view.cluster_state.gpus.get(gpu.spec.uuid))
        if wish is None or not self._truces.lets(wish, time.monotonic()):
            return
        try:
            async with asyncio.timeout(self._deadline_s):
                self._gpus.put(await self._written(wish))
        except (KubernetesRefused, BadName, msgspec.DecodeError, *Unanswered) as error:
            metrics.KUBE_WRITES.labels(kind="card", outcome="failed").inc()
            log.warning("not_applied", what="card", card=name, error=str(error))
        else:
            metrics.KUBE_WRITES.labels(kind="card", outcome="done").inc()

    async def _written(self, wish: Wish) -> Gpu:
        status = msgspec.to_builtins(wish.status)
        body = CARD | {"metadata": {"name": wish.name}, "status": status}
        return _read(await self._api.apply(object_path(GPUS, wish.name, "status"), body))
