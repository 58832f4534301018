"""Changes the requests of pods that consent, and gives them back.

Each look lists the pods that consent and those with other requests than their own. An order is in
the log before it is carried out; what the API server refuses is, too. Nothing is remembered but
which refusals were published: the pods themselves hold the rest, so a restart continues.
"""

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import NamedTuple

from joulie_bus.errors import BadName, BadQuantity, BusError, KubernetesRefused, StoreError
from joulie_bus.events import PodResize, Resized, ResizeOrdered, ResizeRefused
from joulie_bus.log.producer import Producer
from joulie_bus.log.protocol import Log
from joulie_bus.runtime import metrics
from joulie_bus.runtime.logging import get_logger
from joulie_bus.streams.subjects import Subjects
from joulie_operator.apply.resize_writer import ResizeWriter
from joulie_operator.facts.resizable_pods import SizedPod, Surroundings, resizable
from joulie_operator.kube.api_client import ApiServer, ApiUnreachable
from joulie_operator.observe.consenting_pods import ConsentingPods
from joulie_operator.planning.resizes import (
    GivenBack,
    KnownUse,
    Mode,
    ResizablePod,
    decision,
)
from joulie_projections.energy.right_size import basis_of
from joulie_projections.energy.use import KEPT_MS, WorkloadUse
from joulie_projections.pods.workload_name import workload_of
from joulie_projections.store.energy_table import EnergyTable, UseReading
from joulie_projections.view.view import View

LOOK_S = 60.0
MAX_VIEW_AGE_S = 30.0
MOST_ORDERS = 100  # of one look
REFUSED_PAUSE_S = 600.0  # before a pod whose order was refused gets another one
NS_PER_MS = 1_000_000
OpenEnergy = Callable[[], AbstractContextManager[EnergyTable]]
log = get_logger("resizes")


class _Waits(NamedTuple):
    """Of a workload at the last look."""

    known_s: int
    waited: int
    permille: int | None = None  # None: it needs two looks

    @classmethod
    def after(cls, last: "_Waits | None", use: WorkloadUse) -> "_Waits":
        known_s, waited = use.cpu_waits.known_s, use.cpu_waits.waited
        if last is None:
            return cls(known_s, waited)
        more_s, more = known_s - last.known_s, waited - last.waited
        if more_s == 0:
            return last
        # There is less when a day is no more kept.
        return cls(known_s, waited, min(1000, more // more_s) if more_s > 0 <= more else None)


class Resizer:
    def __init__(
        self,
        api: ApiServer,
        bus: Log,
        subjects: Subjects,
        view: View,
        open_energy: OpenEnergy,
        mode: Mode,
    ) -> None:
        self._bus, self._view = bus, view
        self._mode: Mode = mode
        self._pods = ConsentingPods(api, mode)
        self._writer = ResizeWriter(api)
        self._open_energy = open_energy
        self._producer = Producer("operator-resize", subjects, view.now_ns)
        self._waits: dict[tuple[str, str], _Waits] = {}
        self._said: dict[str, str] = {}  # the reason of the newest refusal, by the uid of the pod
        self._not_before: dict[str, float] = {}  # monotonic seconds, by the uid of the pod

    async def run(self) -> None:
        """Runs until cancelled."""
        while True:
            await asyncio.sleep(LOOK_S)
            if not self._view.is_ready or self._view.age_s > MAX_VIEW_AGE_S:
                continue
            try:
                await self.look_once()
            except (KubernetesRefused, BusError, StoreError, *ApiUnreachable) as error:
                why = str(error) or type(error).__name__
                log.warning("requests_not_looked_at", why=why, what="the next look tries again")

    async def look_once(self) -> None:
        found = await self._pods.found(self._view.cluster_state.namespaces)
        pods = [pod for each in found.pods if (pod := _read(each, found.around)) is not None]
        self._forget(pods)
        metrics.RESIZES_PENDING.set(sum(bool(pod.pending) for pod in pods))
        if not pods:
            return
        now, known = self._view.now_ns(), await self._known_uses()
        left = MOST_ORDERS
        for pod in pods:
            decided = decision(pod, known.get(_workload(pod), KnownUse()), self._mode, now)
            match decided:
                case ResizeOrdered() if left and self._may_order(pod):
                    left -= 1
                    await self._carry_out(pod, decided, now)
                case ResizeRefused():
                    await self._refuse(decided)
                case GivenBack():
                    await self._unmark(pod)
                case _:
                    pass

    def _may_order(self, pod: ResizablePod) -> bool:
        return time.monotonic() >= self._not_before.get(pod.uid, 0.0)

    async def _carry_out(self, pod: ResizablePod, order: ResizeOrdered, now: int) -> None:
        await self._publish(order)
        self._said.pop(pod.uid, None)  # each order has an answer
        about = {"node": pod.node, "uid": pod.uid, "pod": order.pod}
        try:
            await self._writer.carry_out(pod, order, now)
        except (KubernetesRefused, BadName) as error:
            self._not_before[pod.uid] = time.monotonic() + REFUSED_PAUSE_S
            await self._refuse(ResizeRefused(**about, reason="api-server", because=str(error)))
            if pod.original is None:
                await self._unmark(pod)  # nothing was changed: it may be ordered again today
            return
        metrics.RESIZES.labels(outcome=order.change).inc()
        log.info("resized", pod=order.pod, node=pod.node, change=order.change, why=order.because)
        await self._publish(Resized(**about, change=order.change, after=order.after))

    async def _unmark(self, pod: ResizablePod) -> None:
        try:
            await self._writer.unmark(pod)
        except KubernetesRefused as error:  # it is gone, or the next look tries again
            log.info("mark_not_removed", pod=f"{pod.namespace}/{pod.name}", why=str(error))

    async def _refuse(self, refused: ResizeRefused) -> None:
        """Once for each reason of a pod."""
        if self._said.get(refused.uid) == refused.reason:
            return
        await self._publish(refused)
        self._said[refused.uid] = refused.reason
        metrics.RESIZES.labels(outcome="refused").inc()

    async def _publish(self, event: PodResize) -> None:
        await self._bus.publish([self._producer.stamp(event)])

    def _forget(self, pods: Sequence[ResizablePod]) -> None:
        uids = {pod.uid for pod in pods}
        self._said = {uid: why for uid, why in self._said.items() if uid in uids}
        self._not_before = {uid: at for uid, at in self._not_before.items() if uid in uids}
        if not pods:
            self._waits.clear()

    # --- use ----------------------------------------------------------------------------------

    async def _known_uses(self) -> Mapping[tuple[str, str], KnownUse]:
        reading = await asyncio.to_thread(self._read_uses)
        uses = {(each.namespace, each.name): each for each in reading.workloads}
        before = self._waits
        self._waits = {key: _Waits.after(before.get(key), use) for key, use in uses.items()}
        return {key: self._known(key, use, reading.position) for key, use in uses.items()}

    def _known(self, key: tuple[str, str], use: WorkloadUse, position: int) -> KnownUse:
        is_metered = bool(use.cpu_waits.known_s)
        return KnownUse(basis_of(use, position), is_metered, self._waits[key].permille)

    def _read_uses(self) -> UseReading:
        from_ms = self._view.now_ns() // NS_PER_MS - KEPT_MS
        with self._open_energy() as table:
            return table.uses(from_ms)


def _read(pod: SizedPod, around: Surroundings) -> ResizablePod | None:
    try:
        return resizable(pod, around)
    except BadQuantity as error:  # as no API server sends
        log.warning("pod_left_out", why=str(error), what="its requests stay")
        return None


def _workload(pod: ResizablePod) -> tuple[str, str]:
    return pod.namespace, workload_of(pod.name)
