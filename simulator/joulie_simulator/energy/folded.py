"""The simulated fleet as the product sees it: a cluster state and the twins' columns.

Facts of nodes and pods are folded by the functions of the projector. Columns follow the state each
minute; between, the rows of nodes on which pods start or end are written in place, which copies
nothing. Where cards are known, the columns follow each pod: tables of the cards compare columns.
"""

from joulie_bus.events import (
    Fact,
    HardwareDiscovered,
    ModelFigures,
    NodeSeen,
    PodAsk,
    PodBound,
    PodGone,
    PodPending,
    TelemetrySampled,
)
from joulie_operator.planning.eligible import RESERVED_LABEL
from joulie_projections.fold.registry import evolve
from joulie_projections.state.state import ClusterState, NodeState
from joulie_projections.state.state_changes import Draft
from joulie_projections.twin.columns import TwinColumns
from joulie_projections.twin.power import NodeWatts
from joulie_projections.twin.twin import hardware_of, load_on
from joulie_simulator.energy.fleet import Fleet
from joulie_simulator.energy.folded_cards import FoldedCards, card_model
from joulie_simulator.energy.jobs import MINUTE_S, Job
from joulie_simulator.energy.switching.conditions import Conditions

MINUTE_NS = int(MINUTE_S * 1e9)
START_NS = 1_767_225_600 * 10**9  # 1 January 2026, 0:00 UTC: the hour of the first job is 0
MANAGED = {"joulie.io/managed": "true"}
SOCKETS = 2


class FoldedCluster:
    """Node i of the fleet has the ordinal i, and so row i + 1 of the columns."""

    def __init__(
        self, fleet: Fleet, *, gpu_nodes_sleep: bool = True, cards_are_known: bool = False
    ) -> None:
        self._fleet = fleet
        self._gpu_labels = MANAGED if gpu_nodes_sleep else MANAGED | {RESERVED_LABEL: "true"}
        self.names = [f"n{number:05d}" for number in range(fleet.size)]
        self.numbers = {name: number for number, name in enumerate(self.names)}
        self.cluster_state = ClusterState()
        self.folded = 0  # facts: the position of the view
        self.now = START_NS
        self._draft = Draft(self.cluster_state)
        self._changed: dict[str, NodeState | None] = {}
        self._node_of: dict[int, int] = {}  # of each running pod
        for number in range(fleet.size):
            self.observe(number, usable=True)
            self.fold(self._hardware(number))
        self._draft.commit()
        self._cards = (
            FoldedCards(self.cluster_state, self.names, fleet) if cards_are_known else None
        )
        self.columns = TwinColumns.of_state(self.cluster_state)

    @classmethod
    def under(cls, conditions: Conditions, fleet: Fleet) -> "FoldedCluster":
        return cls(
            fleet,
            gpu_nodes_sleep=conditions.gpu_nodes_sleep,
            cards_are_known=conditions.cards_are_known,
        )

    def begin(self, minute: int) -> None:
        self.now = START_NS + minute * MINUTE_NS

    def fold(self, fact: Fact) -> None:
        self.folded += 1
        evolve(self._draft, fact, self.now)

    def commit(self) -> None:
        """Commits what was folded: a plan reads the state, and not the columns."""
        self._changed.update(self._draft.nodes.changes)
        self._draft.commit()

    def settle(self) -> None:
        """Commits what was folded. The columns follow the state, and get rid of former results."""
        self.commit()
        cards = self._cards.changed() if self._cards else {}
        self.columns = self.columns.following(self.cluster_state, self._changed, cards)
        self._changed = {}

    def observe(self, number: int, *, usable: bool) -> None:
        """The node as the API server shows it: ready and schedulable, or neither."""
        fleet = self._fleet
        labels = fleet.labels(number)
        if labels is None:
            labels = self._gpu_labels if fleet.cards[number] else MANAGED
        self.fold(
            NodeSeen(
                node=self.names[number],
                uid=self.names[number],
                labels=dict(labels),
                ready=usable,
                schedulable=usable,
                cpu_milli=round(fleet.cores[number] * 1000),
                gpus=int(fleet.physical_cards[number]),
                gpu_units=_units(fleet, number),
            )
        )

    def read(self, number: int) -> None:
        """A reading of the node's power."""
        power_mw = round(self._fleet.power_w[number] * 1000)
        self.fold(TelemetrySampled(node=self.names[number], power_mw=power_mw))

    def arrived(self, uid: int, job: Job) -> None:
        self.fold(PodPending(pod=pod_of(job, uid)))

    def placed(self, uid: int, job: Job, node: int) -> None:
        pod = pod_of(job, uid)
        self.fold(PodBound(pod=pod, node=self.names[node]))
        self._node_of[uid] = node
        if self._cards:
            self._cards.claim(pod, node)
        self._show_pods(node)

    def ended(self, uid: int) -> None:
        self.fold(PodGone(uid=f"{uid}"))
        if (node := self._node_of.pop(uid, None)) is None:
            return
        if self._cards:
            self._cards.release(f"{uid}", node)
        self._show_pods(node)

    def _show_pods(self, node: int) -> None:
        if self._cards:
            self.settle()
            return
        state = self._draft.nodes.get(self.names[node])
        assert state is not None
        pods = load_on(state.load, hardware_of(state))
        for part, watts in zip(NodeWatts._fields, pods, strict=True):
            self.columns.columns[f"pods_{part}_w"][node + 1] = watts

    def _hardware(self, number: int) -> HardwareDiscovered:
        fleet, cards = self._fleet, int(self._fleet.physical_cards[number])
        return HardwareDiscovered(
            node=self.names[number],
            cpu_model="newer simulated CPU" if fleet.newer[number] else "simulated CPU",
            cpu_sockets=SOCKETS,
            cpu_cores=round(fleet.cores[number]),
            cpu_max_mw_per_socket=int(fleet.rated_cpu_w(number) * 1000 / SOCKETS),
            gpu_model=card_model(fleet, number) if cards else "",
            gpu_count=cards,
            gpu_max_mw=int(fleet.rated_card_w(number) * 1000) if cards else 0,
            figures=ModelFigures(gpu_curve_mw=self._curve_mw(number) if cards else ()),
        )

    def _curve_mw(self, number: int) -> tuple[int, ...]:
        curve = self._fleet.card_curve(number)
        return () if curve is None else curve.milliwatts


def _units(fleet: Fleet, number: int) -> int:
    """That pods can request; 0 if they request cards."""
    units = int(fleet.cards[number])
    return units if units > fleet.physical_cards[number] else 0


def pod_of(job: Job, uid: int = 0) -> PodAsk:
    return PodAsk(
        uid=f"{uid}",
        namespace="default",
        name=f"{uid}",
        workload="performance" if job.performance else "standard",
        cpu_milli=round(job.cores * 1000),
        gpu_milli=job.gpus * 1000,
        gpu_cards=job.gpus,
        memory_bytes=int(job.memory),
    )
