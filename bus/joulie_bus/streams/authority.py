"""Which sender may write which event.

The broker guarantees one thing about a message: its subject. A role may publish to families of
subjects (`joulie_bus.streams.roles`), and an identity for one node or one replica to one subject of
a family. Everything else that a message claims (its stream, its producer, its key) counts only if
it agrees with the subject. Readers call this module for each message before they use it.

Within a family, programs trust each other: the operator and the simulator both report for many
nodes, and every replica of the extender may claim every card.
"""

from functools import lru_cache

from joulie_bus.errors import REFUSED, Undecodable
from joulie_bus.events import EVENT_TYPES, AnyEvent, CapsSettable
from joulie_bus.events.codec import Envelope, Origin, origin_of
from joulie_bus.streams.records import Record
from joulie_bus.streams.subjects import (
    AGENT_PREFIX,
    FAMILIES,
    PROJECTOR,
    REMEMBERED_NAMES,
    Family,
    Stream,
    cap_writer_name,
    escape,
    place_of,
    unescape,
)

# The events that a family of subjects may carry. An agent reports what others may report, too.
EVENTS: dict[Family, frozenset[type[AnyEvent]]] = {
    family: frozenset(
        cls
        for cls in EVENT_TYPES
        if cls.FAMILY is family or (family is Family.AGENT and cls.FAMILY is Family.TEL)
    )
    for family in Family
}


def family_of(stream: Stream, producer: str) -> Family:
    """The family that a producer of this stream writes to. Only agents have names of that form."""
    first, *others = FAMILIES[stream]
    is_agent = Family.AGENT in others and producer.startswith(AGENT_PREFIX)
    return Family.AGENT if is_agent else first


def require_authority(record: Record, envelope: Envelope, event: AnyEvent, where: str) -> Origin:
    """The origin of the event. Raises Undecodable if its sender may not write the event."""
    # The id of an outcome names its pod; the projector's subject identifies the sender.
    is_projector = event.TOKEN == PROJECTOR
    origin = Origin(PROJECTOR, "", 0) if is_projector else origin_of(envelope.id, where)
    if why := refusal(record, envelope, origin.producer, event):
        told = f"(subject {record.subject!r}, producer {origin.producer!r})"
        raise Undecodable(where, f"{REFUSED}{why} {told}")
    return origin


def is_refusal(why: str) -> bool:
    """Whether a reason in quarantine says that the sender may not write the message."""
    return REFUSED in why


def refusal(record: Record, envelope: Envelope, producer: str, event: AnyEvent) -> str:
    """The reason why the sender may not write this event; "" if it may."""
    if envelope.key != event.key:
        return f"the key of its envelope is {envelope.key!r}, and it is about {event.key!r}"
    family = family_of(record.stream, producer)
    if type(event) not in EVENTS[family]:
        return f"{event.TYPE} does not belong into {record.stream}"
    if isinstance(event, CapsSettable) and producer != cap_writer_name(event.node):
        return "which limits of a node can be set is reported by the writer on this node alone"
    return _misplaced(record.subject, producer, event) if record.subject else ""


def _misplaced(subject: str, producer: str, event: AnyEvent) -> str:
    """The subject must be exactly the subject of this event from this producer."""
    root, family, cluster, tail = (*subject.split(".", 3), "", "", "")[:4]
    try:
        is_its_own = (root, family, tail) == ("joulie", *place_of(event, producer)) and cluster
    except ValueError as error:
        return str(error)
    if family == Family.DEC and (tail == PROJECTOR) is not (event.TOKEN == PROJECTOR):
        return "the projector's subject is for outcomes, and outcomes for the projector's subject"
    if is_its_own:
        return ""
    if family == Family.AGENT or family_of(Stream.TEL, producer) is Family.AGENT:
        return "an agent reports only its own node, on its own subject and under its own name"
    return f"{event.TYPE} of {event.key!r} has another subject"


@lru_cache(maxsize=REMEMBERED_NAMES)
def measured_on(subject: str) -> tuple[str, str]:
    """The node that telemetry on this subject is about, and the prefix of the ids of its agent.

    On a subject that is not an agent's, any program that measures nodes may write, and the prefix
    is "". On a subject that carries no telemetry, the node is "" too.
    """
    root, family, cluster, token = (*subject.split(".", 3), "", "", "")[:4]
    is_telemetry = root == "joulie" and family in FAMILIES[Stream.TEL] and cluster
    if not (is_telemetry and _is_canonical(token)):
        return "", ""
    return unescape(token), f"{AGENT_PREFIX}{token}:" if family == Family.AGENT else ""


def _is_canonical(token: str) -> bool:
    """Each name has one token; `n=31` would be a second token of n1."""
    try:
        return escape(unescape(token)) == token
    except ValueError:  # also for bytes that are not UTF-8, and for an empty name
        return False
