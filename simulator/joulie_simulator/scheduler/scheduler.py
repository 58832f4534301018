"""kube-scheduler's cycle as an extender sees it: filter, prioritize, sum, bind."""

import random
from dataclasses import dataclass
from typing import Any, NamedTuple

from joulie_bus.runtime.logging import get_logger
from joulie_simulator.cluster.cluster import SimCluster
from joulie_simulator.cluster.kube_arithmetic import totals
from joulie_simulator.scheduler.webhook import Webhook, WebhookFailed
from joulie_simulator.workload.workload import Job

log = get_logger("simulator")


class Registration(NamedTuple):
    """How the extender is registered."""

    weight: int = 1
    bind: str = ""  # the verb that binds pods with GPUs; empty: the scheduler binds


DEFAULT = Registration()


@dataclass
class Placements:
    """Pods that were bound, and those of them for which the extender gave no answer in time."""

    bound: int = 0
    unanswered: int = 0


class Scheduler:
    """Places one pod at a time, as kube-scheduler does. A failing extender is ignored."""

    def __init__(
        self,
        cluster: SimCluster,
        webhook: Webhook | None,
        draw: random.Random,
        ways: Registration = DEFAULT,
    ) -> None:
        """Without a webhook, only kube-scheduler's own scores count."""
        self._cluster = cluster
        self._webhook = webhook
        self._draw = draw
        self._ways = ways
        self._is_ignored = False  # the extender, for the pod that was placed last
        self.placements = Placements()

    async def place(self, job: Job) -> str | None:
        """The node for the job, or None if it stays pending."""
        self._is_ignored = False
        names = self._cluster.sample(job)
        if not names:
            return None
        manifest = job.manifest()
        names = await self._filter(manifest, names)
        if len(names) <= 1:
            return names[0] if names else None
        extra = await self._prioritize(manifest, names)
        added = totals(self._cluster.plugin_scores(names, job), extra, self._ways.weight)
        highest = max(added.values())
        return self._draw.choice([name for name in names if added[name] == highest])

    async def bind(self, job: Job, node: str) -> bool:
        """Binds the pod that was placed last. Returns False if the extender's bind verb failed: the
        pod then stays pending.
        """
        is_bound = await self._bind(job, node)
        if is_bound:
            self.placements.bound += 1
            self.placements.unanswered += self._is_ignored
        return is_bound

    async def _bind(self, job: Job, node: str) -> bool:
        if self._webhook is None or not self._ways.bind or not job.gpus:
            return True
        try:
            reply = await self._webhook.call(self._ways.bind, _binding(job, node))
        except WebhookFailed as error:
            log.warning("not_bound", pod=job.name, error=str(error))
            return False
        if reply.get("Error"):
            log.warning("not_bound", pod=job.name, error=reply["Error"])
        return not reply.get("Error")

    async def _filter(self, manifest: dict[str, Any], names: list[str]) -> list[str]:
        if self._webhook is None:
            return names
        try:
            reply = await self._webhook.call("filter", _args(manifest, names))
        except WebhookFailed as error:
            self._ignore(str(error))
            return names
        if reply.get("Error"):
            self._ignore(reply["Error"])
            return names
        return reply.get("NodeNames") or []

    async def _prioritize(self, manifest: dict[str, Any], names: list[str]) -> dict[str, int]:
        if self._webhook is None:
            return {}
        try:
            reply = await self._webhook.call("prioritize", _args(manifest, names))
        except WebhookFailed as error:
            self._ignore(str(error))
            return {}
        return {entry["Host"]: entry["Score"] for entry in reply}

    def _ignore(self, why: str) -> None:
        self._is_ignored = True
        log.warning("extender_ignored", error=why)


def _binding(job: Job, node: str) -> dict[str, str]:
    return {
        "PodName": job.name,
        "PodNamespace": job.namespace,
        "PodUID": job.uid,
        "Node": node,
    }


def _args(manifest: dict[str, Any], names: list[str]) -> dict[str, Any]:
    return {"Pod": manifest, "Nodes": None, "NodeNames": names}
