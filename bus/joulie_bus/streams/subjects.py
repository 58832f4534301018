"""All subjects and streams of the bus: their names. `channels` has what each one carries.

A name is one token: characters that a NATS token may not contain are escaped reversibly.
"""

import string
from enum import StrEnum
from functools import lru_cache

from joulie_bus.events import AnyEvent
from joulie_bus.events.base import META as META
from joulie_bus.events.base import PROJECTOR as PROJECTOR
from joulie_bus.events.base import Family as Family


class Stream(StrEnum):
    TEL = "JOULIE_TEL"
    OBS = "JOULIE_OBS"
    PLAN = "JOULIE_PLAN"
    CLAIM = "JOULIE_CLAIM"
    DEC = "JOULIE_DEC"
    HEADS = "JOULIE_HEADS"


# The order in which the projector merges a batch: plans, claims, observations, telemetry.
MERGE_ORDER: tuple[Stream, ...] = (Stream.PLAN, Stream.CLAIM, Stream.OBS, Stream.TEL)


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
LIVE = "joulie.view.{cluster}.*"  # live, never stored
CAPS = "joulie.caps.{cluster}.*"  # live, never stored
SPOOLS = "joulie.spool.{cluster}.*"  # live, never stored
CUTS = "joulie.cuts.{cluster}"  # requests, never stored

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
        self.spools = SPOOLS.format(cluster=self._token)
        self.cuts = CUTS.format(cluster=self._token)

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

    def spool(self, replica: str) -> str:
        return f"joulie.spool.{self._token}.{escape(replica)}"

    def claim(self, card: str) -> str:
        return f"joulie.claim.{self._token}.{escape(card)}"

    def of(self, event: AnyEvent, producer: str = "") -> str:
        """The subject of this event from this producer."""
        family, tail = place_of(event, producer)
        return f"joulie.{family}.{self._token}.{tail}"


def place_of(event: AnyEvent, producer: str) -> tuple[Family, str]:
    """The family of its subject, and what follows the cluster."""
    family = event.FAMILY
    match family:  # the most frequent one comes first
        case Family.TEL:
            of_the_node = (agent_name(event.key), cap_writer_name(event.key))
            return (Family.AGENT if producer in of_the_node else family), escape(event.key)
        case Family.OBS:
            return family, f"{event.TOKEN}.{escape(event.key)}"
        case Family.DEC:
            return family, event.TOKEN or escape(producer)
        case _:
            return family, event.TOKEN or escape(event.key)


def kind_of(subject: str) -> str:
    """The part of a subject that identifies its stream."""
    return subject.split(".", 2)[1]


def stream_of(event: AnyEvent) -> Stream:
    return _STREAMS[event.FAMILY]


_STREAMS = {family: stream for stream, families in FAMILIES.items() for family in families}
