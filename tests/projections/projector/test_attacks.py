"""Messages that ended earlier versions of the projector or were retried forever."""

import asyncio
import json
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any

import msgspec
import pytest
from sqlalchemy import Engine

from bus_kit import CLUSTER, ask, bound, decided, node_seen, noon, power, producer, until
from joulie_audit.access.kept_heads import ids_of
from joulie_bus.events import AnyEvent, FilterDecided
from joulie_bus.events.codec import Envelope, seal
from joulie_bus.jetstream.log import JetStreamLog
from joulie_bus.log.whole_stream import everything
from joulie_bus.streams.records import Message
from joulie_bus.streams.subjects import Stream
from joulie_projections.chain.entry import MAX_KEPT_BYTES
from joulie_projections.chain.unreadable import PER_SUBJECT
from joulie_projections.fold.quarantine_quota import (
    BODIES_PER_COMMIT,
    BODIES_PER_SUBJECT,
    is_single,
    positions_of,
)
from joulie_projections.history.history import History
from joulie_projections.projector.rebuild import rebuild
from joulie_projections.store.database import Place
from joulie_projections.view.view import View
from odd_decisions import DISAGREEING, odd_messages

pytestmark = pytest.mark.anyio

Projecting = Callable[..., AbstractAsyncContextManager[asyncio.Task[None]]]
Viewing = Callable[[], AbstractAsyncContextManager[View]]
LONG = "x" * 8000


def wire(event: AnyEvent, number: int, **changed: Any) -> bytes:
    """The message of a producer that does not check bounds."""
    data: dict[str, Any] = msgspec.to_builtins(event, builtin_types=(bytes,))
    raw = msgspec.msgpack.encode(data | changed)
    return seal(
        Envelope(
            id=f"attacker:b:{number}",
            type=event.TYPE,
            v=event.VERSION,
            key="k",
            ts=noon(),
            data=msgspec.Raw(raw),
        )
    )


def pod_of(**asked: int) -> dict[str, Any]:
    """The pod of a binding, with the given requests."""
    pod: dict[str, Any] = msgspec.to_builtins(ask("u")) | asked
    return pod


POD, NODE = bound("u", "n1"), node_seen("n1")
ATTACKS = {
    "1e14 cores": [wire(POD, 1, pod=pod_of(cpu_milli=10**17))],
    "20T cores": [wire(POD, 1, pod=pod_of(cpu_milli=2 * 10**16))],
    "three pods of 9e15 cards": [
        wire(POD, n, pod=pod_of(gpu_milli=9 * 10**18) | {"uid": f"u{n}"}) for n in range(1, 4)
    ],
    "a NUL in a node's name": [wire(NODE, 1, node="n\0")],
    "a name beyond an index entry": [wire(NODE, 1, node=LONG)],
    "a node bound to a NUL": [wire(POD, 1, node="\0")],
    "a NUL in a word": [wire(power("n1", 9), 1, source="a\0b")],
    "more cards than a number holds": [wire(NODE, 1, gpus=2**64 - 1)],
}


@pytest.mark.parametrize("messages", ATTACKS.values(), ids=ATTACKS)
async def test_the_projector_quarantines_the_message_and_continues(
    projecting: Projecting,
    viewing: Viewing,
    bus: JetStreamLog,
    place: Place,
    writer: Engine,
    messages: Sequence[bytes],
) -> None:
    sender, count = producer(), len(messages)
    subject = CLUSTER.of(NODE)
    async with projecting() as running, viewing() as view:
        await bus.publish([Message(subject, f"m{n}", body) for n, body in enumerate(messages)])
        await bus.publish([sender.stamp(node_seen("after"))])
        await view.wait_for(count + 1, 60)
        assert not running.done()
        assert list(view.cluster_state.nodes) == ["after"]

    with History.of(place) as history:
        assert [poison.body for poison in history.quarantined()] == list(messages)
        held = history.checkpoint()
    done = await rebuild(bus, writer, "rebuild")
    assert (done.events, done.set_aside, done.differs_at) == (count + 1, 0, 0)
    with History.of(place) as history:
        assert held is not None
        assert history.digests() == held.digests


async def test_decisions_that_do_not_agree_with_themselves_are_unreadable_entries(
    projecting: Projecting, bus: JetStreamLog, place: Place
) -> None:
    messages = odd_messages(DISAGREEING)

    def written() -> bool:
        with History.of(place) as history:
            return history.tip() == len(messages)

    async with projecting():
        await bus.publish(messages)
        await until(written)

    with History.of(place) as history:
        assert {entry.kind for entry in history.entries()} == {"unreadable"}
    assert await ids_of(bus) == {}  # `joulie verify` misses no entry of these ids


@pytest.mark.parametrize("name", [LONG, "\0", "a\0b", "x" * 254], ids=["8 kB", "NUL", "b", "254"])
async def test_an_answer_about_an_invalid_pod_is_an_unreadable_entry(
    projecting: Projecting, bus: JetStreamLog, place: Place, name: str
) -> None:
    fine = producer("extender")
    pod = msgspec.to_builtins(ask("u")) | {"name": name}
    odd = wire(decided("u"), 1, pod=pod)
    subject = CLUSTER.decisions("extender")
    before, after = fine.stamp(decided("before")), fine.stamp(decided("after"))

    def written() -> bool:
        with History.of(place) as history:
            return history.tip() == 3

    async with projecting() as running:
        await bus.publish([before, Message(subject, "odd", odd), after])
        await until(written)
        assert not running.done()

    with History.of(place) as history:
        kinds = [(entry.kind, entry.message == odd) for entry in history.entries()]
    is_kept = len(odd) <= MAX_KEPT_BYTES
    answer = (FilterDecided.TYPE, False)
    assert kinds == [answer, ("unreadable", is_kept), answer]


async def test_a_flood_of_garbage_does_not_fill_the_decision_log(
    projecting: Projecting, bus: JetStreamLog, place: Place
) -> None:
    subject, fine, count = CLUSTER.decisions("extender"), producer("extender"), 2000
    flood = [Message(subject, f"m{n}", b"%d garbage " % n * 300) for n in range(count)]

    def is_read(to: int) -> bool:
        with History.of(place) as history:
            return any(entry.event_id.endswith(f":{to}") for entry in history.entries())

    for number in (1, 2):  # and after a restart
        async with projecting() as running:
            await bus.publish(flood[(number - 1) * 1000 : number * 1000])
            await bus.publish([fine.stamp(decided(f"u{number}"))])
            await until(lambda number=number: is_read(number))  # type: ignore[misc]
            assert not running.done()

    with History.of(place) as history:
        made = [entry for entry in history.entries() if entry.kind == "unreadable"]
    minutes = {record.at // 60_000_000_000 for record in await everything(bus, Stream.DEC)}
    assert len(made) <= len(minutes) * (PER_SUBJECT + 1)
    assert sum(len(entry.body) for entry in made) <= len(minutes) * PER_SUBJECT * 4200


async def test_a_flood_of_garbage_does_not_fill_the_database(
    projecting: Projecting, viewing: Viewing, bus: JetStreamLog, place: Place, writer: Engine
) -> None:
    sender, count = producer(), 3000
    flood = [Message(CLUSTER.of(NODE), f"m{n}", b"garbage %d " % n * 50) for n in range(count)]
    await bus.publish(flood)
    await bus.publish([sender.stamp(node_seen("after"))])
    async with projecting(batch=5000), viewing() as view:
        await view.wait_for(count + 1, 60)
        assert list(view.cluster_state.nodes) == ["after"]

    with History.of(place) as history:
        kept, aside, commits = history.quarantined(), history.set_aside(), list(history.manifests())
        assert history.counts().quarantined == count
    assert aside == frozenset(range(1, count + 1))
    assert len(kept) <= len(commits) * (BODIES_PER_SUBJECT + 1) < BODIES_PER_COMMIT
    short = [poison for poison in kept if not is_single(poison)]
    assert {poison.body for poison in short} == {b""}
    assert sum(len(positions_of(poison)) for poison in kept) == count
    done = await rebuild(bus, writer, "rebuild")
    assert (done.events, done.set_aside, done.differs_at) == (count + 1, 0, 0)
    assert json.dumps([poison.why for poison in kept])
