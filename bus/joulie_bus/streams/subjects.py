"""All subjects and streams of the bus: their names. `channels` has what each one carries.

A name is one token: characters that a NATS token may not contain are escaped reversibly.
"""

import string
from enum import StrEnum
from functools import lru_cache
from typing import get_args

from joulie_bus.events import (
    AgentReport,
    AnyEvent,
    BindDecided,
    CapsApplied,
    CapsMeasured,
    CapsRefused,
    CapsSet,
    CapsSettable,
    CardClaimed,
    ClaimConfirmed,
    ClaimEvent,
    ClaimReleased,
    DecisionEntry,
    DecisionsDropped,
    DeviceGone,
    DevicesAsked,
    DeviceSeen,
    DrainingBegun,
    EvictionOrdered,
    FacilityPolled,
    FallbackAnswered,
    FilterDecided,
    GpuGone,
    GpuSeen,
    GridIntensity,
    GridPriced,
    HardwareDiscovered,
    InventoryRead,
    NamespaceSeen,
    NodeGone,
    NodeSeen,
    Observed,
    OutcomeSeen,
    PlacementClosed,
    PlacementOpened,
    PlanEvent,
    PlanMade,
    PodBound,
    PodFinished,
    PodGone,
    PodPending,
    PreemptDecided,
    PrioritizeDecided,
    ProfileAssigned,
    SettingsDeclared,
    SleepOrdered,
    StateSetBack,
    TargetSet,
    TelemetrySampled,
    TransitionCompleted,
    WakeOrdered,
)


class Stream(StrEnum):
    TEL = "JOULIE_TEL"
    OBS = "JOULIE_OBS"
    PLAN = "JOULIE_PLAN"
    CLAIM = "JOULIE_CLAIM"
    DEC = "JOULIE_DEC"
    HEADS = "JOULIE_HEADS"


# The order in which the projector merges a batch: plans, claims, observations, telemetry.
MERGE_ORDER: tuple[Stream, ...] = (Stream.PLAN, Stream.CLAIM, Stream.OBS, Stream.TEL)


class Family(StrEnum):
    """The second token of a subject. Roles have permissions per family; a family has one stream."""

    TEL = "tel"
    AGENT = "agent"
    OBS = "obs"
    PLAN = "plan"
    CLAIM = "claim"
    DEC = "dec"
    HEADS = "heads"


PATTERNS: dict[Family, str] = {
    Family.TEL: "joulie.tel.{cluster}.*",
    Family.AGENT: "joulie.agent.{cluster}.*",
    Family.OBS: "joulie.obs.{cluster}.*.*",
    Family.PLAN: "joulie.plan.{cluster}.*",
    Family.CLAIM: "joulie.claim.{cluster}.*",
    Family.DEC: "joulie.dec.{cluster}.*",
    Family.HEADS: "joulie.heads.{cluster}",
}
FAMILIES: dict[Stream, tuple[Family, ...]] = {
    Stream.TEL: (Family.TEL, Family.AGENT),
    Stream.OBS: (Family.OBS,),
    Stream.PLAN: (Family.PLAN,),
    Stream.CLAIM: (Family.CLAIM,),
    Stream.DEC: (Family.DEC,),
    Stream.HEADS: (Family.HEADS,),
}
META = "_meta"  # the key of plan events that concern no single node
PROJECTOR = "projector"  # the replica token of outcomes, in the stream of decisions

LIVE = "joulie.view.{cluster}.*"  # live, never stored
CAPS = "joulie.caps.{cluster}.*"  # live, never stored

REMEMBERED_NAMES = 20_000  # their tokens are cached, as the same names recur
AGENT_PREFIX = "agent-"  # prefix of the producer names of agents only
_PLAIN = frozenset(string.ascii_letters + string.digits + "-")


@lru_cache(maxsize=REMEMBERED_NAMES)
def escape(name: str) -> str:
    """The name as one NATS token; `unescape` is the inverse.

    Letters, digits and "-" stay; any other byte of the UTF-8 is written as "=XX", so "." is "=2E".
    "_" is escaped too, so that no node name collides with "_meta".
    """
    if not name:
        raise ValueError("an empty name has no place in a subject")
    return "".join(chr(byte) if chr(byte) in _PLAIN else f"={byte:02X}" for byte in name.encode())


def unescape(token: str) -> str:
    head, *rest = token.split("=")
    raw = head.encode() + b"".join(bytes([int(part[:2], 16)]) + part[2:].encode() for part in rest)
    return raw.decode()


def agent_name(node: str) -> str:
    """The producer name of a node's agent, unique per node."""
    return f"{AGENT_PREFIX}{escape(node)}"


def cap_writer_name(node: str) -> str:
    """The producer name of the program that sets the caps of a node. No node has this name: a "="
    is followed by two digits in an escaped one."""
    return f"{agent_name(node)}=caps"


class Subjects:
    """The subjects of one cluster."""

    def __init__(self, cluster: str) -> None:
        self.cluster = cluster
        self._token = escape(cluster)
        self.plan_meta = f"joulie.plan.{self._token}.{META}"
        self.delta = f"joulie.view.{self._token}.delta"
        self.beat = f"joulie.view.{self._token}.beat"
        self.heads = f"joulie.heads.{self._token}"

    def owns(self, pattern: str) -> bool:
        """Whether the subject belongs to this cluster, also of a later version."""
        return pattern.split(".")[2:3] == [self._token]

    def patterns(self, stream: Stream) -> list[str]:
        """The subject patterns of the stream."""
        return [PATTERNS[family].format(cluster=self._token) for family in FAMILIES[stream]]

    def decisions(self, replica: str) -> str:
        return f"joulie.dec.{self._token}.{escape(replica)}"

    def caps(self, node: str) -> str:
        return f"joulie.caps.{self._token}.{escape(node)}"

    def claim(self, card: str) -> str:
        return f"joulie.claim.{self._token}.{escape(card)}"

    def of(self, event: AnyEvent, producer: str = "") -> str:
        """The subject of this event from this producer."""
        family, tail = place_of(event, producer)
        return f"joulie.{family}.{self._token}.{tail}"


def place_of(event: AnyEvent, producer: str) -> tuple[Family, str]:
    """The family of its subject, and what follows the cluster."""
    match event:  # the most frequent family comes first
        case TelemetrySampled() | InventoryRead() | CapsApplied() | CapsRefused():
            of_the_node = (agent_name(event.node), cap_writer_name(event.node))
            return (Family.AGENT if producer in of_the_node else Family.TEL), escape(event.node)
        case CapsSettable():
            return Family.AGENT, escape(event.node)
        case OutcomeSeen() | StateSetBack():
            return Family.DEC, PROJECTOR
        case (
            FilterDecided()
            | PrioritizeDecided()
            | PreemptDecided()
            | SettingsDeclared()
            | FallbackAnswered()
            | DecisionsDropped()
            | BindDecided()
        ):
            return Family.DEC, escape(producer)
        case PlanMade():
            return Family.PLAN, META
        case (
            ProfileAssigned()
            | DrainingBegun()
            | CapsSet()
            | TransitionCompleted()
            | SleepOrdered()
            | WakeOrdered()
            | EvictionOrdered()
            | PlacementClosed()
            | PlacementOpened()
        ):
            return Family.PLAN, escape(event.node)
        case CardClaimed() | ClaimConfirmed() | ClaimReleased():
            return Family.CLAIM, escape(event.card)
        case _:
            return Family.OBS, f"{_thing(event)}.{escape(event.key)}"


def _thing(event: Observed) -> str:
    return _THINGS[type(event)]


# A test checks that each event type has a place.
_THINGS: dict[type[AnyEvent], str] = {
    **dict.fromkeys((NodeSeen, NodeGone), "node"),
    HardwareDiscovered: "hardware",
    FacilityPolled: "facility",
    **dict.fromkeys((GridPriced, GridIntensity), "grid"),
    TargetSet: "target",
    CapsMeasured: "caps",
    **dict.fromkeys((GpuSeen, GpuGone), "gpu"),
    **dict.fromkeys((DeviceSeen, DeviceGone), "device"),
    DevicesAsked: "devices",
    NamespaceSeen: "namespace",
    **dict.fromkeys((PodPending, PodBound, PodFinished, PodGone), "pod"),
}


def kind_of(subject: str) -> str:
    """The part of a subject that identifies its stream."""
    return subject.split(".", 2)[1]


def stream_of(event: AnyEvent) -> Stream:
    return _STREAMS[type(event)]


# A test checks that each event type is listed and that its stream accepts its subject.
_STREAMS: dict[type[AnyEvent], Stream] = {
    **dict.fromkeys(get_args(AgentReport), Stream.TEL),
    **dict.fromkeys(get_args(Observed), Stream.OBS),
    **dict.fromkeys(get_args(PlanEvent), Stream.PLAN),
    **dict.fromkeys(get_args(ClaimEvent), Stream.CLAIM),
    **dict.fromkeys(get_args(DecisionEntry), Stream.DEC),
}
