"""What the log holds of nodes and pods, for the model of kube-scheduler; the rest is named.

Facts of a node have its cores, memory and GPUs, and only some of its labels; facts of a pod have
what it requests. Taints, other resources, and labels of pods are in no fact.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from joulie_answers.place.manifest import Pods
from joulie_bus.events import PodAsk
from joulie_extender.protocol.scheduler_config import OWN_NAME
from joulie_operator.facts.facts_from_objects import is_kept_label
from joulie_projections.hardware.gpu_resources import MIG
from joulie_projections.hardware.models import vendor_of
from joulie_projections.state.state import ClusterState, NodeState
from joulie_projections.twin.arrays import Bools
from joulie_simulator.kube_scheduler.cluster import Cluster
from joulie_simulator.kube_scheduler.node_columns import NAME
from joulie_simulator.kube_scheduler.objects import Node, NodeMetadata, NodeSpec, NodeStatus, Taint
from joulie_simulator.kube_scheduler.requests import CPU, LEAST, MEMORY, PODS, SCORED, Requests
from joulie_simulator.kube_scheduler.selectors import EVERYTHING, NOTHING
from joulie_simulator.kube_scheduler.terms import HOSTNAME, Asked, Near, NodeTerm, Spread, asked
from joulie_simulator.kube_scheduler.unknown import USUAL_SCHEDULERS, unknown_of

Texts = npt.NDArray[np.str_]
GPU = "gpus"  # in thousandths, under one name: facts have no names of resources
NOT_READY = Taint("node.kubernetes.io/not-ready", "", "NoSchedule")
MOST = 2**62  # of what the log does not know
ASLEEP, WAKING = "asleep", "waking"
SCHEDULERS = (*USUAL_SCHEDULERS, OWN_NAME)
# What no fact holds, whatever the pod asks for.
ALWAYS_UNKNOWN = (
    "taints of nodes, but for nodes that are cordoned or not ready",
    "how many pods a node may have",
    "affinities and labels of the pods that run: affinities and spreads count only pods of this "
    "manifest",
    "what the API server changes or refuses: quotas, limit ranges, webhooks",
)


class KnownNodes(NamedTuple):
    names: list[str]
    states: list[NodeState]
    cluster: Cluster
    power: Mapping[str, Bools]  # the nodes that sleep, and those that wake up
    vendors: Texts  # of their cards; empty where there are none, or of an unknown vendor
    unknown: list[str]  # of these nodes

    def of_vendor(self, vendor: str) -> Bools:
        """The nodes without cards that are of another vendor."""
        found: Bools = (self.vendors == vendor) | (self.vendors == "")
        return found


class KnownPod(NamedTuple):
    """A pod as kube-scheduler's plugins read it, without what the log cannot answer."""

    asked: Asked
    vendors: frozenset[str]  # of the cards that it requests
    unknown: list[str]


# --- nodes ------------------------------------------------------------------------------------


def nodes_of(state: ClusterState, awake: Iterable[str] = ()) -> KnownNodes:
    """`awake` are nodes that count as awake, whatever they do now. Sorted: the order of a state is
    that in which it was read."""
    present = [(name, node) for name, node in sorted(state.nodes.items()) if node.present]
    waked = frozenset(awake)
    names, states = [name for name, _ in present], [node for _, node in present]
    are_waked = np.array([name in waked for name in names], np.bool_)
    cluster = Cluster([_model(name, node, name in waked) for name, node in present])
    _book(cluster, state)
    return KnownNodes(
        names,
        states,
        cluster,
        {
            power: np.array([node.power_state == power for node in states], np.bool_) & ~are_waked
            for power in (ASLEEP, WAKING)
        },
        np.array([node.gpu_vendor for node in states], np.str_),
        [*_unknown_of_nodes(states)],
    )


def _model(name: str, node: NodeState, is_waked: bool) -> Node:
    is_open = is_waked or bool(node.power_state)  # a node that sleeps is refused as such
    return Node(
        NodeMetadata(name, {HOSTNAME: name, **node.labels}),
        NodeSpec(
            unschedulable=not (node.schedulable or is_open),
            taints=[] if node.ready or is_open else [NOT_READY],
        ),
        NodeStatus(
            {
                CPU: f"{node.cpu_milli}m",
                MEMORY: node.memory_bytes or MOST,
                GPU: node.gpu_milli,
                PODS: MOST,
            }
        ),
    )


def _unknown_of_nodes(states: Sequence[NodeState]) -> Iterator[str]:
    without = sum(not node.memory_bytes for node in states)
    if without:
        yield f"the memory of {without} nodes"


def _book(cluster: Cluster, state: ClusterState) -> None:
    """What the pods that run request."""
    rows = cluster.nodes.rows
    cpu, memory, gpus = (cluster.requested(name) for name in (CPU, MEMORY, GPU))
    for pod in state.pods.values():
        row = rows.get(pod.node)
        if row is None or pod.finished:
            continue
        ask = pod.pod
        cpu[row] += ask.cpu_milli
        memory[row] += ask.memory_bytes
        gpus[row] += requested_gpus(ask)
        cluster.scored[0][row] += ask.cpu_milli or _LEAST_CPU
        cluster.scored[1][row] += ask.memory_bytes or _LEAST_MEMORY
        cluster.pods[row] += 1


_LEAST_CPU, _LEAST_MEMORY = int(LEAST[CPU] * 1000), int(LEAST[MEMORY])


def requested_gpus(ask: PodAsk) -> int:
    """Thousandths that kube-scheduler counts: neither a share that an annotation asks for, nor what
    claims ask for."""
    is_share = ask.gpu.share_milli and not ask.gpu_cards
    return 0 if is_share else ask.gpu_milli - ask.devices.milli


# --- pods -------------------------------------------------------------------------------------


def pod_of(pods: Pods, ask: PodAsk, gpu_resources: Sequence[str]) -> KnownPod:
    default = NOTHING
    if pods.spreads:
        default = EVERYTHING.and_equal(sorted((pods.pod.metadata.labels or {}).items()))
    found = _Known(asked(pods.pod, {}, default), ask, frozenset(gpu_resources))
    of_pod = unknown_of(pods.pod, knows_namespaces=False, schedulers=SCHEDULERS)
    vendors = {vendor_of(name) for name in found.gpu_names} - {""}
    return KnownPod(found.asked(), frozenset(vendors), [*of_pod, *found.unknown])


class _Known:
    """Leaves out of a pod what the log does not hold, and names it."""

    def __init__(self, given: Asked, ask: PodAsk, gpu_resources: frozenset[str]) -> None:
        self._given, self._ask = given, ask
        self.gpu_names = [
            name for name in given.requests.amounts if name in gpu_resources or name.startswith(MIG)
        ]
        self.unknown = list[str]()

    def asked(self) -> Asked:
        given = self._given
        if given.node_name:
            self._add("spec.nodeName is set: no scheduler is asked for the pod")
        return given._replace(
            node_name="",
            requests=self._requests(given.requests),
            selector=self._term(given.selector, "a node selector for"),
            required=self._required(given.required),
            preferred=self._preferred(given.preferred),
            hard=self._spreads(given.hard),
            soft=self._spreads(given.soft),
            near=self._near(given.near, "an affinity to pods"),
            apart=self._apart(given.apart),
            prefers=self._near(given.prefers, "a preferred affinity to pods"),
        )

    def _add(self, what: str) -> None:
        if what not in self.unknown:
            self.unknown.append(what)

    def _requests(self, given: Requests) -> Requests:
        amounts = {name: amount for name, amount in given.amounts.items() if name in SCORED}
        for name, amount in given.amounts.items():
            if amount and name not in SCORED and name not in self.gpu_names:
                self._add(f"the resource {name} of nodes")
            if amount and name.startswith(MIG):
                self._add(f"the slices {name} of nodes: they count as a share of a card")
        if self.gpu_names:
            amounts[GPU] = requested_gpus(self._ask)
        return given._replace(amounts=amounts)

    def _term(self, given: NodeTerm, what: str) -> NodeTerm:
        for each in given:
            if not _is_known_label(each.key):
                self._add(f"{what} the label {each.key} of nodes")
        return tuple(each for each in given if _is_known_label(each.key))

    def _required(self, given: tuple[NodeTerm, ...] | None) -> tuple[NodeTerm, ...] | None:
        return given and tuple(self._term(each, "a node affinity by") for each in given)

    def _preferred(
        self, given: tuple[tuple[int, NodeTerm], ...] | None
    ) -> tuple[tuple[int, NodeTerm], ...] | None:
        if given is None:
            return None
        terms = [(weight, self._term(term, "a preference by")) for weight, term in given]
        kept = [new for new, (_, old) in zip(terms, given, strict=True) if new[1] == old]
        return tuple(kept) or None

    def _spreads(self, given: tuple[Spread, ...]) -> tuple[Spread, ...]:
        for each in given:
            if not _is_known_label(each.key):
                self._add(f"a spread by the label {each.key} of nodes")
        return tuple(each for each in given if _is_known_label(each.key))

    def _near(self, given: tuple[Near, ...], what: str) -> tuple[Near, ...]:
        """Kept where the pods of the manifest meet it themselves."""
        kept = tuple(each for each in given if _is_known_label(each.key) and self._meets(each))
        if kept != given:
            self._add(f"{what} of other workloads, or by an unknown label of nodes")
        return kept

    def _apart(self, given: tuple[Near, ...]) -> tuple[Near, ...]:
        for each in given:
            if not _is_known_label(each.key):
                self._add(f"an anti-affinity by the label {each.key} of nodes")
            elif not self._meets(each):
                self._add("an anti-affinity to pods of other workloads")
        return tuple(each for each in given if _is_known_label(each.key))

    def _meets(self, term: Near) -> bool:
        return term.among.has(self._given.namespace, self._given.labels)


def _is_known_label(key: str) -> bool:
    """The name of a node stands for its label of the host."""
    return key in (HOSTNAME, NAME) or is_kept_label(key)


def with_amounts(pod: KnownPod, ask: PodAsk) -> KnownPod:
    """The pod with what this one requests of cores, memory and cards."""
    amounts = dict(pod.asked.requests.amounts)
    amounts |= {CPU: ask.cpu_milli, MEMORY: ask.memory_bytes}
    if GPU in amounts:
        amounts[GPU] = requested_gpus(ask)
    requests = pod.asked.requests._replace(amounts=amounts)
    return pod._replace(asked=pod.asked._replace(requests=requests))
