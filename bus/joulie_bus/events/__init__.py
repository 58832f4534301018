"""What can happen. Events are immutable, named in the past tense, and never edited once released.

A field added later needs a default, so that older events still decode. A changed meaning is a new
version with an upcaster (`codec.UPCASTERS`); the old version stays readable. Every quantity that is
summed anywhere is an integer (milliwatts, millicores, bytes), so that sums are exact and do not
depend on order. Floats are finite: a log that contains a NaN does not equal itself. Texts and
numbers have bounds (`bounds`), so that every row that holds them can be encoded and fits its
columns.

No I/O, no clock.
Not here: how events travel (`streams`, `jetstream`), what they change (projections).
In: bytes of a message. Out: typed, bounded values, and their bytes again.
"""

from joulie_bus.events.base import Event, Finite, Values
from joulie_bus.events.cards import CardSource, GpuGone, GpuSeen
from joulie_bus.events.claims import (
    CardClaimed,
    ClaimConfirmed,
    ClaimReleased,
    Lifetime,
    ReleaseReason,
)
from joulie_bus.events.decisions import (
    Basis,
    BindDecided,
    BindOutcome,
    Candidates,
    DecisionsDropped,
    Duty,
    FallbackAnswer,
    FallbackAnswered,
    FallbackReason,
    FilterDecided,
    OutcomeSeen,
    PreemptDecided,
    PrioritizeDecided,
    Terms,
    Verb,
)
from joulie_bus.events.grid import GridIntensity, GridPriced
from joulie_bus.events.nodes import (
    HardwareDiscovered,
    HardwareSource,
    ModelFigures,
    NodeGone,
    NodeSeen,
)
from joulie_bus.events.plans import (
    CapsSet,
    DrainingBegun,
    Inputs,
    PlanMade,
    Profile,
    ProfileAssigned,
    SleepOrdered,
    TransitionCompleted,
    WakeOrdered,
)
from joulie_bus.events.pods import (
    GpuAsk,
    GpuTopology,
    NamespaceSeen,
    Placement,
    PodAsk,
    PodBound,
    PodFinished,
    PodGone,
    PodPending,
    WorkloadClass,
)
from joulie_bus.events.settings import SettingsDeclared
from joulie_bus.events.telemetry import (
    FacilityPolled,
    PowerSource,
    TargetSet,
    TelemetrySampled,
)
from joulie_bus.events.unions import (
    DECISION_TYPES,
    EVENT_TYPES,
    FACT_TYPES,
    AnyEvent,
    CardFact,
    ClaimEvent,
    Decision,
    DecisionEntry,
    Fact,
    GridFact,
    NodeFact,
    NodePlan,
    Observed,
    PlanEvent,
    PodFact,
)

__all__ = [
    "DECISION_TYPES",
    "EVENT_TYPES",
    "FACT_TYPES",
    "AnyEvent",
    "Basis",
    "BindDecided",
    "BindOutcome",
    "Candidates",
    "CapsSet",
    "CardClaimed",
    "CardFact",
    "CardSource",
    "ClaimConfirmed",
    "ClaimEvent",
    "ClaimReleased",
    "Decision",
    "DecisionEntry",
    "DecisionsDropped",
    "DrainingBegun",
    "Duty",
    "Event",
    "FacilityPolled",
    "Fact",
    "FallbackAnswer",
    "FallbackAnswered",
    "FallbackReason",
    "FilterDecided",
    "Finite",
    "GpuAsk",
    "GpuGone",
    "GpuSeen",
    "GpuTopology",
    "GridFact",
    "GridIntensity",
    "GridPriced",
    "HardwareDiscovered",
    "HardwareSource",
    "Inputs",
    "Lifetime",
    "ModelFigures",
    "NamespaceSeen",
    "NodeFact",
    "NodeGone",
    "NodePlan",
    "NodeSeen",
    "Observed",
    "OutcomeSeen",
    "Placement",
    "PlanEvent",
    "PlanMade",
    "PodAsk",
    "PodBound",
    "PodFact",
    "PodFinished",
    "PodGone",
    "PodPending",
    "PowerSource",
    "PreemptDecided",
    "PrioritizeDecided",
    "Profile",
    "ProfileAssigned",
    "ReleaseReason",
    "SettingsDeclared",
    "SleepOrdered",
    "TargetSet",
    "TelemetrySampled",
    "Terms",
    "TransitionCompleted",
    "Values",
    "Verb",
    "WakeOrdered",
    "WorkloadClass",
]
