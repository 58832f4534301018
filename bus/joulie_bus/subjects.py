"""Every subject and every stream on the bus. Nothing else in the repository spells one.

    joulie.tel.<cluster>.<node>                 telemetry of a node
    joulie.obs.<cluster>.node.<node>            a node, as Kubernetes shows it
    joulie.obs.<cluster>.hardware.<node>        a node's hardware
    joulie.obs.<cluster>.pod.<uid>              a pod
    joulie.plan.<cluster>.<node>                what a node shall be
    joulie.plan.<cluster>._meta                 the plan that the node events belong to
    joulie.dec.<cluster>.<replica>              answers of one extender replica
    joulie.view.<cluster>.delta                 what a commit changed (live, not stored)
    joulie.view.<cluster>.beat                  position and digest, four times a second (live)
    joulie.heads.<cluster>                      signed heads of the decision log

A name is one token: whatever a NATS token may not hold is escaped reversibly.
"""

import string
from enum import StrEnum
from typing import assert_never

from joulie_bus.events import (
    AnyEvent,
    CapsSet,
    DrainingBegun,
    FilterDecided,
    HardwareDiscovered,
    NodeGone,
    NodeSeen,
    PlanMade,
    PodBound,
    PodFinished,
    PodGone,
    PodPending,
    PrioritizeDecided,
    ProfileAssigned,
    SettingsDeclared,
    TelemetrySampled,
)


class Stream(StrEnum):
    TEL = "JOULIE_TEL"
    OBS = "JOULIE_OBS"
    PLAN = "JOULIE_PLAN"
    DEC = "JOULIE_DEC"
    HEADS = "JOULIE_HEADS"


# The merge rule of the projector: within one batch, plans before observations before telemetry.
MERGE_ORDER: tuple[Stream, ...] = (Stream.PLAN, Stream.OBS, Stream.TEL)

PATTERNS: dict[Stream, str] = {
    Stream.TEL: "joulie.tel.{cluster}.*",
    Stream.OBS: "joulie.obs.{cluster}.*.*",
    Stream.PLAN: "joulie.plan.{cluster}.*",
    Stream.DEC: "joulie.dec.{cluster}.*",
    Stream.HEADS: "joulie.heads.{cluster}",
}

_PLAIN = frozenset(string.ascii_letters + string.digits + "-")


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

    def of(self, event: AnyEvent, replica: str = "") -> str:
        match event:
            case TelemetrySampled():
                return f"joulie.tel.{self._token}.{escape(event.node)}"
            case NodeSeen() | NodeGone():
                return f"joulie.obs.{self._token}.node.{escape(event.node)}"
            case HardwareDiscovered():
                return f"joulie.obs.{self._token}.hardware.{escape(event.node)}"
            case PodPending() | PodBound() | PodFinished() | PodGone():
                return f"joulie.obs.{self._token}.pod.{escape(event.key)}"
            case PlanMade():
                return self.plan_meta
            case ProfileAssigned() | DrainingBegun() | CapsSet():
                return f"joulie.plan.{self._token}.{escape(event.node)}"
            case SettingsDeclared() | FilterDecided() | PrioritizeDecided():
                return self.decisions(replica)
            case _:
                assert_never(event)


def stream_of(event: AnyEvent) -> Stream:
    match event:
        case TelemetrySampled():
            return Stream.TEL
        case NodeSeen() | NodeGone() | HardwareDiscovered():
            return Stream.OBS
        case PodPending() | PodBound() | PodFinished() | PodGone():
            return Stream.OBS
        case PlanMade() | ProfileAssigned() | DrainingBegun() | CapsSet():
            return Stream.PLAN
        case SettingsDeclared() | FilterDecided() | PrioritizeDecided():
            return Stream.DEC
        case _:
            assert_never(event)
