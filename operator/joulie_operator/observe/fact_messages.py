"""Facts become messages; one that no reader would take is left out, told of and counted."""

from collections.abc import Sequence

from joulie_bus.errors import OutOfBounds
from joulie_bus.events import Fact
from joulie_bus.runtime import metrics
from joulie_bus.runtime.logging import get_logger
from joulie_bus.streams.producer import Producer
from joulie_bus.streams.records import Message

log = get_logger("operator")


def stamped(producer: Producer, facts: Sequence[Fact]) -> list[Message]:
    """The others go on: what one object says must not keep all of them out of the log."""
    messages = []
    for fact in facts:
        try:
            messages.append(producer.stamp(fact))
        except OutOfBounds as error:
            left_out(fact.TYPE, ascii(fact.key)[:300], error.why)
    return messages


def left_out(what: str, which: str, why: str) -> None:
    metrics.LEFT_OUT.labels(what=what).inc()
    log.warning("left_out", what=what, which=which, why=why, then="the others are published")
