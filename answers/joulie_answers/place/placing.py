"""Places pods one after the other, as kube-scheduler with Joulie's extender does.

The nodes that pass kube-scheduler's plugins, and their scores, are those of its model. The filter,
the scores, the choice of cards and the fold of each placement are the functions that run in
production, on a copy of the state.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from joulie_answers.place.known import ASLEEP, GPU, WAKING, KnownNodes, KnownPod, nodes_of
from joulie_bus.events import CardClaimed, FilterDecided, PodAsk, PodBound, PrioritizeDecided
from joulie_extender.catalogue.rules import few_words_of
from joulie_extender.catalogue.weights import Weights
from joulie_extender.decide.context import DecisionContext
from joulie_extender.decide.decide import (
    DecisionOptions,
    answered_scores,
    filter_decision,
    let_through,
    prioritize_decision,
)
from joulie_extender.gpu.card_choice import CardChoice, choose_cards
from joulie_extender.gpu.fit import gpu_request_of
from joulie_extender.protocol.candidates import candidates_of, rows_by_name
from joulie_projections.fold.registry import evolve
from joulie_projections.pods.devices import is_by_dra
from joulie_projections.state.cards import CardState
from joulie_projections.state.state import ClusterState, NodeState
from joulie_projections.state.state_changes import Draft
from joulie_projections.twin.arrays import Bools, Ints
from joulie_projections.twin.columns import TwinColumns
from joulie_simulator.kube_scheduler.requests import CPU, MEMORY, PODS
from joulie_simulator.kube_scheduler.schedule import FILTERS, FIT, Profile, profile_of, totals
from joulie_simulator.kube_scheduler.terms import Asked
from joulie_simulator.trial.packing import NEWEST
from joulie_simulator.trial.placing import PER_POINT

Names = npt.NDArray[np.object_]
MINOR = NEWEST  # of Kubernetes: the log does not have the version
PROFILE: Profile = profile_of(MINOR)
OPTIONS = DecisionOptions("all")
CLAIM_S = 60  # irrelevant: no time passes
FEW = 3  # nodes that are named per reason
OTHER_VENDOR = "GPUs of another vendor"
# kube-scheduler's own words, in short.
WORDS = {
    "NodeUnschedulable": "cordoned",
    "NodeName": "not the node of spec.nodeName",
    "TaintToleration": "not ready",
    "NodeAffinity": "node selector or affinity not met",
    "NodePorts": "host port taken by a pod of the manifest",
    "PodTopologySpread": "topology spread not met",
    "InterPodAffinity": "pod affinity or anti-affinity not met",
}
RESOURCES = {CPU: "cpu", MEMORY: "memory", GPU: "GPUs", PODS: "pods"}


class Moment(NamedTuple):
    """What placements start from."""

    state: ClusterState
    columns: TwinColumns
    position: int
    at: int  # ns, by the broker's clock
    weights: Weights


class Look(NamedTuple):
    """What becomes of one pod at one moment."""

    closed: Sequence[tuple[str, Names]]  # nodes that kube-scheduler's plugins refuse, by the reason
    candidates: list[str]  # that pass them
    filtered: FilterDecided | None  # None: no candidate
    scored: PrioritizeDecided | None  # of the nodes that pass the extender, too
    nodes: list[str]  # these
    totals: Ints  # their scores, with those of kube-scheduler

    @property
    def refused(self) -> dict[str, list[str]]:
        """Nodes by the reason, kube-scheduler's first. A node that is short of several resources
        counts for each."""
        found = dict[str, list[str]]()
        for why, names in self.closed:
            found.setdefault(why, []).extend(names.tolist())
        verdicts = self.filtered.verdicts if self.filtered is not None else b""
        for name, code in zip(self.candidates, verdicts, strict=True):
            if code:
                found.setdefault(few_words_of(code), []).append(name)
        return found

    @property
    def best(self) -> list[str]:
        """Those that tie: kube-scheduler chooses one of them at random."""
        if not self.nodes:
            return []
        highest = np.flatnonzero(self.totals == self.totals.max())
        return [self.nodes[at] for at in highest.tolist()]


class Placement(NamedTuple):
    node: str
    cards: tuple[str, ...]  # none: which ones is not the extender's choice
    scored: PrioritizeDecided
    names: list[str]  # of its candidates
    columns: TwinColumns  # before it


def copy_of(state: ClusterState) -> ClusterState:
    """The values are frozen."""
    found = ClusterState()
    found.nodes, found.pods, found.gpus = dict(state.nodes), dict(state.pods), dict(state.gpus)
    found.facilities, found.cluster = dict(state.facilities), dict(state.cluster)
    return found


class Placing:
    def __init__(self, moment: Moment, awake: tuple[str, ...] = ()) -> None:
        """Changes a copy of the state. `awake` are nodes that count as awake."""
        self.moment = moment
        self.state = copy_of(moment.state)
        self.columns = moment.columns
        self.nodes: KnownNodes = nodes_of(self.state, awake)
        self._names: Names = np.array(self.nodes.names, np.object_)
        self._rows_of: object = None
        self._rows: Ints = np.zeros(0, np.int64)

    # --- one look -----------------------------------------------------------------------------

    def look(self, pod: KnownPod, ask: PodAsk) -> Look:
        passing, closed = self._plugins(pod)
        rows = np.flatnonzero(passing)
        names: list[str] = self._names[rows].tolist()
        if not names:
            return Look(closed, [], None, None, [], np.zeros(0, np.int64))
        filtered = self._filter(ask, names, rows)
        left = rows[let_through(filtered)]
        if not len(left):
            return Look(closed, names, filtered, None, [], np.zeros(0, np.int64))
        kept: list[str] = self._names[left].tolist()
        scored = self._scored(ask, kept, left)
        total = PER_POINT * answered_scores(scored).astype(np.int64)
        total += totals(self.nodes.cluster, pod.asked, left, PROFILE)
        return Look(closed, names, filtered, scored, kept, total)

    def fits(self, pod: KnownPod, ask: PodAsk) -> bool:
        """Whether any node passes."""
        passing, _ = self._plugins(pod)
        rows = np.flatnonzero(passing)
        if not len(rows):
            return False
        return bool(let_through(self._filter(ask, self._names[rows].tolist(), rows)).any())

    def _filter(self, ask: PodAsk, names: list[str], rows: Ints) -> FilterDecided:
        there = self._twin_rows()[rows]
        context, weights = self._context(), self.moment.weights
        candidates = candidates_of(names, there)
        return filter_decision(ask, candidates, there, context, weights, OPTIONS)

    def _scored(self, ask: PodAsk, names: list[str], rows: Ints) -> PrioritizeDecided:
        candidates = candidates_of(names, self._twin_rows()[rows])
        context, weights = self._context(), self.moment.weights
        return prioritize_decision(ask, candidates, names, context, weights, OPTIONS.duty)

    def _twin_rows(self) -> Ints:
        """Of all nodes, in the columns at hand: these keep the mapping while no node comes."""
        if self._rows_of is not self.columns.rows:
            self._rows = rows_by_name(self.columns, self.nodes.names)
            self._rows_of = self.columns.rows
        return self._rows

    def _context(self) -> DecisionContext:
        """Ages of 0: as an extender that has just read this position."""
        return DecisionContext(self.columns, self.moment.position, 0, self.moment.at, 0)

    def _plugins(self, pod: KnownPod) -> tuple[Bools, list[tuple[str, Names]]]:
        """kube-scheduler's part, in its order: the first plugin that refuses a node is the
        reason."""
        cluster, closed = self.nodes.cluster, list[tuple[str, Names]]()
        left = cluster.nodes.all

        def note(why: str, nodes: Bools) -> None:
            if nodes.any():
                closed.append((why, self._names[nodes]))

        for why, found in self._closed(pod):
            note(why, left & ~found)
            left = left & found
        for name, passing in FILTERS.items():
            fine = passing(cluster, pod.asked)
            if fine is None:
                continue
            if name == FIT:
                for resource, short in self._short(pod.asked):
                    note(f"insufficient {resource}", left & short)
            else:
                note(WORDS[name], left & ~fine)
            left = left & fine
        return left, closed

    def _closed(self, pod: KnownPod) -> Iterator[tuple[str, Bools]]:
        yield "asleep", ~self.nodes.power[ASLEEP]
        yield "waking up", ~self.nodes.power[WAKING]
        for vendor in sorted(pod.vendors):
            yield OTHER_VENDOR, self.nodes.of_vendor(vendor)

    def _short(self, asked: Asked) -> Iterator[tuple[str, Bools]]:
        """As kube-scheduler counts: a node may be short of several."""
        cluster = self.nodes.cluster
        for name, amount in asked.requests.amounts.items():
            if amount:
                free = cluster.allocatable(name) - cluster.requested(name)
                yield RESOURCES.get(name, name), amount > free

    # --- placements ---------------------------------------------------------------------------

    def place(self, pod: KnownPod, ask: PodAsk, look: Look) -> Placement:
        """On the first of the best nodes."""
        node, before = look.best[0], self.columns
        assert look.scored is not None, "a node passes"
        self.nodes.cluster.bind(
            pod.asked._replace(uid=ask.uid), self.nodes.cluster.nodes.rows[node]
        )
        choice = self._cards(ask, node)
        self._fold(ask, node, choice)
        cards = tuple(each.card for each in choice.cards) if choice else ()
        return Placement(node, cards, look.scored, look.nodes, before)

    def _cards(self, ask: PodAsk, node: str) -> CardChoice | None:
        """As the verb bind chooses them."""
        if gpu_request_of(ask) is None or is_by_dra(ask):
            return None
        return choose_cards(ask, node, self.columns, self.moment.weights.gpu)

    def _fold(self, ask: PodAsk, node: str, choice: CardChoice | None) -> None:
        draft = Draft(self.state)
        evolve(draft, PodBound(pod=ask, node=node), self.moment.at)
        for taken in choice.cards if choice else ():
            claim = CardClaimed(
                card=taken.card,
                pod_uid=ask.uid,
                namespace=ask.namespace,
                name=ask.name,
                node=node,
                mb=taken.mb,
                expires_s=CLAIM_S,
            )
            evolve(draft, claim, self.moment.at)
        nodes = dict[str, NodeState | None](draft.nodes.changes)
        cards = dict[str, CardState | None](draft.gpus.changes)
        draft.commit()
        self.columns = self.columns.following(self.state, nodes, cards)

    # --- room ---------------------------------------------------------------------------------

    def free(self) -> tuple[int, int]:
        """Thousandths of cores and of GPUs that no pod requests, on nodes that take pods."""
        cluster = self.nodes.cluster
        is_open = np.array(
            [each.ready and each.schedulable and not each.power_state for each in self.nodes.states]
        )
        found = []
        for name in (CPU, GPU):
            left = np.maximum(cluster.allocatable(name) - cluster.requested(name), 0)
            found.append(int(left[is_open].sum()) if len(is_open) else 0)
        return found[0], found[1]
