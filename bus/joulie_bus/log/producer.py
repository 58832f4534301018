"""Adds the envelope to events: producer, boot and sequence number."""

import secrets
from collections.abc import Callable

import msgspec

from joulie_bus.errors import OutOfBounds
from joulie_bus.events import AnyEvent, codec
from joulie_bus.events.bounds import BOOT, is_name
from joulie_bus.events.codec import Envelope
from joulie_bus.streams.records import LONGEST_SUBJECT, Message
from joulie_bus.streams.subjects import Subjects

Clock = Callable[[], int]


class Producer:
    """One counter per producer and boot, without gaps, so that readers detect lost events.

    A producer publishes on one stream. One stream may be read ahead of another: if a producer used
    several, events read later would have lower numbers and count as repeats.
    """

    def __init__(self, name: str, subjects: Subjects, clock: Clock, boot: str = "") -> None:
        if not is_name(name) or len(boot) > BOOT:
            raise OutOfBounds(f"The producer {name[:80]!r}", "its name or boot is no name")
        self.name = name
        self.boot = boot or secrets.token_hex(4)
        self._subjects = subjects
        self._clock = clock
        self._seq = 0

    def stamp(
        self, event: AnyEvent, *, cause: str = "", corr: str = "", prev: bytes = b""
    ) -> Message:
        data = codec.encode(event)
        try:
            subject = self._subjects.of(event, self.name)
        except ValueError as error:
            raise OutOfBounds(event.TYPE, str(error)) from error
        if len(subject) > LONGEST_SUBJECT:
            raise OutOfBounds(event.TYPE, f"its subject has {len(subject)} characters")
        envelope = Envelope(
            prev=prev,
            id=f"{self.name}:{self.boot}:{self._seq + 1}",
            type=event.TYPE,
            v=event.VERSION,
            key=event.key,
            ts=self._clock(),
            cause=cause,
            corr=corr,
            data=msgspec.Raw(data),
        )
        codec.require_fitting(envelope)
        self._seq += 1  # last, so that a refused event takes no number
        return Message(subject, envelope.id, codec.seal(envelope))
