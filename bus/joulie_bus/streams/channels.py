"""What each subject carries: the table of the reference and of the AsyncAPI document.

`{cluster}` and the other parts in braces are one token each (`subjects.escape`).
"""

from typing import NamedTuple, get_args

from joulie_bus.events import (
    AgentReport,
    AnyEvent,
    CapsMeasured,
    CardFact,
    ClaimEvent,
    DecisionEntry,
    DeviceGone,
    DevicesAsked,
    DeviceSeen,
    FacilityPolled,
    GridFact,
    HardwareDiscovered,
    NamespaceSeen,
    NodeGone,
    NodePlan,
    NodeReading,
    NodeSeen,
    PlanMade,
    PodFact,
    TargetSet,
)


class Channel(NamedTuple):
    address: str
    what: str
    events: tuple[type[AnyEvent], ...] = ()  # none: it carries something else than events


CHANNELS = (
    Channel(
        "joulie.tel.{cluster}.{node}",
        "telemetry, inventory, by a program for many",
        get_args(NodeReading),
    ),
    Channel(
        "joulie.agent.{cluster}.{node}",
        "telemetry, inventory, by its own agent",
        get_args(AgentReport),
    ),
    Channel(
        "joulie.obs.{cluster}.node.{node}",
        "a node, as Kubernetes reports it",
        (NodeSeen, NodeGone),
    ),
    Channel("joulie.obs.{cluster}.hardware.{node}", "a node's hardware", (HardwareDiscovered,)),
    Channel(
        "joulie.obs.{cluster}.facility.{facility}",
        "temperature and power of the building",
        (FacilityPolled,),
    ),
    Channel(
        "joulie.obs.{cluster}.grid.{zone}",
        "price and carbon intensity of the grid in a zone",
        get_args(GridFact),
    ),
    Channel(
        "joulie.obs.{cluster}.target.{name}",
        "the most power that the cluster may draw",
        (TargetSet,),
    ),
    Channel(
        "joulie.obs.{cluster}.caps.{class}", "what caps were measured to save", (CapsMeasured,)
    ),
    Channel("joulie.obs.{cluster}.gpu.{card}", "a card, by its uuid", get_args(CardFact)),
    Channel(
        "joulie.obs.{cluster}.device.{card}",
        "a card that kube-scheduler allocates by DRA, and its ResourceClaims",
        (DeviceSeen, DeviceGone),
    ),
    Channel(
        "joulie.obs.{cluster}.devices.{claim}",
        "how many GPUs a ResourceClaim or its template asks for",
        (DevicesAsked,),
    ),
    Channel(
        "joulie.obs.{cluster}.namespace.{name}",
        "the default class for pods of a namespace",
        (NamespaceSeen,),
    ),
    Channel("joulie.obs.{cluster}.pod.{uid}", "a pod", get_args(PodFact)),
    Channel(
        "joulie.plan.{cluster}.{node}",
        "the planned profile and caps of a node",
        get_args(NodePlan),
    ),
    Channel("joulie.plan.{cluster}._meta", "the plan that the node events belong to", (PlanMade,)),
    Channel(
        "joulie.claim.{cluster}.{card}",
        "reservations of the memory of a card",
        get_args(ClaimEvent),
    ),
    Channel(
        "joulie.dec.{cluster}.{replica}",
        "answers of one extender replica; outcomes, of the projector",
        get_args(DecisionEntry),
    ),
    Channel("joulie.caps.{cluster}.{node}", "caps of a node, for its writer (live, not stored)"),
    Channel("joulie.view.{cluster}.delta", "what a commit changed (live, not stored)"),
    Channel("joulie.view.{cluster}.beat", "position and digest, four times a second (live)"),
    Channel("joulie.heads.{cluster}", "signed heads of the decision log"),
)
