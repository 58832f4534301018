"""Every subject and every stream on the bus. Nothing else in the repository spells one.

    joulie.tel.<cluster>.<node>                 telemetry of a node
    joulie.obs.<cluster>.node.<node>            a node, as Kubernetes shows it
    joulie.obs.<cluster>.hardware.<node>        a node's hardware
    joulie.obs.<cluster>.facility.<facility>    temperature and power of the building
    joulie.obs.<cluster>.gpu.<card>             a card, by its uuid
    joulie.obs.<cluster>.namespace.<name>       the class that a namespace gives to its pods
    joulie.obs.<cluster>.pod.<uid>              a pod
    joulie.plan.<cluster>.<node>                what a node shall be
    joulie.plan.<cluster>._meta                 the plan that the node events belong to
    joulie.claim.<cluster>.<card>               who has reserved what of a card
    joulie.dec.<cluster>.<replica>              answers of one extender replica
    joulie.view.<cluster>.delta                 what a commit changed (live, not stored)
    joulie.view.<cluster>.beat                  position and digest, four times a second (live)
    joulie.heads.<cluster>                      signed heads of the decision log

A name is one token: whatever a NATS token may not hold is escaped reversibly.
"""

import string
from enum import StrEnum
from functools import lru_cache
from typing import assert_never, get_args

from joulie_bus.events import (
    AnyEvent,
    BindDecided,
    CapsSet,
    CardClaimed,
    ClaimConfirmed,
    ClaimEvent,
    ClaimReleased,
    DecisionEntry,
    DecisionsDropped,
    DrainingBegun,
    FacilityPolled,
    FallbackAnswered,
    FilterDecided,
    GpuGone,
    GpuSeen,
    HardwareDiscovered,
    NamespaceSeen,
    NodeGone,
    NodeSeen,
    Observed,
    OutcomeSeen,
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


# The merge rule of the projector: within one batch, plans before claims before observations before
# telemetry.
MERGE_ORDER: tuple[Stream, ...] = (Stream.PLAN, Stream.CLAIM, Stream.OBS, Stream.TEL)

PATTERNS: dict[Stream, str] = {
    Stream.TEL: "joulie.tel.{cluster}.*",
    Stream.OBS: "joulie.obs.{cluster}.*.*",
    Stream.PLAN: "joulie.plan.{cluster}.*",
    Stream.CLAIM: "joulie.claim.{cluster}.*",
    Stream.DEC: "joulie.dec.{cluster}.*",
    Stream.HEADS: "joulie.heads.{cluster}",
}

LIVE = "joulie.view.{cluster}.*"  # told, never stored

SPOKEN_OF = 20_000  # names whose token is remembered: the same ones come again and again
_PLAIN = frozenset(string.ascii_letters + string.digits + "-")


@lru_cache(maxsize=SPOKEN_OF)
def escape(name: str) -> str:
    """One NATS token, and back again by `unescape`.

    Letters, digits and "-" stay; any other byte of the UTF-8 is written as "=XX", so "." is "=2E".
    "_" is escaped too, which keeps "_meta" free for ourselves whatever a node is called.
    """
    if not name:
        raise ValueError("an empty name has no place in a subject")
    return "".join(chr(byte) if chr(byte) in _PLAIN else f"={byte:02X}" for byte in name.encode())


def unescape(token: str) -> str:
    head, *rest = token.split("=")
    raw = head.encode() + b"".join(bytes([int(part[:2], 16)]) + part[2:].encode() for part in rest)
    return raw.decode()


class Subjects:
    """The subjects of one cluster."""

    def __init__(self, cluster: str) -> None:
        self.cluster = cluster
        self._token = escape(cluster)
        self.plan_meta = f"joulie.plan.{self._token}._meta"
        self.delta = f"joulie.view.{self._token}.delta"
        self.beat = f"joulie.view.{self._token}.beat"
        self.heads = f"joulie.heads.{self._token}"

    def pattern(self, stream: Stream) -> str:
        return PATTERNS[stream].format(cluster=self._token)

    def decisions(self, replica: str) -> str:
        return f"joulie.dec.{self._token}.{escape(replica)}"

    def claim(self, card: str) -> str:
        return f"joulie.claim.{self._token}.{escape(card)}"

    def of(self, event: AnyEvent, replica: str = "") -> str:
        match event:  # what is said most comes first
            case TelemetrySampled():
                return f"joulie.tel.{self._token}.{escape(event.node)}"
            case (
                FilterDecided()
                | PrioritizeDecided()
                | PreemptDecided()
                | SettingsDeclared()
                | FallbackAnswered()
                | DecisionsDropped()
                | BindDecided()
                | OutcomeSeen()
            ):
                return self.decisions(replica)
            case PlanMade():
                return self.plan_meta
            case (
                ProfileAssigned()
                | DrainingBegun()
                | CapsSet()
                | TransitionCompleted()
                | SleepOrdered()
                | WakeOrdered()
            ):
                return f"joulie.plan.{self._token}.{escape(event.node)}"
            case CardClaimed() | ClaimConfirmed() | ClaimReleased():
                return self.claim(event.card)
            case _:
                return f"joulie.obs.{self._token}.{_thing(event)}.{escape(event.key)}"


def _thing(event: Observed) -> str:
    match event:
        case NodeSeen() | NodeGone():
            return "node"
        case HardwareDiscovered():
            return "hardware"
        case FacilityPolled():
            return "facility"
        case GpuSeen() | GpuGone():
            return "gpu"
        case NamespaceSeen():
            return "namespace"
        case PodPending() | PodBound() | PodFinished() | PodGone():
            return "pod"
        case _:
            assert_never(event)


def kind_of(subject: str) -> str:
    """What the subjects of one stream have in common, and those of two have not."""
    return subject.split(".", 2)[1]


def stream_of(event: AnyEvent) -> Stream:
    return _STREAMS[type(event)]


# A test holds that no event is missing, and that its stream takes its subject.
_STREAMS: dict[type[AnyEvent], Stream] = {
    TelemetrySampled: Stream.TEL,
    **dict.fromkeys(get_args(Observed), Stream.OBS),
    **dict.fromkeys(get_args(PlanEvent), Stream.PLAN),
    **dict.fromkeys(get_args(ClaimEvent), Stream.CLAIM),
    **dict.fromkeys(get_args(DecisionEntry), Stream.DEC),
}
