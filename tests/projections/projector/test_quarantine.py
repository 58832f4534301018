"""Messages that could not be folded are visible, and can be retried at a new position."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager

import msgspec
import pytest

from bus_kit import CLUSTER, NOON, eco, one_of_each, power, producer
from joulie_bus.errors import NotRetryable, Undecodable
from joulie_bus.events import AnyEvent, codec
from joulie_bus.jetstream.log import JetStreamLog
from joulie_bus.streams.records import Record
from joulie_bus.streams.subjects import Stream, agent_name
from joulie_projections.fold import quarantine
from joulie_projections.fold.commit import Poison
from joulie_projections.fold.sequence import fold
from joulie_projections.history.history import History
from joulie_projections.projector.rebuild import rebuild
from joulie_projections.state.state import ClusterState
from joulie_projections.state.state_changes import Draft
from joulie_projections.store.database import Place
from joulie_projections.view.view import View

Projecting = Callable[..., AbstractAsyncContextManager[asyncio.Task[None]]]
Viewing = Callable[[], AbstractAsyncContextManager[View]]
Publish = Callable[..., Awaitable[None]]


def poison(body: bytes) -> Poison:
    return Poison(7, str(Stream.TEL), 3, "why", body)


SAMPLE = producer().stamp(power("n", 1)).data
UNKNOWN = SAMPLE.replace(b"telemetry.sampled", b"telemetry.shuffle")


def test_a_body_is_shown_as_far_as_it_can_be_decoded() -> None:
    known, unknown = quarantine.to_readable(SAMPLE), quarantine.to_readable(UNKNOWN)

    assert (known["type"], known["data"]) == ("telemetry.sampled", {"node": "n", "power_mw": 1000})
    assert (unknown["type"], unknown["data"]) == ("telemetry.shuffle", known["data"])
    assert quarantine.to_readable(msgspec.msgpack.encode({"a": 1})) == {"a": 1}
    assert quarantine.to_readable(msgspec.msgpack.encode({1: 2})) == {"1": 2}
    assert quarantine.to_readable(b"\xc1\xc1") == {"bytes": "c1c1"}


def test_a_message_that_still_cannot_be_read_is_not_retried() -> None:
    with pytest.raises(NotRetryable, match="position 7 still cannot be read: "):
        quarantine.retry_message(poison(UNKNOWN), CLUSTER)


def test_a_decision_among_facts_is_not_retried() -> None:
    [*_, outcome] = one_of_each()

    with pytest.raises(NotRetryable, match="is a decision"):
        quarantine.retry_message(poison(producer().stamp(outcome).data), CLUSTER)


def test_a_refused_message_is_not_retried() -> None:
    """A retry comes from an administrator, and the broker refuses an administrator nothing."""
    agents = producer(agent_name("evil")).stamp(power("n", 1))
    record = Record(Stream.TEL, 3, NOON, agents.data, "joulie.agent.test.evil")
    [refused] = fold(Draft(ClusterState()), [record], 6).poison

    with pytest.raises(NotRetryable, match="position 7 was refused, because its sender may not"):
        quarantine.retry_message(refused, CLUSTER)


def test_a_message_is_not_retried_into_another_stream() -> None:
    plan = producer().stamp(eco("n")).data

    with pytest.raises(NotRetryable, match="stored in JOULIE_TEL, and plan"):
        quarantine.retry_message(poison(plan), CLUSTER)


def test_a_retry_has_the_same_body() -> None:
    message = quarantine.retry_message(poison(SAMPLE), CLUSTER)

    assert message == (CLUSTER.of(power("n", 1)), "retry:7", SAMPLE)


@pytest.mark.anyio
async def test_a_retry_gets_its_own_position_and_every_refold_follows(
    projecting: Projecting,
    viewing: Viewing,
    bus: JetStreamLog,
    place: Place,
    writer: object,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    sender, read = producer(), codec.read

    def not_yet(envelope: codec.Envelope, where: str) -> AnyEvent:
        """Simulates code that cannot decode readings of node b."""
        if envelope.key == "b":
            raise Undecodable(where, "an unknown node")
        return read(envelope, where)

    monkeypatch.setattr(codec, "read", not_yet)
    monkeypatch.setattr(codec, "open_sample", lambda _: None)  # nor by the fast path
    async with projecting(), viewing() as view:
        await bus.publish([sender.stamp(power("a", 1)), sender.stamp(power("b", 2))])
        await view.wait_for(2, 60)
        assert list(view.cluster_state.nodes) == ["a"]
    monkeypatch.setattr(codec, "read", read)

    async with projecting(), viewing() as view:
        [found] = quarantined(place)
        await bus.publish([quarantine.retry_message(found, CLUSTER)])
        await view.wait_for(3, 60)
        assert sorted(view.cluster_state.nodes) == ["a", "b"]

    done = await rebuild(bus, writer, "rebuild")  # type: ignore[arg-type]
    assert (done.events, done.differs_at) == (3, 0)


def quarantined(place: Place) -> list[Poison]:
    with History.of(place) as history:
        return history.quarantined()
