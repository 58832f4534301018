"""Carries plans out: NodeTwins and labels of the cluster become what the view says.

An applier that starts again needs nothing else than the view and what the API server has. One slow
or refused object holds nobody else up: each has its own deadline and its own patience. An API
server that is away is asked again by one, not by all.
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
from joulie_operator.apply.pending_writes import Clock, Differences, Errand, Kept, Step, Wishes
from joulie_operator.cluster_settings import ApplierSettings
from joulie_operator.kube.api_client import TOO_MANY, ApiServer, Unanswered, object_path
from joulie_operator.kube.custom_resources import NODETWINS, NodeTwin, NodeTwinSpec, read_twin
from joulie_operator.observe.facts_from_objects import Node
from joulie_operator.observe.watch import NODES, Cluster
from joulie_projections.state.state import ClusterState

LOOK_S = 0.5  # how soon after a change of the view it is carried out
LONGEST_REST_S = 2.0  # before looking again, however much the last look cost
PASS_S = 2.0  # so much is begun before looking again
FIRST_PAUSE_S, LONGEST_PAUSE_S = 1.0, 30.0
TWIN = {"apiVersion": "joulie.io/v1alpha1", "kind": "NodeTwin"}
_read_node = msgspec.json.Decoder(Node).decode
log = get_logger("apply")


class Pace:
    """At most `rate` a second, and a second's worth at once after a rest."""

    def __init__(self, rate: float) -> None:
        self._rate = rate
        self._next = 0.0

    async def __call__(self) -> None:
        now = asyncio.get_running_loop().time()
        self._next = max(self._next, now - 1.0) + 1 / self._rate
        if self._next > now:
            await asyncio.sleep(self._next - now)


class Believes(Protocol):
    """A view, as far as the applier looks at it."""

    @property
    def cluster_state(self) -> ClusterState: ...


class Applier:
    def __init__(
        self,
        api: ApiServer,
        view: Believes,
        cluster: Cluster,
        selector: dict[str, str],
        settings: ApplierSettings,
    ) -> None:
        self._api = api
        self._view = view
        self._cluster = cluster
        self._settings = settings
        wishes = Wishes(
            selector,
            settings.status_s,
            settings.racks.default_w,
            settings.racks.others_w,
        )
        self._differences = Differences(cluster.nodes, cluster.twins, wishes)
        self._pace = Pace(settings.rate)
        self._is_away = False
        self._pause_s = FIRST_PAUSE_S

    async def run(self) -> None:
        """For ever. It begins once it has seen everything that is there."""
        await self._cluster.nodes.complete.wait()
        await self._cluster.twins.complete.wait()
        while True:
            began = time.process_time()
            errands = self._differences.look(self._view.cluster_state, _now())
            pause_s = rest_s(time.process_time() - began)
            metrics.KUBE_BEHIND.set(len(errands))
            is_left = await self._carry_out(errands)
            if self._is_away:
                await asyncio.sleep(self._pause_s * random.uniform(0.5, 1))
                self._pause_s = min(LONGEST_PAUSE_S, self._pause_s * 2)
            else:
                self._pause_s = FIRST_PAUSE_S
                if not is_left:  # each write of ours is a change, too
                    await self._rest(pause_s)
                await rung(self._cluster.twins.changed, LOOK_S)

    async def _rest(self, seconds: float) -> None:
        await asyncio.sleep(min(seconds, LONGEST_REST_S))

    async def _carry_out(self, errands: Iterable[Errand]) -> bool:
        """As much as a pass may begin. Is something left? It is found again by the next look."""
        waiting, until = deque(errands), time.monotonic() + PASS_S

        async def work() -> None:
            while waiting and not self._is_away and time.monotonic() < until:
                await self._run(waiting.popleft())

        # After an outage one goes first: whether the server is back is not asked by all at once.
        workers = 1 if self._is_away else self._settings.at_once
        self._is_away = False
        async with asyncio.TaskGroup() as tasks:
            for _ in range(min(workers, len(waiting))):
                tasks.create_task(work())
        for errand in waiting:
            self._differences.kept(errand.name).look_again = 0.0
        return bool(waiting)

    async def _run(self, errand: Errand) -> None:
        kept = self._differences.kept(errand.name)
        for step in errand.steps:
            await self._pace()
            try:
                async with asyncio.timeout(self._settings.deadline_s):
                    await self._do(errand.name, kept, step)
            except (KubernetesRefused, BadName, msgspec.DecodeError, TimeoutError) as error:
                self._failed(step.what, errand.name, kept, error)
                return
            except Unanswered as error:
                self._is_away = True
                self._failed(step.what, errand.name, kept, error)
                return
            metrics.KUBE_WRITES.labels(kind=step.what, outcome="done").inc()
        kept.failures = 0

    def _failed(self, what: str, name: str, kept: Kept, error: Exception) -> None:
        kept.failures += 1
        pause_s = min(LONGEST_PAUSE_S, FIRST_PAUSE_S * 2 ** min(10, kept.failures - 1))
        if isinstance(error, KubernetesRefused):
            pause_s = max(pause_s, error.retry_after_s)
            self._is_away = self._is_away or error.code == TOO_MANY
        kept.not_before = time.monotonic() + pause_s * random.uniform(0.75, 1.25)
        kept.look_again = 0.0
        metrics.KUBE_WRITES.labels(kind=what, outcome="failed").inc()
        log.warning(
            "not_applied", what=what, node=name, error=str(error), again_in_s=round(pause_s, 1)
        )

    async def _do(self, name: str, kept: Kept, step: Step) -> None:
        match step.what:
            case "spec":
                assert step.spec is not None
                await self._apply_spec(name, kept, step.spec)
            case "status":
                await self._apply_status(name, kept)
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

    async def _apply_spec(self, name: str, kept: Kept, spec: NodeTwinSpec) -> None:
        before = self._cluster.twins.get(name)
        body = TWIN | {"metadata": {"name": name}, "spec": msgspec.to_builtins(spec)}
        twin = read_twin(await self._api.apply(object_path(NODETWINS, name), body))
        self._cluster.twins.put(twin)
        kept.told = spec
        await self._announce(twin, before, spec)

    async def _apply_status(self, name: str, kept: Kept) -> None:
        """The twin as it is by now, over the object as the last answer showed it."""
        twin, node = self._cluster.twins.get(name), self._view.cluster_state.nodes.get(name)
        if twin is None or node is None:
            return
        status = self._differences.status(twin, node, time.time_ns())
        body = TWIN | {"metadata": {"name": name}, "status": msgspec.to_builtins(status)}
        answer = await self._api.apply(object_path(NODETWINS, name, "status"), body)
        self._cluster.twins.put(read_twin(answer))
        kept.status, kept.status_at = status, time.monotonic()

    async def _announce(self, twin: NodeTwin, before: NodeTwin | None, spec: NodeTwinSpec) -> None:
        """For people who look with kubectl. Best effort: the log holds the truth of it."""
        event = event_of(twin.metadata, before.spec if before else None, spec, time.time_ns())
        if event is None:
            return
        try:
            await self._api.create(EVENTS, event)
        except (KubernetesRefused, *Unanswered) as error:
            metrics.KUBE_WRITES.labels(kind="event", outcome="failed").inc()
            log.info("not_announced", node=twin.metadata.name, error=str(error))


def _now() -> Clock:
    return Clock(time.monotonic(), time.time_ns())
