"""What can happen. Past tense, immutable, and never edited once released.

A field added later needs a default, so that last year's events still decode. A changed meaning is a
new version with an upcaster (`codec.UPCASTERS`); the old one stays readable. Whatever is summed
anywhere is an integer (milliwatts, millicores, bytes), so that sums are exact and free of order.
Floats are finite: a log with a NaN in it equals not even itself. Texts and numbers have bounds
(`bounds`), so that every row that holds them has an encoding and fits its columns.

Not here: how events travel (`streams`, `jetstream`), what they change (projections).
In: bytes of a message. Out: typed, bounded values, and their bytes again.
"""

import sys
from typing import Annotated, ClassVar, Literal, TypeAlias

import msgspec

from joulie_bus.events.bounds import (
    MOST_VALUES,
    Bytes,
    CardMb,
    Cards,
    Count,
    CpuMilli,
    EventId,
    FacilityMilliwatts,
    GivenCards,
    GpuMilli,
    Holder,
    Labels,
    Millidegrees,
    Milliwatts,
    Name,
    Nanoseconds,
    Percent,
    Score,
    ShareMilli,
    Text,
    Uid,
    Word,
)

Finite = Annotated[float, msgspec.Meta(ge=-sys.float_info.max, le=sys.float_info.max)]
Inputs = Annotated[dict[Word, Finite], msgspec.Meta(max_length=MOST_VALUES)]
Values = Annotated[dict[Word, Finite | Text | bool], msgspec.Meta(max_length=MOST_VALUES)]
Lifetime = Annotated[int, msgspec.Meta(ge=1, le=86_400)]  # seconds; nobody reserves for days

Profile = Literal["performance", "eco"]
WorkloadClass = Literal["performance", "standard"]
Placement = Literal["performance-only", "eco-only", "general"]
PowerSource = Literal["kepler", "utilization", "static"]
CardSource = Literal["agent", "resource"]
GpuTopology = Literal["", "nvlink"]
HardwareSource = Literal["resource", "agent", "labels"]
ReleaseReason = Literal["bound-elsewhere", "finished", "gone", "expired", "moved", "not-bound"]
BindOutcome = Literal["bound", "lost-race", "failed"]
Verb = Literal["filter", "prioritize", "preempt"]
FallbackReason = Literal["not-ready", "overdue", "failed", "unrecorded"]
FallbackAnswer = Literal["open", "closed"]
Duty = Literal["energy", "gpu", "all"]  # which rules an answer was asked for


class Event(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """`TYPE` and `VERSION` name it on the wire; `key` orders it: one key, one order."""

    TYPE: ClassVar[str]
    VERSION: ClassVar[int] = 1

    @property
    def key(self) -> str:
        raise NotImplementedError


# --- facts about nodes ------------------------------------------------------------------------


class TelemetrySampled(Event, frozen=True, kw_only=True, gc=False):
    """One reading of one node's power. A reading that failed is no event, never 0 W."""

    TYPE: ClassVar[str] = "telemetry.sampled"
    node: Name
    power_mw: Milliwatts
    source: PowerSource = "kepler"
    provider: Word = ""

    @property
    def key(self) -> str:
        return self.node


class NodeSeen(Event, frozen=True, kw_only=True):
    """A node as Kubernetes shows it. `labels` holds only those that Joulie reads."""

    TYPE: ClassVar[str] = "node.seen"
    node: Name
    uid: Uid
    labels: Labels = {}
    ready: bool = True
    schedulable: bool = True
    cpu_milli: CpuMilli = 0
    memory_bytes: Bytes = 0
    gpus: Cards = 0
    gpu_units: Cards = 0  # that pods ask for, where one is less than a card; 0: they ask for cards
    gpu_vendor: Word = ""  # by the name of the resource

    @property
    def key(self) -> str:
        return self.node


class NodeGone(Event, frozen=True, kw_only=True):
    TYPE: ClassVar[str] = "node.gone"
    node: Name

    @property
    def key(self) -> str:
        return self.node


class ModelFigures(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """What a catalog says of a node's models, and the node does not; 0: the catalog does not know.

    Apart, because an event of more than 15 fields is written in other bytes, even those that have
    none of the new ones.
    """

    cores_per_socket: Count = 0
    cpu_cap_mw_per_socket: Milliwatts = 0  # the highest cap that the maker lets one set
    gpu_tflops: Count = 0  # that one card computes, FP16 without sparsity


class HardwareDiscovered(Event, frozen=True, kw_only=True, gc=False):
    """What a node could draw, flat out; figures that nobody gave are those of a catalog by now."""

    TYPE: ClassVar[str] = "hardware.discovered"
    node: Name
    cpu_model: Word
    cpu_sockets: Cards
    cpu_cores: Cards
    cpu_max_mw_per_socket: Milliwatts
    gpu_model: Word = ""
    gpu_count: Cards = 0
    gpu_max_mw: Milliwatts = 0
    memory_bytes: Bytes = 0
    source: HardwareSource = "resource"
    cpu_min_mw_per_socket: Milliwatts = 0  # the lowest cap that it takes; 0: nobody knows
    gpu_min_mw: Milliwatts = 0
    gpu_by_catalog: bool = False  # the card's watts are a catalog's; a setting knows better
    gpu_vendor: str = ""  # nvidia, amd, intel; "" if it is none of them, or unknown
    figures: ModelFigures = ModelFigures()

    @property
    def key(self) -> str:
        return self.node


# --- facts about the room and its cards -------------------------------------------------------


class FacilityPolled(Event, frozen=True, kw_only=True):
    """One look at the building. A reading that failed is absent: the last one stays, and ages."""

    TYPE: ClassVar[str] = "facility.polled"
    facility: Name
    ambient_mdeg: Millidegrees | None = None  # thousandths of a degree Celsius
    it_mw: FacilityMilliwatts | None = None
    cooling_mw: FacilityMilliwatts | None = None

    @property
    def key(self) -> str:
        return self.facility


class GpuSeen(Event, frozen=True, kw_only=True):
    """One card, whole, as an agent or the `GPU` resource shows it."""

    TYPE: ClassVar[str] = "gpu.seen"
    uuid: Name
    node: Name
    model: Word
    total_mb: CardMb
    allocated_mb: CardMb = 0
    healthy: bool = True
    nvlink_group: Word = ""  # cards of a node with the same one are linked; "" is linked to none
    owner: Uid = ""  # uid of the pod that has it
    holder: Holder = ""  # namespace/name of that pod where no uid is given; "?" where nothing is
    source: CardSource = "resource"

    @property
    def key(self) -> str:
        return self.uuid


class GpuGone(Event, frozen=True, kw_only=True):
    TYPE: ClassVar[str] = "gpu.gone"
    uuid: Name

    @property
    def key(self) -> str:
        return self.uuid


class NamespaceSeen(Event, frozen=True, kw_only=True):
    """The class that a namespace gives to pods that say none; absent when it gives none any more.

    Told of those alone that give one, or gave one.
    """

    TYPE: ClassVar[str] = "namespace.seen"
    namespace: Name
    workload: WorkloadClass | None = None

    @property
    def key(self) -> str:
        return self.namespace


# --- facts about pods -------------------------------------------------------------------------


class GpuAsk(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """What a pod wants of its cards; nothing said, anything goes."""

    model: Word = ""  # as the pod spells it
    vram_mb: CardMb = 0  # of each card
    topology: GpuTopology = ""
    share_milli: ShareMilli = (
        0  # thousandths of one card that it shares with others; 0: whole cards
    )
    unreadable: Word = ""  # the annotation that makes no sense: this pod fits nowhere
    given: GivenCards = ()  # the cards that its Binding names


class PodAsk(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """What a pod asks for, and why we think so. The same value in facts and in decisions."""

    uid: Uid
    namespace: Name
    name: Name
    workload: WorkloadClass = "standard"
    placement: Placement = "general"
    rule: Word = "default"  # which rule of classification fired
    exempt: Word = ""  # why energy may never refuse it: daemonset, mirror, critical
    cpu_milli: CpuMilli = 0
    memory_bytes: Bytes = 0
    gpu_milli: GpuMilli = 0  # thousandths of a card, because a MIG slice is a fraction
    gpu_cards: Cards = 0  # whole ones
    gpu: GpuAsk = GpuAsk()
    team: Word = ""  # whose pod it is, as its label says


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
    node: Name

    @property
    def key(self) -> str:
        return self.pod.uid


class PodFinished(Event, frozen=True, kw_only=True):
    """Succeeded or Failed: it draws nothing any more, though its object may stay."""

    TYPE: ClassVar[str] = "pod.finished"
    uid: Uid

    @property
    def key(self) -> str:
        return self.uid


class PodGone(Event, frozen=True, kw_only=True):
    TYPE: ClassVar[str] = "pod.gone"
    uid: Uid

    @property
    def key(self) -> str:
        return self.uid


# --- plans ------------------------------------------------------------------------------------


class PlanMade(Event, frozen=True, kw_only=True):
    """Why the node events beside it exist, and all that it takes to make the same plan again.

    Written first in the batch, under compare-and-set. A plan too large for one batch comes in
    parts, each with the numbers of the whole.
    """

    TYPE: ClassVar[str] = "plan.made"
    plan: Word
    policy: Word
    view: Count  # the position of the world that was looked at
    nodes: Count
    performance: Count
    changes: Count
    inputs: Inputs = {}
    because: Text = ""
    now: Nanoseconds = 0  # the only clock that the plan used
    code: Word = ""  # version of the program, and of a policy from elsewhere
    settings: Values = {}  # what is left out is "none"
    pods_known: bool = True  # was it known which pods run where?
    dry_run: bool = False  # nothing was changed; this is what would have been
    part: Count = 1
    parts: Count = 1

    @property
    def key(self) -> str:
        return "_meta"


class ProfileAssigned(Event, frozen=True, kw_only=True):
    TYPE: ClassVar[str] = "plan.profile-assigned"
    plan: Word
    node: Name
    profile: Profile
    because: Text = ""

    @property
    def key(self) -> str:
        return self.node


class DrainingBegun(Event, frozen=True, kw_only=True):
    """The node shall become eco; performance pods still run there, so its caps stay."""

    TYPE: ClassVar[str] = "plan.draining-begun"
    plan: Word
    node: Name
    performance_pods: Count
    because: Text = ""

    @property
    def key(self) -> str:
        return self.node


class CapsSet(Event, frozen=True, kw_only=True):
    """Absent means no cap; a number never stands for "none".

    Where there are watts, they are what is meant, and the percentage says the same of the maximum.
    """

    TYPE: ClassVar[str] = "plan.caps-set"
    plan: Word
    node: Name
    cpu_cap_pct: Percent | None = None
    gpu_cap_pct: Percent | None = None
    cpu_cap_mw_per_socket: Milliwatts | None = None
    gpu_cap_mw: Milliwatts | None = None  # per card

    @property
    def key(self) -> str:
        return self.node


class TransitionCompleted(Event, frozen=True, kw_only=True):
    """The node is what it was to become; what held it up is gone."""

    TYPE: ClassVar[str] = "plan.transition-completed"
    plan: Word
    node: Name
    profile: Profile
    because: Text = ""

    @property
    def key(self) -> str:
        return self.node


class SleepOrdered(Event, frozen=True, kw_only=True):
    TYPE: ClassVar[str] = "plan.sleep-ordered"
    plan: Word
    node: Name
    because: Text = ""

    @property
    def key(self) -> str:
        return self.node


class WakeOrdered(Event, frozen=True, kw_only=True):
    TYPE: ClassVar[str] = "plan.wake-ordered"
    plan: Word
    node: Name
    because: Text = ""

    @property
    def key(self) -> str:
        return self.node


# --- claims -----------------------------------------------------------------------------------


class CardClaimed(Event, frozen=True, kw_only=True):
    """A pod takes memory of a card, written under compare-and-set: no card is given out twice."""

    TYPE: ClassVar[str] = "claim.made"
    card: Name
    pod_uid: Uid
    namespace: Name
    name: Name
    node: Name
    mb: CardMb
    expires_s: Lifetime  # from when the broker stored it, unless the claim is confirmed

    @property
    def key(self) -> str:
        return self.card


class ClaimConfirmed(Event, frozen=True, kw_only=True):
    """The pod was seen bound: the claim lasts until it is released."""

    TYPE: ClassVar[str] = "claim.confirmed"
    card: Name
    pod_uid: Uid

    @property
    def key(self) -> str:
        return self.card


class ClaimReleased(Event, frozen=True, kw_only=True):
    TYPE: ClassVar[str] = "claim.released"
    card: Name
    pod_uid: Uid
    why: ReleaseReason

    @property
    def key(self) -> str:
        return self.card


# --- decisions --------------------------------------------------------------------------------


class Basis(msgspec.Struct, frozen=True, kw_only=True):
    """What an answer rests on: enough to give it again, next year, elsewhere."""

    view: Count  # position of the projection that was read
    view_age_ms: Count
    now: Nanoseconds  # the only clock the answer used
    settings: Word  # id of the settings in force; their values are an entry of the same log


class Candidates(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The nodes of one request, in its order: 4 bytes each for those we know."""

    ordinals: bytes  # int32, little endian; -1 stands for the next of `strangers`
    strangers: list[Name] = []


class SettingsDeclared(Event, frozen=True, kw_only=True):
    """Every number a replica scores with, before its first answer with them."""

    TYPE: ClassVar[str] = "decision.settings-declared"
    settings: Word
    code: Word  # version of the program
    values: Values

    @property
    def key(self) -> str:
        return self.settings


class FilterDecided(Event, frozen=True, kw_only=True):
    TYPE: ClassVar[str] = "decision.filter"
    pod: PodAsk
    basis: Basis
    candidates: Candidates
    verdicts: bytes  # one byte each: 0 passed, else the code of the reason
    reason: Text = ""  # the one text that the reply gave
    eco_labels: bytes = b""  # one byte each: does the node that was sent say eco? "" for names
    duty: Duty = "energy"

    @property
    def key(self) -> str:
        return self.pod.uid


class Terms(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How one node's score came about, to the last bit."""

    node: Name
    score: Finite
    headroom: Finite
    cooling: Finite
    trend: Finite
    bonus: Finite
    pressure: Finite
    draining: Finite
    marginal_w: Finite
    assumed_w: Finite = 0.0  # of pods that the reading does not show yet
    packing: Finite = 0.0  # how well the pod's cards fill up the node, weighted
    wishes: Finite = 0.0  # what labels and teams prefer
    source: Word  # what the headroom rests on: extender's Basis, in lower case


class PrioritizeDecided(Event, frozen=True, kw_only=True):
    TYPE: ClassVar[str] = "decision.prioritize"
    pod: PodAsk
    basis: Basis
    candidates: Candidates
    scores: bytes  # int16, little endian, in the order of the candidates
    terms_digest: bytes  # sha256 over words into which all float terms of a candidate are mixed
    cluster_trend_w_per_min: Finite
    perf_pressure: Finite
    top: list[Terms]
    duty: Duty = "energy"

    @property
    def key(self) -> str:
        return self.pod.uid


class PreemptDecided(Event, frozen=True, kw_only=True):
    """Which of the nodes that kube-scheduler would clear are worth clearing."""

    TYPE: ClassVar[str] = "decision.preempt"
    pod: PodAsk
    basis: Basis
    candidates: Candidates
    verdicts: bytes  # one byte each: 0 kept, else the code of the reason
    duty: Duty = "energy"
    victims: list[Uid] = []  # uids of those that hold cards, whose cards count as free

    @property
    def key(self) -> str:
        return self.pod.uid


class FallbackAnswered(Event, frozen=True, kw_only=True):
    """Not thought about: everything was let through, or nothing. There is nothing to recompute."""

    TYPE: ClassVar[str] = "decision.fallback"
    pod_uid: Uid
    namespace: Name
    name: Name
    verb: Verb
    why: FallbackReason
    answer: FallbackAnswer
    candidates: Count
    basis: Basis

    @property
    def key(self) -> str:
        return self.pod_uid


class DecisionsDropped(Event, frozen=True, kw_only=True):
    """Answers that were given and could not be kept. Their numbers are the hole before this one."""

    TYPE: ClassVar[str] = "decision.dropped"
    count: Count
    why: Text

    @property
    def key(self) -> str:
        return "_dropped"


class BindDecided(Event, frozen=True, kw_only=True):
    """Where a pod went, with which cards; or why it did not."""

    TYPE: ClassVar[str] = "decision.bind"
    pod_uid: Uid
    namespace: Name
    name: Name
    node: Name
    basis: Basis
    outcome: BindOutcome
    cards: list[Name] = []
    error: Text = ""  # what the reply said
    because: Text = ""  # why these cards

    @property
    def key(self) -> str:
        return self.pod_uid


class OutcomeSeen(Event, frozen=True, kw_only=True):
    """What became of an answer: where the pod was bound, and how that node had ranked."""

    TYPE: ClassVar[str] = "decision.outcome"
    pod_uid: Uid
    namespace: Name
    name: Name
    node: Name
    decision: EventId = ""  # id of the prioritize event; "" if there was none
    rank: Count | None = None  # 1 is the best; absent if the node was no candidate
    score: Score | None = None
    regret: Count | None = None  # the best score of that answer less this one

    @property
    def key(self) -> str:
        return self.pod_uid


NodeFact: TypeAlias = TelemetrySampled | NodeSeen | NodeGone | HardwareDiscovered
CardFact: TypeAlias = GpuSeen | GpuGone
PodFact: TypeAlias = PodPending | PodBound | PodFinished | PodGone
Observed: TypeAlias = (
    NodeSeen | NodeGone | HardwareDiscovered | FacilityPolled | CardFact | NamespaceSeen | PodFact
)
NodePlan: TypeAlias = (
    ProfileAssigned | DrainingBegun | CapsSet | TransitionCompleted | SleepOrdered | WakeOrdered
)
PlanEvent: TypeAlias = PlanMade | NodePlan
ClaimEvent: TypeAlias = CardClaimed | ClaimConfirmed | ClaimReleased
Fact: TypeAlias = (
    NodeFact | FacilityPolled | CardFact | NamespaceSeen | PodFact | PlanEvent | ClaimEvent
)
# Those that are computed again.
Decision: TypeAlias = FilterDecided | PrioritizeDecided | PreemptDecided
DecisionEntry: TypeAlias = (
    SettingsDeclared | Decision | FallbackAnswered | DecisionsDropped | BindDecided | OutcomeSeen
)
AnyEvent: TypeAlias = Fact | DecisionEntry

FACT_TYPES: tuple[type[Fact], ...] = (
    TelemetrySampled,
    NodeSeen,
    NodeGone,
    HardwareDiscovered,
    FacilityPolled,
    GpuSeen,
    GpuGone,
    NamespaceSeen,
    PodPending,
    PodBound,
    PodFinished,
    PodGone,
    PlanMade,
    ProfileAssigned,
    DrainingBegun,
    CapsSet,
    TransitionCompleted,
    SleepOrdered,
    WakeOrdered,
    CardClaimed,
    ClaimConfirmed,
    ClaimReleased,
)
DECISION_TYPES: tuple[type[DecisionEntry], ...] = (
    SettingsDeclared,
    FilterDecided,
    PrioritizeDecided,
    PreemptDecided,
    FallbackAnswered,
    DecisionsDropped,
    BindDecided,
    OutcomeSeen,
)
EVENT_TYPES: tuple[type[AnyEvent], ...] = FACT_TYPES + DECISION_TYPES
