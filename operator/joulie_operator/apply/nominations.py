"""Nominates nodes for pods that the extender refused on a sample of the nodes.

The write to `status.nominatedNodeName` is an update of the pod, so kube-scheduler takes the pod out
of its unschedulable pods; and it tries the nominated node before it takes a sample. It filters that
node as any other, and clears the nomination if the pod does not fit.
"""

import asyncio
import time
from collections.abc import Sequence

from joulie_bus.core.backoff import Backoff
from joulie_bus.core.pacing import rest_s
from joulie_bus.errors import BadName, KubernetesRefused
from joulie_bus.runtime import metrics
from joulie_bus.runtime.logging import get_logger
from joulie_operator.apply.writer import FIRST_PAUSE_S, LONGEST_PAUSE_S, RateLimiter
from joulie_operator.cluster_settings import ApplierSettings
from joulie_operator.desired.write_pace import WritePace
from joulie_operator.kube.api_client import TOO_MANY, ApiServer, ApiUnreachable, object_path
from joulie_operator.planning.refused_on_sample import (
    Nomination,
    Nominator,
    PodRefusedOnSample,
    pods_refused_on_sample,
    refusable_pods,
)
from joulie_projections.view.view import View

PASS_S, LONGEST_REST_S = 1.0, 5.0
MAX_RATE = 50.0  # nominations per second, if APPLY_RATE allows as many
MOST_PODS = 2000  # whose answers one pass reads; more pods take turns
MAX_VIEW_AGE_S = 30.0  # an older view may lack pods and nodes
NAMESPACES = "/api/v1/namespaces"
log = get_logger("nominations")


class NominationWriter:
    """Reads the newest answers about pending pods, and writes nominations with a bounded rate."""

    def __init__(self, api: ApiServer, view: View, settings: ApplierSettings) -> None:
        self._api = api
        self._view = view
        self._deadline_s = settings.deadline_s
        self._rate = min(MAX_RATE, settings.rate)
        self._rate_limiter = RateLimiter(WritePace(self._rate))
        self._nominator = Nominator()
        self._offset = 0
        self._backoff = Backoff(FIRST_PAUSE_S, LONGEST_PAUSE_S)

    async def run(self) -> None:
        """Runs until cancelled."""
        try:
            while True:
                began = time.process_time()
                is_written = await self._pass()
                spent_s = time.process_time() - began
                await asyncio.sleep(min(LONGEST_REST_S, max(PASS_S, rest_s(spent_s))))
                if is_written:
                    self._backoff.succeeded()
                else:
                    await asyncio.sleep(self._backoff.failed())
        finally:
            metrics.PODS_REFUSED_ON_SAMPLE.forget()  # another operator may lead from now on

    async def _pass(self) -> bool:
        """Whether all went well."""
        refused = await self._refused_on_sample()
        metrics.PODS_REFUSED_ON_SAMPLE.set(len(refused))
        state, most = self._view.cluster_state, max(1, int(self._rate * PASS_S))
        nominated = self._nominator.nominations(
            state.nodes, state.pods, refused, time.monotonic(), most
        )
        for nomination in nominated:
            await self._rate_limiter()
            if not await self._write(nomination):
                return False
        return True

    async def _refused_on_sample(self) -> list[PodRefusedOnSample]:
        if not self._view.is_ready or self._view.age_s > MAX_VIEW_AGE_S:
            return []
        uids = self._window(refusable_pods(self._view.cluster_state.pods))
        refusals = await self._view.refusals(uids) if uids else []
        state = self._view.cluster_state
        return pods_refused_on_sample(state.nodes, state.pods, refusals)

    def _window(self, uids: Sequence[str]) -> Sequence[str]:
        """At most MOST_PODS; each pass continues after the pods of the last one."""
        if len(uids) <= MOST_PODS:
            return uids
        first = self._offset % len(uids)
        self._offset = first + MOST_PODS
        return [*uids[first : first + MOST_PODS], *uids[: max(0, first + MOST_PODS - len(uids))]]

    async def _write(self, nomination: Nomination) -> bool:
        """False if the server does not answer or asks for fewer requests."""
        pod, is_answered = nomination.pod, True
        try:
            async with asyncio.timeout(self._deadline_s):
                await self._apply(nomination)
        except (KubernetesRefused, BadName, *ApiUnreachable) as error:
            # Refused with a conflict: preemption has nominated a node, or the pod is another one.
            metrics.KUBE_WRITES.labels(kind="nomination", outcome="failed").inc()
            log.info("not_nominated", pod=f"{pod.namespace}/{pod.name}", error=str(error))
            is_answered = isinstance(error, KubernetesRefused | BadName)
            if isinstance(error, KubernetesRefused) and error.code == TOO_MANY:
                is_answered = False
        else:
            metrics.KUBE_WRITES.labels(kind="nomination", outcome="done").inc()
            log.info("nominated", pod=f"{pod.namespace}/{pod.name}", node=nomination.node)
        return is_answered

    async def _apply(self, nomination: Nomination) -> None:
        pod = nomination.pod
        body = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": pod.name, "namespace": pod.namespace, "uid": pod.uid},
            "status": {"nominatedNodeName": nomination.node},
        }
        pods = object_path(NAMESPACES, pod.namespace, "pods")
        await self._api.apply(object_path(pods, pod.name, "status"), body, force=False)
