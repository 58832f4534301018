"""Models of what surrounds Joulie: the API server, its watch, agents, and pods that come and go."""

import asyncio
import random
import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import msgspec
from simulated_hours import Pace
from simulated_models import Meters, PodPlaces
from virtual_time import require_alive

from bus_kit import CLUSTER, hardware, inventory, node_seen, power
from joulie_bus.events import AnyEvent, PodAsk, PodBound, PodGone, PodPending
from joulie_bus.log.producer import Producer
from joulie_bus.log.protocol import Log
from joulie_bus.streams.subjects import agent_name
from joulie_extender.binding.binder import BindRequest, BindResult, LookupFailed, PodLookup
from joulie_operator.observe.watch import catches_up
from joulie_projections.pods.demand import ask_of
from joulie_projections.pods.gpu_request import ASSIGNED_CARDS
from joulie_projections.pods.kubernetes_pod import Pod
from joulie_projections.view.view import View
from kube_scheduler import a_pod

PLAIN, WITH_CARDS = ("n1", "n2", "n3"), ("g1", "g2")
NODES = PLAIN + WITH_CARDS
CALL_S = 0.004  # of the API server, on average


class PodModel(NamedTuple):
    manifest: dict[str, Any]
    ask: PodAsk
    node: str = ""
    cards: tuple[str, ...] = ()


class ApiServer:
    """Pods, and what a watch reports of them. It never fails; calls to it may."""

    def __init__(self, rng: random.Random, fail: Callable[[str], None]) -> None:
        self.pods: dict[str, PodModel] = {}
        self.places = PodPlaces()
        self.changes: list[AnyEvent] = []
        self.changed = asyncio.Event()
        self.lost_share = 0.0  # of requests, and of replies
        self._rng = rng
        self._fail = fail
        self._numbers = 0

    def create(self, *, gpus: int = 0, workload: str = "") -> str:
        self._numbers += 1
        manifest = a_pod(f"pod-{self._numbers}", workload=workload, gpus=gpus or None)
        ask = ask_of(msgspec.convert(manifest, Pod))
        self.pods[ask.uid] = PodModel(manifest, ask)
        self.places.put(ask.uid)
        self._report(PodPending(pod=ask))
        return ask.uid

    def delete(self, uid: str) -> None:
        del self.pods[uid]
        self.places.remove(uid)
        self._report(PodGone(uid=uid))

    def bind(self, request: BindRequest) -> BindResult:
        known = self.pods.get(request.uid)
        if known is None:
            return BindResult("gone")
        if known.node:
            return BindResult("conflict")
        self._require_free(request)
        manifest = dict(known.manifest)
        notes = {ASSIGNED_CARDS: ",".join(request.cards)} if request.cards else {}
        manifest["metadata"] = manifest["metadata"] | {
            "annotations": manifest["metadata"]["annotations"] | notes
        }
        bound = PodModel(
            manifest, ask_of(msgspec.convert(manifest, Pod)), request.node, request.cards
        )
        self.pods[request.uid] = bound
        self.places.put(request.uid, request.node)
        self._report(PodBound(pod=bound.ask, node=bound.node))
        return BindResult("made")

    def _require_free(self, request: BindRequest) -> None:
        for uid, pod in self.pods.items():
            if twice := sorted({*pod.cards} & {*request.cards}):
                self._fail(f"the cards {', '.join(twice)} were given to {uid} and to {request.uid}")

    def listed(self) -> Iterator[AnyEvent]:
        for node in NODES:
            yield node_seen(node, cores=16, gpus=2 if node in WITH_CARDS else 0)
        for pod in self.pods.values():
            yield PodBound(pod=pod.ask, node=pod.node) if pod.node else PodPending(pod=pod.ask)

    def _report(self, event: AnyEvent) -> None:
        self.changes.append(event)
        self.changed.set()

    async def round_trip(self) -> bool:
        """False if the request or the reply is lost."""
        require_alive()
        await asyncio.sleep(self._rng.expovariate(1 / CALL_S))
        require_alive()
        return self._rng.random() >= self.lost_share


class ModelBinder:
    """Creates Bindings at the model of the API server."""

    def __init__(self, api: ApiServer) -> None:
        self._api = api

    async def bind(self, request: BindRequest) -> BindResult:
        if not await self._api.round_trip():
            return BindResult("unclear", "the request was lost")
        done = self._api.bind(request)
        return done if await self._api.round_trip() else BindResult("unclear", "the reply was lost")

    async def find(self, namespace: str, name: str, uid: str) -> PodLookup:
        if not await self._api.round_trip():
            raise LookupFailed("the request was lost")
        pod = self._api.pods.get(uid)
        if pod is None:
            return PodLookup("gone")
        return PodLookup("bound" if pod.node else "waiting", pod.node, pod.cards, pod.ask)


async def watch(api: ApiServer, bus: Log, view: View) -> None:
    """As the operator does: what the view has and the API server does not is gone."""
    producer = Producer("operator-obs", CLUSTER, time.time_ns)
    await view.wait_ready(30)
    is_complete, seen = False, 0
    while not is_complete:
        is_complete = await catches_up(view)
        seen, known = len(api.changes), view.cluster_state.pods.keys()
        gone = [PodGone(uid=uid) for uid in sorted(known - api.pods.keys())]
        await bus.publish([producer.stamp(event) for event in (*api.listed(), *gone)])
    while True:
        if fresh := api.changes[seen:]:
            seen += len(fresh)
            await bus.publish([producer.stamp(event) for event in fresh])
        await api.changed.wait()
        api.changed.clear()


async def sample(node: str, bus: Log, rng: random.Random, meters: Meters, pace: Pace) -> None:
    """The agent of a node: its inventory once, and then its power."""
    producer = Producer(agent_name(node), CLUSTER, time.time_ns)
    first = inventory(node) if node in WITH_CARDS else None
    await bus.publish([producer.stamp(first)] if first else [])
    while True:
        reading = power(node, rng.uniform(100, 500))
        meters.begin(node, reading.power_mw)
        await bus.publish([producer.stamp(reading)])
        meters.end(node)
        await asyncio.sleep(pace.pause_s(rng))


async def discover(bus: Log) -> None:
    producer = Producer("operator-hardware", CLUSTER, time.time_ns)
    await bus.publish([producer.stamp(hardware(node, cores=16)) for node in PLAIN])
