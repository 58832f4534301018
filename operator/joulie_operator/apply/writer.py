"""Applies plans: makes the NodeTwins and the node labels of the cluster equal to the view.

After a restart the applier needs only the view and the objects of the API server. Each object has
its own deadline and backoff, so that one slow or refused object does not delay the others. While
the API server is unreachable, a single request probes it.
"""

import asyncio
import random
import time
from collections import deque
from collections.abc import Iterable
from typing import Protocol, assert_never

import msgspec

from joulie_bus.errors import BadName, KubernetesRefused
from joulie_bus.runtime import metrics
from joulie_bus.runtime.logging import get_logger
from joulie_bus.runtime.pacing import rest_s
from joulie_bus.runtime.tasks import rung
from joulie_operator.apply.kubernetes_events import EVENTS, event_of
from joulie_operator.apply.pending_writes import (
    NodeWrites,
    NodeWriteState,
    Now,
    WriteOptions,
    WritePlanner,
    WriteStep,
)
from joulie_operator.cluster_settings import ApplierSettings
from joulie_operator.kube.api_client import TOO_MANY, ApiServer, ApiUnreachable, object_path
from joulie_operator.kube.custom_resources import NODETWINS, NodeTwin, NodeTwinSpec, read_twin
from joulie_operator.observe.facts_from_objects import Node
from joulie_operator.observe.watch import NODES, ObservedCluster
from joulie_projections.state.state import ClusterState

CHECK_INTERVAL_S = 0.5  # how often the view is checked for changes
MAX_REST_S = 2.0  # longest pause after an expensive check
PASS_S = 2.0  # no new write starts later than this in a pass
FIRST_PAUSE_S, LONGEST_PAUSE_S = 1.0, 30.0
TWIN = {"apiVersion": "joulie.io/v1alpha1", "kind": "NodeTwin"}
_read_node = msgspec.json.Decoder(Node).decode
log = get_logger("apply")


class RateLimiter:
    """At most `rate` calls per second, with a burst of one second's worth after idle time."""

    def __init__(self, rate: float) -> None:
        self._rate = rate
        self._next = 0.0

    async def __call__(self) -> None:
        now = asyncio.get_running_loop().time()
        self._next = max(self._next, now - 1.0) + 1 / self._rate
        if self._next > now:
            await asyncio.sleep(self._next - now)


class HasClusterState(Protocol):
    """The part of a view that the applier reads."""

    @property
    def cluster_state(self) -> ClusterState: ...


class Applier:
    """Applies the view to the cluster, with bounded rate and concurrency."""

    def __init__(
        self,
        api: ApiServer,
        view: HasClusterState,
        cluster: ObservedCluster,
        selector: dict[str, str],
        settings: ApplierSettings,
    ) -> None:
        self._api = api
        self._view = view
        self._cluster = cluster
        self._settings = settings
        options = WriteOptions(
            selector,
            settings.status_s,
            settings.racks.default_w,
            settings.racks.others_w,
        )
        self._planner = WritePlanner(cluster.nodes, cluster.twins, options)
        self._rate_limiter = RateLimiter(settings.rate)
        self._is_unreachable = False
        self._pause_s = FIRST_PAUSE_S

    async def run(self) -> None:
        """Runs until cancelled. Starts once Nodes and NodeTwins have been listed."""
        await self._cluster.nodes.complete.wait()
        await self._cluster.twins.complete.wait()
        while True:
            began = time.process_time()
            pending = self._planner.pending_writes(self._view.cluster_state, _now())
            pause_s = rest_s(time.process_time() - began)
            metrics.KUBE_BEHIND.set(len(pending))
            is_left = await self._write_pending(pending)
            if self._is_unreachable:
                await asyncio.sleep(self._pause_s * random.uniform(0.5, 1))
                self._pause_s = min(LONGEST_PAUSE_S, self._pause_s * 2)
            else:
                self._pause_s = FIRST_PAUSE_S
                if not is_left:  # each write sets `changed`, too
                    await self._rest(pause_s)
                await rung(self._cluster.twins.changed, CHECK_INTERVAL_S)

    async def _rest(self, seconds: float) -> None:
        await asyncio.sleep(min(seconds, MAX_REST_S))

    async def _write_pending(self, pending: Iterable[NodeWrites]) -> bool:
        """Starts writes for one pass. Returns whether some are left for the next pass."""
        waiting, until = deque(pending), time.monotonic() + PASS_S

        async def work() -> None:
            while waiting and not self._is_unreachable and time.monotonic() < until:
                await self._write_all(waiting.popleft())

        # After an outage a single worker probes whether the server is back.
        workers = 1 if self._is_unreachable else self._settings.at_once
        self._is_unreachable = False
        async with asyncio.TaskGroup() as tasks:
            for _ in range(min(workers, len(waiting))):
                tasks.create_task(work())
        for node_writes in waiting:
            self._planner.state(node_writes.name).next_check_at = 0.0
        return bool(waiting)

    async def _write_all(self, node_writes: NodeWrites) -> None:
        state = self._planner.state(node_writes.name)
        for step in node_writes.steps:
            await self._rate_limiter()
            try:
                async with asyncio.timeout(self._settings.deadline_s):
                    await self._write(node_writes.name, state, step)
            except (KubernetesRefused, BadName, msgspec.DecodeError, TimeoutError) as error:
                self._failed(step.what, node_writes.name, state, error)
                return
            except ApiUnreachable as error:
                self._is_unreachable = True
                self._failed(step.what, node_writes.name, state, error)
                return
            metrics.KUBE_WRITES.labels(kind=step.what, outcome="done").inc()
        state.failures = 0

    def _failed(self, what: str, name: str, state: NodeWriteState, error: Exception) -> None:
        state.failures += 1
        pause_s = min(LONGEST_PAUSE_S, FIRST_PAUSE_S * 2 ** min(10, state.failures - 1))
        if isinstance(error, KubernetesRefused):
            pause_s = max(pause_s, error.retry_after_s)
            self._is_unreachable = self._is_unreachable or error.code == TOO_MANY
        state.not_before = time.monotonic() + pause_s * random.uniform(0.75, 1.25)
        state.next_check_at = 0.0
        metrics.KUBE_WRITES.labels(kind=what, outcome="failed").inc()
        log.warning(
            "not_applied", what=what, node=name, error=str(error), retry_in_s=round(pause_s, 1)
        )

    async def _write(self, name: str, state: NodeWriteState, step: WriteStep) -> None:
        match step.what:
            case "spec":
                assert step.spec is not None
                await self._apply_spec(name, state, step.spec)
            case "status":
                await self._apply_status(name, state)
            case "label":
                meta = {"name": name} | ({"labels": dict(step.labels)} if step.labels else {})
                body = {"apiVersion": "v1", "kind": "Node", "metadata": meta}
                self._cluster.nodes.put(
                    _read_node(await self._api.apply(object_path(NODES, name), body))
                )
            case "delete":
                await self._api.delete(object_path(NODETWINS, name))
                self._cluster.twins.drop(name)
            case _:
                assert_never(step.what)

    async def _apply_spec(self, name: str, state: NodeWriteState, spec: NodeTwinSpec) -> None:
        before = self._cluster.twins.get(name)
        body = TWIN | {"metadata": {"name": name}, "spec": msgspec.to_builtins(spec)}
        twin = read_twin(await self._api.apply(object_path(NODETWINS, name), body))
        self._cluster.twins.put(twin)
        state.written_spec = spec
        await self._record_event(twin, before, spec)

    async def _apply_status(self, name: str, state: NodeWriteState) -> None:
        """Computes the status anew, from the current view and the cached NodeTwin."""
        twin, node = self._cluster.twins.get(name), self._view.cluster_state.nodes.get(name)
        if twin is None or node is None:
            return
        status = self._planner.status(twin, node, time.time_ns())
        body = TWIN | {"metadata": {"name": name}, "status": msgspec.to_builtins(status)}
        answer = await self._api.apply(object_path(NODETWINS, name, "status"), body)
        self._cluster.twins.put(read_twin(answer))
        state.status, state.status_at = status, time.monotonic()

    async def _record_event(
        self, twin: NodeTwin, before: NodeTwin | None, spec: NodeTwinSpec
    ) -> None:
        """Best effort: the event log remains the record of transitions."""
        event = event_of(twin.metadata, before.spec if before else None, spec, time.time_ns())
        if event is None:
            return
        try:
            await self._api.create(EVENTS, event)
        except (KubernetesRefused, *ApiUnreachable) as error:
            metrics.KUBE_WRITES.labels(kind="event", outcome="failed").inc()
            log.info("event_not_created", node=twin.metadata.name, error=str(error))


def _now() -> Now:
    return Now(time.monotonic(), time.time_ns())
