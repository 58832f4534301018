"""Evicts the pods of nodes that a plan empties, through the Eviction API.

The plan is in the view, so a restart continues. Each pod is judged again as the API server has it:
if one of them has to stay, none of its node is evicted. The API server keeps the budgets of
PodDisruptionBudgets; a pod that it refuses is asked for again later.
"""

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
from joulie_operator.desired.kubernetes_events import EVENTS, node_event
from joulie_operator.kube.api_client import (
    CONFLICT,
    FORBIDDEN,
    NOT_FOUND,
    TOO_MANY,
    ApiServer,
    ApiUnreachable,
)
from joulie_operator.observe.watch import PODS
from joulie_operator.planning.rules import rules_of
from joulie_operator.planning.sleep import sleep_numbers
from joulie_operator.power.evictable import LivePod, has_ended, named, why_it_stays
from joulie_operator.power.eviction import evict
from joulie_projections.state.state import NodeState
from joulie_projections.view.view import View

CHECK_INTERVAL_S = 2.0
MAX_VIEW_AGE_S = 30.0
REFUSED = Backoff(10.0, 300.0)
_read_pod = msgspec.json.Decoder(LivePod).decode
log = get_logger("evictions")


class _Attempts(NamedTuple):
    """The refusals of one pod, or of one node whose pods have to stay."""

    refused: int
    not_before: float  # monotonic seconds


class Evictor:
    """Evicts at most so many pods a minute as the number `evict_per_min` of the plan allows."""

    def __init__(
        self,
        api: ApiServer,
        view: View,
        clock: Callable[[], int] | None = None,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._api, self._view, self._clock, self._monotonic = (
            api,
            view,
            clock or view.now_ns,
            monotonic,
        )
        self._attempts: dict[str, _Attempts] = {}  # by the uid of a pod, or the name of a node
        self._reported: set[tuple[str, int, str]] = set()
        self._next = 0.0

    async def run(self) -> None:
        """Runs until cancelled."""
        while True:
            if self._view.is_ready and self._view.age_s <= MAX_VIEW_AGE_S:
                await self.evict_once()
            await asyncio.sleep(CHECK_INTERVAL_S)

    async def evict_once(self) -> None:
        """At most one eviction."""
        ordered = self._ordered()
        self._forget(ordered)
        if not ordered or self._monotonic() < self._next:
            return
        pause_s = 60.0 / self._rate()  # before any await: a newer plan may allow none
        for name, node in ordered.items():
            try:
                if self._may_ask(name) and await self._evict_one_of(name, node):
                    self._next = self._monotonic() + pause_s
                    return
            except ApiUnreachable as error:
                log.warning("not_evicted", node=name, why=f"{type(error).__name__}: {error}")
                return
            except (KubernetesRefused, BadName, *UNDECODABLE) as error:
                self._refused(name)
                log.warning("not_evicted", node=name, why=str(error))

    def _ordered(self) -> Mapping[str, NodeState]:
        nodes = self._view.cluster_state.nodes.items()
        return {name: node for name, node in nodes if _is_emptied(node)} if self._rate() else {}

    def _rate(self) -> float:
        """Evictions per minute by the newest plan; 0: none is allowed any more."""
        plan = self._view.cluster_state.plan
        return sleep_numbers(rules_of(plan.settings)).evict_per_min if plan else 0.0

    def _forget(self, ordered: Mapping[str, NodeState]) -> None:
        """Without any order there is nothing to remember; pods are forgotten with the last one."""
        orders = {(name, node.evict_at) for name, node in ordered.items()}
        self._reported = {each for each in self._reported if each[:2] in orders}
        if not ordered:
            self._attempts.clear()

    def _may_ask(self, key: str) -> bool:
        known = self._attempts.get(key)
        return known is None or self._monotonic() >= known.not_before

    async def _evict_one_of(self, name: str, node: NodeState) -> bool:
        """Whether a pod was evicted."""
        pods = await self._pods_of(name)
        namespaces = self._view.cluster_state.namespaces
        for pod in pods:
            if why := why_it_stays(pod, namespaces.get(pod.metadata.namespace or "")):
                self._refused(name)
                await self._report(name, node, named(pod), why, "kept")
                return False
        for pod in pods:
            if pod.is_ending or not self._may_ask(pod.metadata.uid or ""):
                continue
            if self._is_withdrawn(name, node):
                return False
            if await self._evict(name, node, pod):
                return True
        return False

    async def _pods_of(self, node: str) -> list[LivePod]:
        """The pods that keep the node awake, as the API server has them now."""
        found, query = list[LivePod](), {"fieldSelector": f"spec.nodeName={node}"}
        async for page in self._api.pages(PODS, query):
            found.extend(map(_read_pod, page.items))
        return [pod for pod in found if not has_ended(pod)]

    def _is_withdrawn(self, name: str, node: NodeState) -> bool:
        """Whether the node was woken meanwhile, or is not cordoned yet."""
        now = self._view.cluster_state.nodes.get(name)
        return now is None or not _is_emptied(now) or now.evict_at != node.evict_at

    async def _evict(self, name: str, node: NodeState, pod: LivePod) -> bool:
        uid = pod.metadata.uid or ""
        try:
            await evict(self._api, pod)
        except KubernetesRefused as error:
            if error.code in (NOT_FOUND, CONFLICT):  # it is gone, or another one has its name
                return False
            self._refused(uid, error.retry_after_s)
            outcome = "refused" if error.code == TOO_MANY else "failed"
            await self._report(name, node, named(pod), _why(error), outcome)
            return False
        self._attempts.pop(uid, None)
        metrics.EVICTIONS.labels(outcome="evicted").inc()
        log.info("evicted", node=name, pod=named(pod))
        return True

    def _refused(self, key: str, retry_after_s: float = 0.0) -> None:
        refused = self._attempts.get(key, _Attempts(0, 0.0)).refused + 1
        pause_s = max(REFUSED.after(refused), retry_after_s)
        self._attempts[key] = _Attempts(refused, self._monotonic() + pause_s)

    async def _report(self, name: str, node: NodeState, pod: str, why: str, outcome: str) -> None:
        """A metric each time; a log line and an Event once for each order and pod."""
        metrics.EVICTIONS.labels(outcome=outcome).inc()
        if (key := (name, node.evict_at, pod)) in self._reported:
            return
        self._reported.add(key)
        log.warning("not_evicted", node=name, pod=pod, why=why)
        note = f"{pod} is not evicted: {why}"
        event = node_event(name, node.uid, "PodNotEvicted", note, self._clock(), "Evict")
        try:
            await self._api.create(EVENTS, event)
        except (KubernetesRefused, *ApiUnreachable) as error:
            log.info("event_not_created", node=name, error=str(error))


def _is_emptied(node: NodeState) -> bool:
    """Whether its pods are to be evicted. Without the cordon, new ones would come."""
    is_ordered = node.present and node.power_state == "asleep" and node.evict_at > 0
    return is_ordered and not node.schedulable and node.pods > node.daemon_pods


def _why(error: KubernetesRefused) -> str:
    if error.code == FORBIDDEN:
        return f"{error}; the operator needs the right, in the chart operator.evictions=true"
    return str(error)
