"""What can happen. Past tense, immutable, and never edited once released.

A field added later needs a default, so that last year's events still decode. A changed meaning is a
new version with an upcaster (`codec.UPCASTERS`); the old one stays readable. Whatever is summed
anywhere is an integer (milliwatts, millicores, bytes), so that sums are exact and free of order.
"""

from typing import Annotated, ClassVar, Literal, TypeAlias

import msgspec

Milliwatts = Annotated[int, msgspec.Meta(ge=0)]
Count = Annotated[int, msgspec.Meta(ge=0)]
Percent = Annotated[int, msgspec.Meta(ge=0, le=100)]
Nanoseconds = int  # since 1970, wall clock

Profile = Literal["performance", "eco"]
WorkloadClass = Literal["performance", "standard"]
Placement = Literal["performance-only", "eco-only", "general"]
PowerSource = Literal["kepler", "utilization", "static"]


class Event(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """`TYPE` and `VERSION` name it on the wire; `key` orders it: one key, one order."""

    TYPE: ClassVar[str]
    VERSION: ClassVar[int] = 1

    @property
    def key(self) -> str:
        raise NotImplementedError


# --- facts about nodes ------------------------------------------------------------------------


class TelemetrySampled(Event, frozen=True, kw_only=True):
    """One reading of one node's power. A reading that failed is no event, never 0 W."""

    TYPE: ClassVar[str] = "telemetry.sampled"
    node: str
    power_mw: Milliwatts
    source: PowerSource = "kepler"
    provider: str = ""

    @property
    def key(self) -> str:
        return self.node


class NodeSeen(Event, frozen=True, kw_only=True):
    """A node as Kubernetes shows it. `labels` holds only those that Joulie reads."""

    TYPE: ClassVar[str] = "node.seen"
    node: str
    uid: str
    labels: dict[str, str] = {}
    ready: bool = True
    schedulable: bool = True
    cpu_milli: Count = 0
    memory_bytes: Count = 0
    gpus: Count = 0

    @property
    def key(self) -> str:
        return self.node


class NodeGone(Event, frozen=True, kw_only=True):
    TYPE: ClassVar[str] = "node.gone"
    node: str

    @property
    def key(self) -> str:
        return self.node


class HardwareDiscovered(Event, frozen=True, kw_only=True):
    """What a node could draw, flat out."""

    TYPE: ClassVar[str] = "hardware.discovered"
    node: str
    cpu_model: str
    cpu_sockets: Count
    cpu_cores: Count
    cpu_max_mw_per_socket: Milliwatts
    gpu_model: str = ""
    gpu_count: Count = 0
    gpu_max_mw: Milliwatts = 0
    memory_bytes: Count = 0

    @property
    def key(self) -> str:
        return self.node


# --- facts about pods -------------------------------------------------------------------------


class PodAsk(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a pod asks for, and why we think so. The same value in facts and in decisions."""

    uid: str
    namespace: str
    name: str
    workload: WorkloadClass = "standard"
    placement: Placement = "general"
    rule: str = "default"  # which rule of classification fired
    exempt: str = ""  # why energy may never refuse it: daemonset, mirror, critical
    cpu_milli: Count = 0
    memory_bytes: Count = 0
    gpu_milli: Count = 0  # thousandths of a card, because a MIG slice is a fraction


class PodPending(Event, frozen=True, kw_only=True):
    TYPE: ClassVar[str] = "pod.pending"
    pod: PodAsk

    @property
    def key(self) -> str:
        return self.pod.uid


class PodBound(Event, frozen=True, kw_only=True):
    """Carries the whole pod: whoever starts watching late sees it bound first."""

    TYPE: ClassVar[str] = "pod.bound"
    pod: PodAsk
    node: str

    @property
    def key(self) -> str:
        return self.pod.uid


class PodFinished(Event, frozen=True, kw_only=True):
    """Succeeded or Failed: it draws nothing any more, though its object may stay."""

    TYPE: ClassVar[str] = "pod.finished"
    uid: str

    @property
    def key(self) -> str:
        return self.uid


class PodGone(Event, frozen=True, kw_only=True):
    TYPE: ClassVar[str] = "pod.gone"
    uid: str

    @property
    def key(self) -> str:
        return self.uid


# --- plans ------------------------------------------------------------------------------------


class PlanMade(Event, frozen=True, kw_only=True):
    """Why the node events beside it exist. Written first in the batch, under compare-and-set."""

    TYPE: ClassVar[str] = "plan.made"
    plan: str
    policy: str
    view: Count  # the position of the world that was looked at
    nodes: Count
    performance: Count
    changes: Count
    inputs: dict[str, float] = {}
    because: str = ""

    @property
    def key(self) -> str:
        return "_meta"


class ProfileAssigned(Event, frozen=True, kw_only=True):
    TYPE: ClassVar[str] = "plan.profile-assigned"
    plan: str
    node: str
    profile: Profile
    because: str = ""

    @property
    def key(self) -> str:
        return self.node


class DrainingBegun(Event, frozen=True, kw_only=True):
    """The node shall become eco; performance pods still run there, so its caps stay."""

    TYPE: ClassVar[str] = "plan.draining-begun"
    plan: str
    node: str
    performance_pods: Count
    because: str = ""

    @property
    def key(self) -> str:
        return self.node


class CapsSet(Event, frozen=True, kw_only=True):
    """Absent means no cap; a number never stands for "none"."""

    TYPE: ClassVar[str] = "plan.caps-set"
    plan: str
    node: str
    cpu_cap_pct: Percent | None = None
    gpu_cap_pct: Percent | None = None

    @property
    def key(self) -> str:
        return self.node


# --- decisions --------------------------------------------------------------------------------


class Basis(msgspec.Struct, frozen=True, kw_only=True):
    """What an answer rests on: enough to give it again, next year, elsewhere."""

    view: Count  # position of the projection that was read
    view_age_ms: Count
    now: Nanoseconds  # the only clock the answer used
    settings: str  # id of the settings in force; their values are an entry of the same log


class Candidates(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The nodes of one request, in its order: 4 bytes each for those we know."""

    ordinals: bytes  # int32, little endian; -1 stands for the next of `strangers`
    strangers: list[str] = []


class SettingsDeclared(Event, frozen=True, kw_only=True):
    """Every number a replica scores with, before its first answer with them."""

    TYPE: ClassVar[str] = "decision.settings-declared"
    settings: str
    code: str  # version of the program
    values: dict[str, float | str | bool]

    @property
    def key(self) -> str:
        return self.settings


class FilterDecided(Event, frozen=True, kw_only=True):
    TYPE: ClassVar[str] = "decision.filter"
    pod: PodAsk
    basis: Basis
    candidates: Candidates
    verdicts: bytes  # one byte each: 0 passed, else the code of the reason
    reason: str = ""  # the one text that the reply gave

    @property
    def key(self) -> str:
        return self.pod.uid


class Terms(msgspec.Struct, frozen=True, kw_only=True):
    """How one node's score came about, to the last bit."""

    node: str
    score: float
    headroom: float
    cooling: float
    trend: float
    bonus: float
    pressure: float
    draining: float
    marginal_w: float
    source: str  # what the headroom rests on; "neutral" where nothing fresh was known


class PrioritizeDecided(Event, frozen=True, kw_only=True):
    TYPE: ClassVar[str] = "decision.prioritize"
    pod: PodAsk
    basis: Basis
    candidates: Candidates
    scores: bytes  # int16, little endian, in the order of the candidates
    terms_digest: bytes  # sha256 over every float term of every candidate
    cluster_trend_w_per_min: float
    perf_pressure: float
    top: list[Terms]

    @property
    def key(self) -> str:
        return self.pod.uid


NodeFact: TypeAlias = TelemetrySampled | NodeSeen | NodeGone | HardwareDiscovered
PodFact: TypeAlias = PodPending | PodBound | PodFinished | PodGone
PlanEvent: TypeAlias = PlanMade | ProfileAssigned | DrainingBegun | CapsSet
Fact: TypeAlias = NodeFact | PodFact | PlanEvent
Decision: TypeAlias = FilterDecided | PrioritizeDecided
DecisionEntry: TypeAlias = SettingsDeclared | Decision
AnyEvent: TypeAlias = Fact | DecisionEntry

FACT_TYPES: tuple[type[Fact], ...] = (
    TelemetrySampled,
    NodeSeen,
    NodeGone,
    HardwareDiscovered,
    PodPending,
    PodBound,
    PodFinished,
    PodGone,
    PlanMade,
    ProfileAssigned,
    DrainingBegun,
    CapsSet,
)
DECISION_TYPES: tuple[type[DecisionEntry], ...] = (
    SettingsDeclared,
    FilterDecided,
    PrioritizeDecided,
)
EVENT_TYPES: tuple[type[AnyEvent], ...] = FACT_TYPES + DECISION_TYPES
