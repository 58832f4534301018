"""Turns facts into messages. Facts beyond the bounds are left out, logged and counted."""

from collections.abc import Sequence

from joulie_bus.errors import OutOfBounds
from joulie_bus.events import Fact
from joulie_bus.log.producer import Producer
from joulie_bus.runtime import metrics
from joulie_bus.runtime.logging import get_logger
from joulie_bus.streams.records import Message

log = get_logger("operator")


def to_messages(producer: Producer, facts: Sequence[Fact]) -> list[Message]:
    """One invalid fact does not keep the others from being published."""
    messages = []
    for fact in facts:
        try:
            messages.append(producer.stamp(fact))
        except OutOfBounds as error:
            report_left_out(fact.TYPE, ascii(fact.key)[:300], error.why)
    return messages


def report_left_out(what: str, which: str, why: str) -> None:
    metrics.LEFT_OUT.labels(what=what).inc()
    log.warning("left_out", what=what, which=which, why=why, then="the others are published")
