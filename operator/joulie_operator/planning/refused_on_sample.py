"""Pods that wait because the extender refused a sample, and the nodes to nominate for them.

kube-scheduler sends a sample of the nodes to the extender. A pod that is refused on every node of
the sample waits, although a node outside of the sample may fit. It tries the node that is nominated
for a pod before it takes a sample.
"""

from collections.abc import Iterable, Mapping, Sequence
from heapq import heapify, heappop, heappush
from typing import NamedTuple

from joulie_bus.core.backoff import Backoff
from joulie_bus.events import PodAsk
from joulie_projections.pods.classify import PROFILE_LABEL
from joulie_projections.pods.load import load_of
from joulie_projections.pods.refusal import Refusal
from joulie_projections.state.state import NodeState, PodState

# kube-scheduler samples only beyond this number of nodes that pass its own filters. A request with
# fewer nodes contains all of them, so a nomination would not help.
SMALLEST_SAMPLE = 100
NOMINATED = Backoff(2.0, 60.0)
MOST_READ = 64  # nodes that are examined for one pod
TRIED = 8  # nodes per pod that were nominated without success and are not nominated again


class PodRefusedOnSample(NamedTuple):
    """A pending pod that was refused every node of a sample while a fit node exists."""

    pod: PodAsk
    since: int  # nanoseconds


class Nomination(NamedTuple):
    pod: PodAsk
    node: str


class Attempts(NamedTuple):
    """The nominations of one pod so far."""

    made: int = 0
    not_before: float = 0.0  # monotonic seconds
    tried: tuple[str, ...] = ()


NO_ATTEMPTS = Attempts()


def refusable_pods(pods: Mapping[str, PodState]) -> list[str]:
    """The uids of pending pods that the extender can refuse, in the order of the view."""
    return [
        uid
        for uid, state in pods.items()
        if not state.node and not state.finished and _can_refuse(state.pod)
    ]


def _can_refuse(pod: PodAsk) -> bool:
    return not pod.exempt and (pod.workload == "performance" or pod.placement == "eco-only")


def pods_refused_on_sample(
    nodes: Mapping[str, NodeState], pods: Mapping[str, PodState], refusals: Iterable[Refusal]
) -> list[PodRefusedOnSample]:
    """The longest waiting pods first; namespaces take turns, so that none delays the others."""
    free, found = FreeNodes(nodes), []
    for refusal in refusals:
        state = pods.get(refusal.uid)
        if state is None or state.node or state.finished or refusal.candidates < SMALLEST_SAMPLE:
            continue
        if free.has_fit(state.pod):
            found.append(PodRefusedOnSample(state.pod, refusal.since))
    return _by_turns(found)


def _by_turns(found: Iterable[PodRefusedOnSample]) -> list[PodRefusedOnSample]:
    turns = dict[str, int]()
    ranked = list[tuple[int, int, str, PodRefusedOnSample]]()
    for each in sorted(found, key=lambda each: (each.since, each.pod.uid)):
        turn = turns[each.pod.namespace] = turns.get(each.pod.namespace, 0) + 1
        ranked.append((turn, each.since, each.pod.uid, each))
    return [each for *_, each in sorted(ranked, key=lambda one: one[:3])]


class Taken(NamedTuple):
    """CPU and GPUs of one node."""

    cpu_milli: int = 0
    gpu_milli: int = 0


NOTHING_TAKEN = Taken()


class FreeNodes:
    """The free resources of the nodes that kube-scheduler may use, by the rule that applies.

    `closed_too` counts nodes that are closed for a power target: they wait for the target, and no
    other node would help.
    """

    def __init__(self, nodes: Mapping[str, NodeState], *, closed_too: bool = False) -> None:
        self._nodes = nodes
        self._closed_too = closed_too
        self._heaps: dict[tuple[str, bool], list[tuple[int, str]]] = {}
        self._taken: dict[str, Taken] = {}

    def has_fit(self, pod: PodAsk) -> bool:
        return bool(self._fitting(pod, 1))

    def take(self, pod: PodAsk, besides: Sequence[str] = ()) -> str | None:
        """The fit node with the most free CPU or GPUs, whose resources are then taken."""
        for node in self._fitting(pod, len(besides) + 1):
            if node not in besides:
                self.reserve(pod, node)
                return node
        return None

    def reserve(self, pod: PodAsk, node: str) -> None:
        cpu, gpu = self._taken.get(node, NOTHING_TAKEN)
        self._taken[node] = Taken(cpu + load_of(pod).cpu_milli, gpu + pod.gpu_milli)

    def _fitting(self, pod: PodAsk, at_most: int) -> list[str]:
        """The best of the fit nodes, in order."""
        heap, read, found = self._heap(pod), list[tuple[int, str]](), list[str]()
        while heap and len(found) < at_most and len(read) < MOST_READ:
            known, name = heappop(heap)
            cpu, gpu = self._free(name)
            first, second = (gpu, cpu) if pod.gpu_milli else (cpu, gpu)
            if first != -known:  # taken in the meantime
                heappush(heap, (-first, name))
                continue
            read.append((known, name))
            if first < (pod.gpu_milli or load_of(pod).cpu_milli):
                break  # all others have less
            if not pod.gpu_milli or second >= load_of(pod).cpu_milli:
                found.append(name)
        for each in read:
            heappush(heap, each)
        return found

    def _heap(self, pod: PodAsk) -> list[tuple[int, str]]:
        """Nodes by free GPUs or CPU. An old entry is corrected when it is read: both only fall."""
        rule, by_gpu = "performance" if pod.workload == "performance" else "eco", pod.gpu_milli > 0
        heap = self._heaps.get((rule, by_gpu))
        if heap is None:
            usable = (name for name, node in self._nodes.items() if self._passes(node, rule))
            heap = [(-self._free(name)[by_gpu], name) for name in usable]
            heapify(heap)
            self._heaps[rule, by_gpu] = heap
        return heap

    def _passes(self, node: NodeState, rule: str) -> bool:
        is_closed = rule == "eco" and node.closed_at > 0 and not self._closed_too
        return _passes(node, rule) and not is_closed

    def _free(self, name: str) -> Taken:
        node, taken = self._nodes[name], self._taken.get(name, NOTHING_TAKEN)
        used_gpu = node.load.gpu_standard_milli + node.load.gpu_performance_milli
        return Taken(
            node.cpu_milli - node.load.cpu_milli - taken.cpu_milli,
            node.gpu_milli - used_gpu - taken.gpu_milli,
        )


def _passes(node: NodeState, rule: str) -> bool:
    """The extender's rules for a fresh class, and whether kube-scheduler uses the node at all."""
    if not (node.present and node.ready and node.schedulable) or node.power_state or node.draining:
        return False
    return rule == "eco" or (node.profile or node.labels.get(PROFILE_LABEL)) != "eco"


class Nominator:
    """Chooses the nominations of each pass, and keeps the attempts of each waiting pod."""

    def __init__(self) -> None:
        self.attempts: dict[str, Attempts] = {}

    def nominations(
        self,
        nodes: Mapping[str, NodeState],
        pods: Mapping[str, PodState],
        refused: Iterable[PodRefusedOnSample],
        now_s: float,
        at_most: int,
    ) -> list[Nomination]:
        """At most one per pod and backoff; pods that wait for the answer keep their node."""
        self._forget_placed(pods)
        free = FreeNodes(nodes)
        waiting = {uid: each for uid, each in self.attempts.items() if each.not_before > now_s}
        for uid, attempts in waiting.items():
            free.reserve(pods[uid].pod, attempts.tried[-1])
        made = list[Nomination]()
        for each in refused:
            if len(made) == at_most:
                break
            if each.pod.uid not in waiting and (one := self._nominate(free, each.pod, now_s)):
                made.append(one)
        return made

    def _nominate(self, free: FreeNodes, pod: PodAsk, now_s: float) -> Nomination | None:
        before = self.attempts.get(pod.uid, NO_ATTEMPTS)
        node = free.take(pod, before.tried) or free.take(pod)
        if node is None:
            return None
        pause_s = NOMINATED.after(before.made + 1)
        tried = (*before.tried, node)[-TRIED:]
        self.attempts[pod.uid] = Attempts(before.made + 1, now_s + pause_s, tried)
        return Nomination(pod, node)

    def _forget_placed(self, pods: Mapping[str, PodState]) -> None:
        self.attempts = {
            uid: each
            for uid, each in self.attempts.items()
            if (state := pods.get(uid)) and not state.node and not state.finished
        }
