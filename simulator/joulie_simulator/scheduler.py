"""kube-scheduler, as far as an extender can see it: filter, prioritize, add up, bind."""

import random
from typing import Any

from joulie_bus.logging import get_logger
from joulie_simulator.cluster import SimCluster
from joulie_simulator.webhook import Webhook, WebhookFailed
from joulie_simulator.workload import Job

WEIGHT = 1  # `weight` of the extender's block
PER_POINT = 10  # kube-scheduler multiplies extender scores by 100/10
log = get_logger("simulator")


class Scheduler:
    """One pod at a time, as kube-scheduler does it. An extender that fails is ignored."""

    def __init__(self, cluster: SimCluster, webhook: Webhook, draw: random.Random) -> None:
        self._cluster = cluster
        self._webhook = webhook
        self._draw = draw

    async def place(self, job: Job) -> str | None:
        """The node, or None if the pod has to wait."""
        names = self._cluster.sample(job)
        if not names:
            return None
        manifest = job.manifest()
        names = await self._filter(manifest, names)
        if len(names) <= 1:
            return names[0] if names else None
        extra = await self._prioritize(manifest, names)
        totals = {
            name: self._cluster.nodes[name].least_allocated()
            + PER_POINT * WEIGHT * extra.get(name, 0)
            for name in names
        }
        highest = max(totals.values())
        return self._draw.choice([name for name in names if totals[name] == highest])

    async def _filter(self, manifest: dict[str, Any], names: list[str]) -> list[str]:
        try:
            reply = await self._webhook.call("filter", _args(manifest, names))
        except WebhookFailed as error:
            log.warning("extender_ignored", error=str(error))
            return names
        if reply.get("Error"):
            log.warning("extender_ignored", error=reply["Error"])
            return names
        return reply.get("NodeNames") or []

    async def _prioritize(self, manifest: dict[str, Any], names: list[str]) -> dict[str, int]:
        try:
            reply = await self._webhook.call("prioritize", _args(manifest, names))
        except WebhookFailed as error:
            log.warning("extender_ignored", error=str(error))
            return {}
        return {entry["Host"]: entry["Score"] for entry in reply}


def _args(manifest: dict[str, Any], names: list[str]) -> dict[str, Any]:
    return {"Pod": manifest, "Nodes": None, "NodeNames": names}
