"""The facts of a batch that the projector folded, found by the projector's own rules."""

from collections.abc import Container, Iterator, Sequence

from joulie_bus.errors import Undecodable
from joulie_bus.events import Fact, NodeGone, codec
from joulie_bus.events.codec import Origin
from joulie_bus.streams.authority import measured_on, require_authority
from joulie_bus.streams.records import Record
from joulie_bus.streams.subjects import Stream
from joulie_projections.fold.producers import (
    TelemetryCounter,
    by_producer_row,
    drop_agent,
    is_new,
    is_superseded,
)
from joulie_projections.state.state_changes import Draft

HERE = "it"


def accepted(
    draft: Draft, records: Sequence[Record], position: int, set_aside: Container[int]
) -> Iterator[tuple[Fact, int]]:
    """Each fact with the time at which the broker stored it, without duplicates and quarantined
    messages. `position` is that before the first record; `draft` counts the producers."""
    counter = TelemetryCounter(draft)
    for place, record in enumerate(records, position + 1):
        if place in set_aside:
            continue
        fact: Fact | None = None
        if record.stream is Stream.TEL:
            fact = _next_reading(record, counter)
        if fact is None:
            counter.flush()
            fact = accepted_other(draft, record)
        if fact is not None:
            yield fact, record.at
    counter.flush()


def _next_reading(record: Record, counter: TelemetryCounter) -> Fact | None:
    """The next reading of a producer; None for any other message, which takes the general path."""
    sample = codec.open_sample(record.data)
    if sample is None:
        return None
    node, agent = measured_on(record.subject)
    fact = sample.data
    if fact.node != node or sample.key != node or not counter.is_next(sample.id, agent):
        return None
    return fact


def read_other(record: Record) -> tuple[Fact, Origin] | None:
    """None for what is in quarantine."""
    try:
        envelope = codec.open_envelope(record.data, HERE)
        codec.origin_of(envelope.id, HERE)
        fact: Fact = codec.read(envelope, HERE)  # type: ignore[assignment]
        return fact, require_authority(record, envelope, fact, HERE)
    except Undecodable:
        return None


def accepted_other(draft: Draft, record: Record) -> Fact | None:
    """By the general rules. While readings are counted in bulk, flush their counter before."""
    read = read_other(record)
    if read is None:
        return None
    fact, origin = read[0], by_producer_row(record.stream, read[1])
    try:
        if not is_new(draft, origin) or is_superseded(draft, origin, fact):
            return None
    except Undecodable:  # of a life that was retired
        return None
    if isinstance(fact, NodeGone):
        drop_agent(draft, fact.node)
    return fact
