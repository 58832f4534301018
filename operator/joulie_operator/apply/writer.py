"""Applies plans: makes the NodeTwins and the node labels of the cluster equal to the view.

After a restart the applier needs only the view and the objects of the API server. Each object has
its own deadline and backoff, so that one slow or refused object does not delay the others. While
the API server is unreachable, a single request probes it.
"""

import asyncio
import random
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple, Protocol, assert_never

import msgspec

from joulie_bus.core.backoff import Backoff
from joulie_bus.core.pacing import rest_s
from joulie_bus.core.undecodable import UNDECODABLE
from joulie_bus.errors import BadName, KubernetesRefused
from joulie_bus.runtime import metrics
from joulie_bus.runtime.logging import get_logger
from joulie_bus.runtime.tasks import wait_and_clear
from joulie_operator.cluster_settings import ApplierSettings
from joulie_operator.desired.kubernetes_events import EVENTS, event_of
from joulie_operator.desired.objects import POWER_LABEL
from joulie_operator.desired.pending_writes import (
    NodeWrites,
    NodeWriteState,
    Now,
    WriteOptions,
    WritePlanner,
    WriteStep,
)
from joulie_operator.desired.write_pace import WritePace
from joulie_operator.facts.facts_from_objects import Node
from joulie_operator.kube.api_client import TOO_MANY, ApiServer, ApiUnreachable, object_path
from joulie_operator.observe.watch import NODES, ObservedCluster
from joulie_operator.resources.custom_resources import NODETWINS, NodeTwin, NodeTwinSpec, read_twin
from joulie_projections.state.state import ClusterState

CHECK_INTERVAL_S = 0.5  # how often the view is checked for changes
MAX_REST_S = 2.0  # longest pause after an expensive check
PASS_S = 2.0  # no new write starts later than this in a pass
BURST_S = 0.25  # idle time that may be made up for
MAX_EVENTS = 20_000  # Kubernetes events that wait; the oldest are dropped
FIRST_PAUSE_S, LONGEST_PAUSE_S = 1.0, 30.0
TWIN = {"apiVersion": "joulie.io/v1alpha1", "kind": "NodeTwin"}
_read_node = msgspec.json.Decoder(Node).decode
log = get_logger("apply")


class RateLimiter:
    """At most as many calls per second as the pace allows, with a short burst after idle time."""

    def __init__(self, pace: WritePace) -> None:
        self._pace = pace
        self._next = 0.0

    async def __call__(self) -> None:
        now = asyncio.get_running_loop().time()
        self._next = max(self._next, now - BURST_S) + 1 / self._pace.rate
        if self._next > now:
            await asyncio.sleep(self._next - now)


class Transition(NamedTuple):
    """A change of a NodeTwin that becomes a Kubernetes event."""

    twin: NodeTwin
    before: NodeTwinSpec | None
    spec: NodeTwinSpec
    at_ns: int


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
        clock: Callable[[], int] = time.time_ns,
    ) -> None:
        self._api = api
        self._view = view
        self._clock = clock
        self._cluster = cluster
        self._settings = settings
        options = WriteOptions(
            selector,
            settings.status_s,
            settings.racks.default_w,
            settings.racks.others_w,
        )
        self._planner = WritePlanner(cluster.nodes, cluster.twins, options)
        self._pace = WritePace(settings.rate)
        self._rate_limiter = RateLimiter(self._pace)
        self._transitions: deque[Transition] = deque(maxlen=MAX_EVENTS)
        self._is_unreachable = False
        self._backoff = Backoff(FIRST_PAUSE_S, LONGEST_PAUSE_S)

    async def run(self) -> None:
        """Runs until cancelled. Starts once Nodes and NodeTwins have been listed."""
        await self._cluster.nodes.complete.wait()
        await self._cluster.twins.complete.wait()
        while True:
            began = time.process_time()
            pending = self._planner.pending_writes(self._view.cluster_state, self._now())
            pause_s = rest_s(time.process_time() - began)
            metrics.KUBE_BEHIND.set(len(pending))
            is_left = await self._write_pending(pending)
            if self._is_unreachable:
                await asyncio.sleep(self._backoff.failed() * random.uniform(0.5, 1))
            else:
                self._backoff.succeeded()
                if not is_left:  # each write sets `changed`, too
                    await self._rest(pause_s)
                await wait_and_clear(self._cluster.twins.changed, CHECK_INTERVAL_S)

    def _now(self) -> Now:
        return Now(time.monotonic(), self._clock())

    async def _rest(self, seconds: float) -> None:
        await asyncio.sleep(min(seconds, MAX_REST_S))

    async def _write_pending(self, pending: Iterable[NodeWrites]) -> bool:
        """Starts writes for one pass. Returns whether some are left for the next pass.

        NodeTwins without a class come first. Statuses of the others, labels that may wait, and
        Kubernetes events come last.
        """
        waiting, until = deque(sorted(pending, key=_order)), time.monotonic() + PASS_S

        async def work() -> None:
            while not self._is_unreachable and time.monotonic() < until:
                if waiting:
                    await self._write_all(waiting.popleft(), waiting)
                elif self._transitions:
                    await self._record_event(self._transitions.popleft())
                else:
                    return

        # After an outage a single worker probes whether the server is back.
        workers = 1 if self._is_unreachable else self._settings.at_once
        self._is_unreachable = False
        async with asyncio.TaskGroup() as tasks:
            for _ in range(min(workers, len(waiting) + len(self._transitions))):
                tasks.create_task(work())
        for node_writes in waiting:
            self._planner.leave(node_writes)
        metrics.KUBE_WRITE_RATE.set(self._pace.rate)
        return bool(waiting or self._transitions)

    async def _write_all(self, node_writes: NodeWrites, waiting: deque[NodeWrites]) -> None:
        """Writes the steps of a node in order; a label after other steps waits at the end."""
        state = self._planner.state(node_writes.name)
        for number, step in enumerate(node_writes.steps):
            if step.what == "label" and number > 0:
                waiting.append(NodeWrites(node_writes.name, [step]))
                break
            await self._rate_limiter()
            began = time.monotonic()
            try:
                async with asyncio.timeout(self._settings.deadline_s):
                    await self._write(node_writes.name, state, step)
            except (KubernetesRefused, BadName, *UNDECODABLE, TimeoutError) as error:
                self._failed(step.what, node_writes.name, state, error)
                return
            except ApiUnreachable as error:
                self._is_unreachable = True
                self._failed(step.what, node_writes.name, state, error)
                return
            self._pace.written(time.monotonic() - began, time.monotonic())
            metrics.KUBE_WRITES.labels(kind=step.what, outcome="done").inc()
        state.failures = 0

    def _failed(self, what: str, name: str, state: NodeWriteState, error: Exception) -> None:
        state.failures += 1
        pause_s = self._backoff.after(state.failures) * random.uniform(0.75, 1.25)
        if isinstance(error, KubernetesRefused):
            pause_s = max(pause_s, error.retry_after_s * random.uniform(1.0, 1.25))  # never earlier
            self._is_unreachable = self._is_unreachable or error.code == TOO_MANY
        self._note_overload(error)
        state.not_before = time.monotonic() + pause_s
        state.next_check_at = 0.0
        metrics.KUBE_WRITES.labels(kind=what, outcome="failed").inc()
        log.warning(
            "not_applied", what=what, node=name, error=str(error), retry_in_s=round(pause_s, 1)
        )

    def _note_overload(self, error: Exception) -> None:
        is_refused = isinstance(error, KubernetesRefused) and error.code == TOO_MANY
        if is_refused or isinstance(error, TimeoutError):
            self._pace.refused(time.monotonic())

    async def _write(self, name: str, state: NodeWriteState, step: WriteStep) -> None:
        match step.what:
            case "spec":
                assert step.spec is not None
                await self._apply_spec(name, state, step.spec)
            case "status":
                await self._apply_status(name, state)
            case "label":
                body = _node_with(name, step.labels)
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
        was = before.spec if before else None
        self._transitions.append(Transition(twin, was, spec, self._clock()))

    async def _apply_status(self, name: str, state: NodeWriteState) -> None:
        """Computes the status anew, from the current view and the cached NodeTwin."""
        twin, node = self._cluster.twins.get(name), self._view.cluster_state.nodes.get(name)
        if twin is None or node is None:
            return
        status = self._planner.status(twin, node, self._clock())
        body = TWIN | {"metadata": {"name": name}, "status": msgspec.to_builtins(status)}
        answer = await self._api.apply(object_path(NODETWINS, name, "status"), body)
        self._cluster.twins.put(read_twin(answer))
        state.status, state.status_at = status, time.monotonic()

    async def _record_event(self, transition: Transition) -> None:
        """Best effort: the event log remains the record of transitions."""
        twin, before, spec, at_ns = transition
        event = event_of(twin.metadata, before, spec, at_ns)
        if event is None:
            return
        await self._rate_limiter()
        try:
            await self._api.create(EVENTS, event)
        except (KubernetesRefused, *ApiUnreachable) as error:
            self._note_overload(error)
            metrics.KUBE_WRITES.labels(kind="event", outcome="failed").inc()
            log.info("event_not_created", node=twin.metadata.name, error=str(error))


def _node_with(name: str, labels: Mapping[str, str]) -> dict[str, object]:
    """The Node to apply. A node that is to sleep is cordoned, so that no pod arrives; without the
    field, server-side apply removes the operator's cordon and no other."""
    meta = {"name": name} | ({"labels": dict(labels)} if labels else {})
    cordon = {"spec": {"unschedulable": True}} if POWER_LABEL in labels else {}
    return {"apiVersion": "v1", "kind": "Node", "metadata": meta, **cordon}


def _order(node_writes: NodeWrites) -> int:
    kinds = {step.what for step in node_writes.steps}
    if node_writes.is_new and kinds != {"label"}:
        return 0
    return 3 if kinds == {"label"} else 2 if kinds == {"status"} else 1
