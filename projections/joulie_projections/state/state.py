"""The tables of the cluster state. Values only; the `fold` room changes them."""

from collections.abc import Mapping

import msgspec

from joulie_bus.events import CapsMeasured, HardwareDiscovered, PlanMade, PodAsk, WorkloadClass
from joulie_projections.pods.load import NO_LOAD, Load
from joulie_projections.state.cards import CardState
from joulie_projections.state.gpu_arrivals import PRIOR_DEMAND, GpuArrivals, GpuDemand

CLUSTER = "cluster"  # the key of the cluster's own row
# The keys of rows that change on their own; they sort behind it.
GPU_ARRIVALS = "gpu-arrivals"
GPU_DEMAND = "gpu-demand"
ASKED = "devices/"  # before the namespace of a claim


MOST_TARGETS = 200


# Without `gc`: frozen plain values are part of no reference cycle, and every sample creates some,
# so the garbage collector would traverse the whole state often. Also saves 16 bytes per value.
class Sample(msgspec.Struct, frozen=True, array_like=True, gc=False):
    at: int
    power_mw: int


class Arrival(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A pod that was bound too late for the newest reading to include its power."""

    uid: str
    at: int
    load: Load


class SettableCaps(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The writer's newest report of which limits it can set: of the "cpu", of the "gpu", and of
    each of the "cards" another one."""

    at: int = 0  # 0: there was none
    kinds: tuple[str, ...] = ()
    because: str = ""  # why others cannot be set


NOT_SETTABLE = SettableCaps()


class NodeState(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """The state of one node; `twin` derives the twin from it."""

    ordinal: int  # its row in the twins' columns, kept while the node is known
    at: int  # when the broker stored the newest fact about it
    uid: str = ""
    present: bool = False  # exists in Kubernetes
    labels: dict[str, str] = {}
    ready: bool = False
    schedulable: bool = False
    cpu_milli: int = 0
    memory_bytes: int = 0
    gpus: int = 0
    hardware: HardwareDiscovered | None = None
    profile: str = ""  # performance or eco, set by a plan
    draining: bool = False
    power_state: str = ""  # empty while awake; "asleep" or "waking" by a plan
    cpu_cap_pct: int | None = None
    gpu_cap_pct: int | None = None
    cpu_cap_mw_per_socket: int | None = None  # in addition to the percentage, if planned in watts
    gpu_cap_mw: int | None = None
    class_at: int = 0  # when a plan last changed its profile or drain state
    caps_at: int = 0  # when a plan last changed its caps
    samples: tuple[Sample, ...] = ()  # oldest first
    source: str = ""
    provider: str = ""
    pods: int = 0  # bound and not finished
    performance_pods: int = 0  # without exempt ones, which a drain does not wait for
    load: Load = NO_LOAD  # the requests of these pods
    arrivals: tuple[Arrival, ...] = ()  # pods that the last reading may not include
    gpu_units: int = 0  # allocatable units, if a unit is less than a card
    gpu_vendor: str = ""
    daemon_pods: int = 0  # of `pods`: those that belong to the node and do not keep it awake
    emptied_at: int = 0  # when the last other pod ended; 0: none has run here
    power_at: int = 0  # when a plan last put the node to sleep or woke it
    evict_at: int = 0  # when a plan ordered to evict its pods; 0: they may end by themselves
    closed_at: int = 0  # when a plan closed it to pods of class standard; 0: it is open
    # Since the writer on the node reported them: the caps that the hardware shows, and which are
    # not as ordered. Absent means no cap.
    applied_at: int = 0
    applied_cpu_mw: int | None = None  # per socket
    applied_gpu_mw: int | None = None  # per card
    refused_caps: str = ""
    agent_cards: tuple[str, ...] = ()  # the cards that its agent reported
    settable: SettableCaps = NOT_SETTABLE
    gangs: dict[str, int] = {}  # how many pods of each group run here, by `gang_of`
    standard_gpu_cap_pct: int | None = None  # of cards that pods of class standard alone hold
    applied_card_mw: dict[str, int] = {}  # by uuid, where not all cards have the same cap
    applied_clock_mhz: int | None = None  # the highest clock to which its cards are locked
    idle_mw: int = 0  # what it draws while no pods run here, by its readings; 0: not read

    @property
    def empty_since(self) -> int:
        """Of a node without pods; one that has never had any is empty since its first plan, and 0
        before it."""
        return max(self.emptied_at, self.power_at) or self.class_at

    @property
    def gpu_milli(self) -> int:
        """What pods can request: of its cards, or of the units into which they are divided."""
        return (self.gpu_units or self.gpus) * 1000

    @property
    def unit_milli(self) -> int:
        """Of a card, that one unit is: pods that share a card by time, or slices, request units."""
        if self.gpu_units <= self.gpus or not self.gpus:
            return 1000
        return -(-1000 * self.gpus // self.gpu_units)


class PodState(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    pod: PodAsk
    node: str = ""  # empty while pending
    bound_at: int = 0
    finished: bool = False


class Life(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One boot of a producer: its highest sequence number, and the numbers that are missing."""

    boot: str
    high: int
    missing: tuple[int, ...] = ()
    lost: int = 0  # missing numbers beyond the limit
    later: dict[str, int] = {}  # while numbers are missing: the newest number per subject


def gang_of(pod: PodAsk) -> str:
    """The key of its group; empty if it is in none."""
    return f"{pod.namespace}/{pod.group}" if pod.group else ""


class ProducerState(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The sequence numbers of a producer; the key is its family and name, such as `tel:sim-tel`."""

    lives: tuple[Life, ...]  # newest last
    retired: tuple[str, ...] = ()  # boots of older lives; their messages are rejected


class Target(msgspec.Struct, frozen=True, array_like=True):
    """The most power that the cluster or a feed may draw in a period."""

    power_mw: int
    starts_at: int
    ends_at: int
    feed: str = ""
    because: str = ""


class CapEffect(msgspec.Struct, frozen=True, array_like=True):
    """What caps were measured to save."""

    at: int
    measured: CapsMeasured


class ClusterRow(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The row of the cluster; or what pods ask of GPUs, or what a claim does: these have rows of
    their own, so that an arrival changes a small row."""

    rows: int = 0  # rows of the twins' columns; a node takes the smallest free one
    free_rows: tuple[int, ...] = ()  # freed by deleted nodes, ascending
    planned_at: int = 0  # when the operator last made a plan, changed or not
    plan: PlanMade | None = None
    claims_read: int = 0  # the sequence of the newest claim message in this state
    producers: dict[str, int] = {}  # the number of producers per family of subjects
    claims_digest: bytes = b""  # of the message at `claims_read`
    namespaces: dict[str, WorkloadClass] = {}  # namespaces that set a class for their pods
    targets: dict[str, Target] = {}  # by their names; those that have ended may still be here
    cap_effects: dict[str, CapEffect] = {}  # the newest measurement of each class
    gpu_arrivals: GpuArrivals | None = None  # only in its own row
    gpu_demand: GpuDemand | None = None  # only in its own row
    gpus_asked: int | None = None  # only in the row of a ResourceClaim or its template
    driver_asked: str = ""  # the same; as in `DevicesAsked`


def asked_key(namespace: str, claim: str) -> str:
    """The key of the row of a ResourceClaim or its template; sorts behind `CLUSTER`."""
    return f"{ASKED}{namespace}/{claim}"


class FacilityReading(msgspec.Struct, frozen=True, array_like=True):
    at: int
    value: int


class FacilityState(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The last reading of each kind, regardless of age."""

    ambient_mdeg: FacilityReading | None = None
    it_mw: FacilityReading | None = None
    cooling_mw: FacilityReading | None = None


_NO_ROW = ClusterRow()
State = NodeState | PodState | CardState | FacilityState | ProducerState | ClusterRow


class ClusterState:
    """All tables. Changed only by `Draft.commit` and `rows.apply_rows`; has one owner."""

    def __init__(self) -> None:
        self.nodes: dict[str, NodeState] = {}
        self.pods: dict[str, PodState] = {}
        self.gpus: dict[str, CardState] = {}  # by the card's uuid
        self.facilities: dict[str, FacilityState] = {}
        self.producers: dict[str, ProducerState] = {}
        self.cluster: dict[str, ClusterRow] = {}
        # A cache for rows.changed_rows; not part of the state.
        self.fingerprints: dict[tuple[str, str], tuple[State, int]] = {}

    @property
    def planned_at(self) -> int:
        return self._row.planned_at

    @property
    def claims_read(self) -> int:
        return self._row.claims_read

    @property
    def newest_claim(self) -> tuple[int, bytes]:
        """The sequence and digest of the newest claim message that was folded."""
        return self._row.claims_read, self._row.claims_digest

    @property
    def namespaces(self) -> Mapping[str, WorkloadClass]:
        return self._row.namespaces

    @property
    def plan(self) -> PlanMade | None:
        """The newest plan."""
        return self._row.plan

    @property
    def targets(self) -> Mapping[str, Target]:
        return self._row.targets

    @property
    def cap_effects(self) -> Mapping[str, CapEffect]:
        return self._row.cap_effects

    @property
    def gpu_demand(self) -> GpuDemand:
        """What pods ask of GPUs, as scores use it."""
        row = self.cluster.get(GPU_DEMAND)
        return (row and row.gpu_demand) or PRIOR_DEMAND

    def gpus_asked(self, namespace: str, claim: str) -> int | None:
        """The GPUs that a ResourceClaim or a template asks for; None: not known."""
        row = self.cluster.get(asked_key(namespace, claim))
        return row.gpus_asked if row else None

    def driver_asked(self, namespace: str, claim: str) -> str:
        """As in `DevicesAsked`."""
        row = self.cluster.get(asked_key(namespace, claim))
        return row.driver_asked if row else ""

    @property
    def _row(self) -> ClusterRow:
        return self.cluster.get(CLUSTER, _NO_ROW)
