"""The simulation itself: time and placements in, facts out. A seed decides all chance.

Time is simulated, in seconds since midnight; the caller advances it. The facts are those that the
watchers and agents of a real cluster publish.
"""

import heapq
import random
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import NamedTuple

import msgspec

from joulie_bus.core.backoff import Backoff
from joulie_bus.events import (
    FacilityPolled,
    Fact,
    GpuGone,
    NodeGone,
    NodeSeen,
    PodAsk,
    PodBound,
    PodFinished,
    PodGone,
    PodPending,
)
from joulie_projections.hardware.gpu_resources import GPU_RESOURCES
from joulie_projections.pods.classify import PROFILE_LABEL
from joulie_projections.pods.demand import ask_of
from joulie_projections.pods.kubernetes_pod import Pod
from joulie_simulator.cluster.cluster import WAKE_S, EndForecast, SimCluster, SimNode
from joulie_simulator.energy.achieved import Achieved, Pods, WorkDone
from joulie_simulator.hardware.physics import Caps, ambient_c, cooling_w, reading_mw
from joulie_simulator.hardware.shapes import card_uuid
from joulie_simulator.workload.workload import Job, Workload

HALL = "simulated-hall"
MORNING_S = 9 * 3600.0  # start of the simulation, while the load rises
WAITING_LIMIT = 500  # pods in the queue; with more, none are created, which bounds memory
UNPLACED = Backoff(1.0, 10.0)  # kube-scheduler's own


class Options(NamedTuple):
    seed: int = 1
    pods_per_s: float = 10.0  # of simulated time
    gpu_resources: tuple[str, ...] = GPU_RESOURCES  # as the extender counts them


class PodUse(NamedTuple):
    """What an agent reads about the pods of its node. Processor time is in simulated seconds."""

    cores: int = 0
    card_max_mw: int = 0
    core_s: float = 0.0  # of all, since the start
    pod_core_s: Mapping[str, float] = {}  # by uid
    holders: Mapping[str, Sequence[str]] = {}  # uids by card


class Sampled(NamedTuple):
    """What the meters of a node show: power with the noise of a sensor, and energy since the start
    in simulated joules."""

    node: str
    power_mw: int
    energy_j: float
    card_mw: dict[str, int] = {}  # noqa: RUF012
    card_j: dict[str, float] = {}  # noqa: RUF012
    pods: PodUse = PodUse()


class PendingPod(NamedTuple):
    """A pending pod; `at_s` is real time, because the scheduler backs off in real time."""

    job: Job
    at_s: float = 0.0
    failures: int = 0

    def later(self, now_s: float) -> "PendingPod":
        failures = self.failures + 1
        return self._replace(at_s=now_s + UNPLACED.after(failures), failures=failures)


class Engine:
    def __init__(self, cluster: SimCluster, workload: Workload, options: Options) -> None:
        self.cluster = cluster
        self.waiting: deque[PendingPod] = deque()
        self.now_s = MORNING_S
        self._workload = workload
        self._options = options
        self._noise = random.Random(options.seed + 1)
        self._card_noise = random.Random(options.seed + 3)
        self._ends: list[EndForecast] = []
        self._next_arrival_s = self.now_s + workload.pause(options.pods_per_s, self.now_s)
        self._it_mw: dict[str, int] = {}
        self._waking: deque[tuple[float, str]] = deque()  # when nodes are awake, soonest first
        self._arrived_s: dict[str, float] = {}  # of pods that wait, by uid
        self._waits_s: list[float] = []  # of pods that were bound
        self._turned_away = 0
        self._done = WorkDone()  # by jobs that have ended
        self._ended = 0

    def initial_facts(self) -> list[Fact]:
        """The facts of a watcher's first list."""
        facts: list[Fact] = []
        for name, node in self.cluster.nodes.items():
            facts.append(_seen(node))
            facts.append(node.shape.discovered(name))
            facts.extend(node.shape.card(name, at) for at in range(node.shape.gpus))
        return facts

    def advance(self, to_s: float) -> list[Fact]:
        """Arrivals and ends until `to_s`, in chronological order."""
        facts: list[Fact] = []
        while (at := min(self._next_arrival_s, self._next_end_s(), self._next_awake_s())) <= to_s:
            self.now_s = max(self.now_s, at)
            if self._next_arrival_s <= at:
                facts += self._arrive()
            elif self._next_awake_s() <= at:
                facts.append(self._awake(self._waking.popleft()[1]))
            else:
                facts += self._finish(heapq.heappop(self._ends))
        self.now_s = max(self.now_s, to_s)
        return facts

    def bind(self, job: Job, name: str) -> list[Fact]:
        """A pod that was on its way when its node fell asleep wakes it at once."""
        node = self.cluster.nodes[name]
        seen = [] if node.power == "awake" else [self._awake(name)]
        cards = node.take(job, self.now_s)
        self._waits_s.append(self.now_s - self._arrived_s.pop(job.uid, self.now_s))
        self._forecast(name)
        return [*seen, PodBound(pod=ask(job, self._options.gpu_resources), node=name), *cards]

    def cap(self, caps: Iterable[tuple[str, Caps]]) -> None:
        """Set the caps that the agents enforce from now on."""
        for name, wanted in caps:
            if self.cluster.nodes[name].cap(wanted, self.now_s):
                self._forecast(name)

    def label(self, profiles: Iterable[tuple[str, str]]) -> list[Fact]:
        """Set node labels, as the operator's writer does; returns facts of changed nodes only."""
        facts: list[Fact] = []
        for name, profile in profiles:
            node = self.cluster.nodes[name]
            if node.profile != profile:
                node.profile = profile
                facts.append(_seen(node))
        return facts

    def order_power(self, orders: Iterable[tuple[str, bool]]) -> list[Fact]:
        """Carry out orders: True is to sleep. A node with jobs is cordoned and stays awake until
        they have ended. Returns the facts of nodes that fell asleep, and of cordons."""
        facts: list[Fact] = []
        for name, is_to_sleep in orders:
            node = self.cluster.nodes[name]
            if is_to_sleep and node.power == "awake" and not node.running:
                node.is_cordoned = False  # a node that is not ready needs no cordon
                node.count(self.now_s)
                node.set_power("asleep")
                facts.append(_seen(node))
                continue
            if node.cordon(is_cordoned=is_to_sleep and bool(node.running)):
                facts.append(_seen(node))
            if not is_to_sleep and node.power == "asleep":
                node.count(self.now_s)
                node.set_power("waking")
                self._waking.append((self.now_s + WAKE_S, name))
        return facts

    def lose(self, name: str) -> list[Fact]:
        """The node leaves the cluster with its cards and pods, whose work is not done."""
        node = self.cluster.nodes[name]
        pods = list(node.running)
        for uid in pods:
            node.release(uid, self.now_s)
        self._forecast(name)
        node.cordon(is_cordoned=True)
        cards = [GpuGone(uuid=card_uuid(name, at)) for at in range(node.shape.gpus)]
        return [*(PodGone(uid=uid) for uid in pods), *cards, NodeGone(node=name)]

    def _awake(self, name: str) -> NodeSeen:
        node = self.cluster.nodes[name]
        node.set_power("awake")
        return _seen(node)

    def sample(self, names: Iterable[str]) -> list[Sampled]:
        ambient = ambient_c(self.now_s)
        return [self._sampled(self.cluster.nodes[name], ambient) for name in names]

    def _sampled(self, node: SimNode, ambient: float) -> Sampled:
        node.count(self.now_s)
        watts = node.watts(ambient)
        self._it_mw[node.name] = round(watts * 1000)
        return Sampled(
            node.name,
            reading_mw(watts, self._noise),
            node.energy_j,
            {card: reading_mw(w, self._card_noise) for card, w in node.card_watts().items()},
            node.card_energy_j(),
            self._use_of(node),
        )

    def _use_of(self, node: SimNode) -> PodUse:
        cards = node.shape.cards
        return PodUse(
            node.shape.cores,
            cards.max_w * 1000 if cards else 0,
            node.core_s,
            node.pod_core_s(self.now_s),
            node.holders() if cards else {},
        )

    def facility(self) -> FacilityPolled:
        ambient, it_mw = ambient_c(self.now_s), sum(self._it_mw.values())
        return FacilityPolled(
            facility=HALL,
            ambient_mdeg=round(ambient * 1000),
            it_mw=it_mw,
            cooling_mw=round(cooling_w(it_mw, ambient)),
        )

    def achieved(self) -> Achieved:
        """What the pods got so far. A pod that still waits counts with its wait until now."""
        done, running = self._done, 0
        for node in self.cluster.nodes.values():
            for job, seconds in node.progress(self.now_s):
                done, running = done.plus(job, seconds), running + 1
        waits = [*self._waits_s, *(self.now_s - at for at in self._arrived_s.values())]
        return Achieved.of(
            self.now_s - MORNING_S,
            Pods(self._turned_away, len(self._arrived_s), running, self._ended),
            done,
            waits,
        )

    def _arrive(self) -> list[Fact]:
        facts: list[Fact] = []
        for _ in range(self._workload.burst_size()):
            job = self._workload.next()
            if len(self.waiting) >= WAITING_LIMIT:
                self._turned_away += 1
                continue
            self.waiting.append(PendingPod(job))
            self._arrived_s[job.uid] = self.now_s
            facts.append(PodPending(pod=ask(job, self._options.gpu_resources)))
        self._next_arrival_s += self._workload.pause(self._options.pods_per_s, self.now_s)
        return facts

    def _finish(self, end: EndForecast) -> list[Fact]:
        node = self.cluster.nodes[end.node]
        if node.turn != end.turn:
            return []  # an outdated forecast
        job = node.running[end.uid].job
        cards = node.release(end.uid, self.now_s)
        self._done, self._ended = self._done.plus(job, job.seconds), self._ended + 1
        self._forecast(end.node)
        return [PodFinished(uid=end.uid), PodGone(uid=end.uid), *cards]

    def _next_end_s(self) -> float:
        return self._ends[0].at_s if self._ends else float("inf")

    def _next_awake_s(self) -> float:
        return self._waking[0][0] if self._waking else float("inf")

    def _forecast(self, name: str) -> None:
        end = self.cluster.nodes[name].first_end()
        if end is not None:
            heapq.heappush(self._ends, end)


def _seen(node: SimNode) -> NodeSeen:
    labels = {PROFILE_LABEL: node.profile} if node.profile else {}
    return NodeSeen(
        node=node.name,
        uid=f"uid-{node.name}",
        ready=node.power == "awake",
        schedulable=node.power != "asleep" and not node.is_cordoned,
        labels={"joulie.io/managed": "true"} | labels,
        cpu_milli=node.shape.cores * 1000,
        memory_bytes=node.shape.memory_gib * 2**30,
        gpus=node.shape.gpus,
        gpu_units=node.shape.units if node.shape.units > node.shape.gpus else 0,
    )


@lru_cache(maxsize=WAITING_LIMIT)
def ask(job: Job, gpu_resources: tuple[str, ...] = GPU_RESOURCES) -> PodAsk:
    """The request of a job, published when the pod is created and again when it is bound."""
    return ask_of(msgspec.convert(job.manifest(), Pod), gpu_resources=gpu_resources)
