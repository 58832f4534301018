"""Which sender may write which event: the rules by themselves, without a broker."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from bus_kit import (
    CLUSTER,
    NOON,
    eco,
    node_seen,
    one_of_each,
    power,
    producer,
    sender_of,
)
from joulie_bus.errors import Undecodable
from joulie_bus.events import EVENT_TYPES, AnyEvent, CapsSettable, codec
from joulie_bus.events.bounds import is_name
from joulie_bus.streams.authority import EVENTS, is_refusal, measured_on, require_authority
from joulie_bus.streams.records import Message, Record
from joulie_bus.streams.subjects import (
    FAMILIES,
    Family,
    Stream,
    agent_name,
    cap_writer_name,
    stream_of,
)

EACH = [pytest.param(event, id=event.TYPE) for event in one_of_each(node="gpu-07.lab")]


def require(message: Message, event: AnyEvent, stream: Stream | None = None) -> None:
    envelope = codec.open_envelope(message.data, "it")
    record = Record(stream or stream_of(event), 1, NOON, message.data, message.subject)
    require_authority(record, envelope, event, "it")


def refused(message: Message, event: AnyEvent, stream: Stream | None = None) -> str:
    with pytest.raises(Undecodable) as caught:
        require(message, event, stream)
    assert is_refusal(str(caught.value))
    return caught.value.why


def test_every_event_belongs_to_the_families_of_one_stream() -> None:
    streams = {
        kind: {stream for stream in Stream for each in FAMILIES[stream] if kind in EVENTS[each]}
        for kind in EVENT_TYPES
    }

    assert set(EVENTS) == set(Family)
    assert all(len(found) == 1 for found in streams.values()), streams
    assert {type(event): {stream_of(event)} for event in one_of_each()} == streams


@pytest.mark.parametrize("event", EACH)
def test_what_a_producer_stamps_it_may_write(event: AnyEvent) -> None:
    require(producer(sender_of(event)).stamp(event), event)


@pytest.mark.parametrize("event", EACH)
def test_an_event_of_unknown_subject_may_be_written_in_its_stream_alone(event: AnyEvent) -> None:
    """As in archives that were written before they kept subjects."""
    message = producer(sender_of(event)).stamp(event)._replace(subject="")

    require(message, event)
    for stream in set(Stream) - {stream_of(event)}:
        assert "does not belong into" in refused(message, event, stream)


@pytest.mark.parametrize("event", EACH)
def test_an_event_has_no_subject_of_another_one(event: AnyEvent) -> None:
    sender = sender_of(event)
    own, stamped = CLUSTER.of(event, sender), producer(sender).stamp(event)
    subjects = {CLUSTER.of(other, sender) for other in one_of_each(node="gpu-07.lab")}
    assert own in subjects

    require(stamped._replace(subject=own), event)
    for subject in subjects - {own}:
        assert refused(stamped._replace(subject=subject), event), subject


@pytest.mark.parametrize("event", EACH)
def test_the_key_of_the_envelope_is_the_events_own(event: AnyEvent) -> None:
    message = producer().stamp(event)
    envelope = codec.open_envelope(message.data, "it")
    forged = codec.seal(replace(envelope, key="another"))

    assert "the key of its envelope is 'another'" in refused(message._replace(data=forged), event)


@pytest.mark.parametrize(
    "subject",
    [
        "joulie.tel.test",
        "joulie.tel..n1",
        "other.tel.test.n1",
        "joulie.tel.test.n1.more",
        "joulie.tel.test.=6E1",
        "joulie.tel.test.\\xff",
        "...",
    ],
)
def test_a_subject_that_is_none_of_ours_carries_nothing(subject: str) -> None:
    event = power("n1", 1)
    message = producer().stamp(event)._replace(subject=subject)

    assert repr(subject) in refused(message, event)
    assert measured_on(subject) == ("", "")


def test_an_empty_name_is_refused_and_breaks_nothing() -> None:
    event = power("", 1)
    message = producer().stamp(power("n1", 1))
    envelope = codec.open_envelope(message.data, "it")
    data = codec.seal(replace(envelope, key=""))

    assert "empty name" in refused(message._replace(data=data), event)


@given(node=st.text(min_size=1, max_size=20).filter(is_name))
def test_no_two_nodes_have_agents_of_one_name_or_one_subject(node: str) -> None:
    event, name = power(node, 1), agent_name(node)
    message = producer(name).stamp(event)

    require(message, event)
    assert measured_on(message.subject) == (node, f"{name}:")
    assert ":" not in name


def test_an_agent_writes_no_other_facts() -> None:
    for event in (node_seen("n1"), eco("n1")):
        message = producer(agent_name("n1")).stamp(event)
        assert "does not belong into" in refused(message, event, Stream.TEL)


@pytest.mark.parametrize("name", ["tester", agent_name("n1"), cap_writer_name("n2")])
@pytest.mark.parametrize("subject", ["", "joulie.tel.test.n1", "joulie.agent.test.n1"])
def test_only_the_writer_of_a_node_reports_which_limits_can_be_set(name: str, subject: str) -> None:
    event = CapsSettable(node="n1", cpu=True)
    message = producer(name).stamp(event)._replace(subject=subject)

    assert refused(message, event, Stream.TEL)


def test_a_writer_reports_on_the_subject_of_its_node_alone() -> None:
    event = CapsSettable(node="n1", cpu=True)
    message = producer(cap_writer_name("n1")).stamp(event)

    require(message, event)
    for subject in ("joulie.tel.test.n1", "joulie.agent.test.n2"):
        assert "its own node" in refused(message._replace(subject=subject), event)
