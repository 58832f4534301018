"""The entry that records that the database lost its newest commits."""

import msgspec

from joulie_bus.events import StateSetBack, codec
from joulie_bus.events.codec import Envelope
from joulie_bus.streams.records import Message
from joulie_bus.streams.subjects import Subjects
from joulie_projections.chain.outcomes import REPLICA


def message_of(event: StateSetBack, at: int, subjects: Subjects) -> Message:
    event_id = f"set-back:{event.incarnation}:1"
    envelope = Envelope(
        id=event_id,
        type=event.TYPE,
        v=event.VERSION,
        key=event.key,
        ts=at,
        data=msgspec.Raw(codec.encode(event)),
    )
    return Message(subjects.of(event, REPLICA), event_id, codec.seal(envelope))
