"""All events, as unions for type checkers. The tuples have the order of the unions."""

from typing import TypeAlias, get_args

from joulie_bus.events.agents import CapsApplied, CapsRefused, CapsSettable, InventoryRead
from joulie_bus.events.cards import DeviceGone, DevicesAsked, DeviceSeen, GpuGone, GpuSeen
from joulie_bus.events.claims import CardClaimed, ClaimConfirmed, ClaimReleased
from joulie_bus.events.decisions import (
    BindDecided,
    DecisionsDropped,
    FallbackAnswered,
    FilterDecided,
    OutcomeSeen,
    PreemptDecided,
    PrioritizeDecided,
    Promise,
    PromiseKey,
    StateSetBack,
)
from joulie_bus.events.grid import GridIntensity, GridPriced
from joulie_bus.events.nodes import HardwareDiscovered, NodeGone, NodeSeen
from joulie_bus.events.plans import (
    CapsSet,
    DrainingBegun,
    EvictionOrdered,
    PlacementClosed,
    PlacementOpened,
    PlanMade,
    ProfileAssigned,
    SleepOrdered,
    TransitionCompleted,
    WakeOrdered,
)
from joulie_bus.events.pods import NamespaceSeen, PodBound, PodFinished, PodGone, PodPending
from joulie_bus.events.resizes import Resized, ResizeOrdered, ResizeRefused
from joulie_bus.events.settings import SettingsDeclared
from joulie_bus.events.telemetry import CapsMeasured, FacilityPolled, TargetSet, TelemetrySampled
from joulie_bus.events.use import PodsUsed

# What is measured and found on a node, by its agent or by a program for many nodes.
NodeReading: TypeAlias = TelemetrySampled | InventoryRead | CapsApplied | CapsRefused | PodsUsed
# What agents alone report of their nodes.
AgentReport: TypeAlias = NodeReading | CapsSettable
NodeFact: TypeAlias = AgentReport | NodeSeen | NodeGone | HardwareDiscovered
CardFact: TypeAlias = GpuSeen | GpuGone
DeviceFact: TypeAlias = DeviceSeen | DeviceGone | DevicesAsked
GridFact: TypeAlias = GridPriced | GridIntensity
PodFact: TypeAlias = PodPending | PodBound | PodFinished | PodGone
Observed: TypeAlias = (
    NodeSeen
    | NodeGone
    | HardwareDiscovered
    | FacilityPolled
    | GridFact
    | TargetSet
    | CapsMeasured
    | CardFact
    | DeviceFact
    | NamespaceSeen
    | PodFact
)
# Whether pods may run on a node, apart from its class.
NodeUse: TypeAlias = (
    SleepOrdered | WakeOrdered | EvictionOrdered | PlacementClosed | PlacementOpened
)
NodePlan: TypeAlias = ProfileAssigned | DrainingBegun | CapsSet | TransitionCompleted | NodeUse
# About single pods: no part of a plan, and published apart from it.
PodResize: TypeAlias = ResizeOrdered | Resized | ResizeRefused
PlanEvent: TypeAlias = PlanMade | NodePlan | PodResize
ClaimEvent: TypeAlias = CardClaimed | ClaimConfirmed | ClaimReleased
Fact: TypeAlias = (
    NodeFact
    | FacilityPolled
    | GridFact
    | TargetSet
    | CapsMeasured
    | CardFact
    | DeviceFact
    | NamespaceSeen
    | PodFact
    | PlanEvent
    | ClaimEvent
)
# The decisions that a replay recomputes.
Decision: TypeAlias = FilterDecided | PrioritizeDecided | PreemptDecided
DecisionEntry: TypeAlias = (
    SettingsDeclared
    | Decision
    | FallbackAnswered
    | DecisionsDropped
    | PromiseKey
    | Promise
    | BindDecided
    | OutcomeSeen
    | StateSetBack
)
AnyEvent: TypeAlias = Fact | DecisionEntry
FACT_TYPES: tuple[type[Fact], ...] = get_args(Fact)
DECISION_TYPES: tuple[type[DecisionEntry], ...] = get_args(DecisionEntry)
EVENT_TYPES: tuple[type[AnyEvent], ...] = FACT_TYPES + DECISION_TYPES
