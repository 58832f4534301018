"""Decisions in a good envelope that no producer of ours makes."""

from typing import Any

import msgspec

from joulie_bus.events import AnyEvent, FilterDecided, PreemptDecided, PrioritizeDecided
from joulie_bus.events.codec import Envelope, seal
from joulie_bus.streams.records import Message
from joulie_bus.testing import CLUSTER, noon, one_of_each

_FAR = (2**31 - 1).to_bytes(4, "little")
_BOTH = b"\0\0\0\0\xff\xff\xff\xff"  # row 0 and an unknown node
# Their numbers do not agree with their candidates.
DISAGREEING: dict[str, tuple[type[AnyEvent], dict[str, Any]]] = {
    "ordinals end within a number": (FilterDecided, {"candidates": {"ordinals": b"\0" * 5}}),
    "a verdict too few": (FilterDecided, {"verdicts": b"\0"}),
    "a verdict too many": (FilterDecided, {"verdicts": bytes(3)}),
    "no verdicts": (PreemptDecided, {"verdicts": b""}),
    "three labels for two nodes": (FilterDecided, {"eco_labels": bytes(3)}),
    "a score too few": (PrioritizeDecided, {"scores": bytes(2)}),
    "half a score": (PrioritizeDecided, {"scores": bytes(3)}),
    "scores without candidates": (PrioritizeDecided, {"candidates": {"ordinals": b""}}),
    "an unknown node without a name": (PrioritizeDecided, {"candidates": {"ordinals": _BOTH}}),
    "a name too many": (
        FilterDecided,
        {"candidates": {"ordinals": bytes(8), "strangers": ["x"]}},
    ),
    "a negative row": (
        FilterDecided,
        {"candidates": {"ordinals": bytes(4) + b"\0\0\0\x80", "strangers": ["x"]}},
    ),
}
# They agree, and no such row, verdict or node exists.
WILD: dict[str, tuple[type[AnyEvent], dict[str, Any]]] = {
    "rows that do not exist": (FilterDecided, {"candidates": {"ordinals": _FAR * 2}}),
    "scores of rows that do not exist": (PrioritizeDecided, {"candidates": {"ordinals": _FAR * 2}}),
    "unknown verdicts": (PreemptDecided, {"verdicts": b"\xfe\xff"}),
    "twice the same node": (PrioritizeDecided, {"candidates": {"ordinals": bytes(8)}}),
    "no terms": (PrioritizeDecided, {"top": []}),
    "a short digest": (PrioritizeDecided, {"terms_digest": b"\0"}),
    "the lowest scores": (PrioritizeDecided, {"scores": b"\0\x80\0\x80"}),
}


def odd_message(cls: type[AnyEvent], changed: dict[str, Any], number: int) -> Message:
    """The example of this type with changed fields, as a replica sends it."""
    event = next(each for each in one_of_each() if isinstance(each, cls))
    data: dict[str, Any] = msgspec.to_builtins(event, builtin_types=(bytes,)) | changed
    replica = f"extender-{number % 2}"  # of one, the log keeps less in a minute
    envelope = Envelope(
        id=f"{replica}:odd:{number}",
        type=event.TYPE,
        v=event.VERSION,
        key=event.key,
        ts=noon(),
        data=msgspec.Raw(msgspec.msgpack.encode(data)),
    )
    return Message(CLUSTER.decisions(replica), envelope.id, seal(envelope))


def odd_messages(cases: dict[str, tuple[type[AnyEvent], dict[str, Any]]]) -> list[Message]:
    return [
        odd_message(cls, changed, number) for number, (cls, changed) in enumerate(cases.values(), 1)
    ]
