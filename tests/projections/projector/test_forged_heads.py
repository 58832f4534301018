"""Heads in the stream that no key of the log signed."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path

import pytest

from bus_kit import CLUSTER, noon, one_of_each
from joulie_bus.events import FilterDecided
from joulie_bus.jetstream.log import JetStreamLog
from joulie_bus.log.whole_stream import everything
from joulie_bus.streams.records import Message
from joulie_bus.streams.subjects import Stream
from joulie_projections.decision_log import anchored, writer
from joulie_projections.decision_log.heads import Head, Signer, encode
from joulie_projections.history.history import History
from joulie_projections.store.database import Place
from signed_heads import head_at, with_other_signature

pytestmark = pytest.mark.anyio
Projecting = Callable[..., AbstractAsyncContextManager[asyncio.Task[None]]]
[ANSWER] = [event for event in one_of_each() if isinstance(event, FilterDecided)]


@pytest.fixture(autouse=True)
def quickly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writer, "HEAD_EVERY_S", 0.2)


async def anchor(bus: JetStreamLog, *heads: Head) -> None:
    messages = [(head.id.hex(), encode(head)) for head in heads]
    await bus.publish([Message(CLUSTER.heads, *each) for each in messages])


async def stored(bus: JetStreamLog, count: int) -> None:
    async with asyncio.timeout(60):
        while len(await everything(bus, Stream.HEADS)) < count:
            await asyncio.sleep(0.05)


async def test_a_log_continues_beside_a_head_far_beyond_its_end(
    projecting: Projecting,
    publish: Callable[..., Awaitable[None]],
    bus: JetStreamLog,
    place: Place,
    tmp_path: Path,
) -> None:
    thief = Signer.of(tmp_path / "thief.key")
    await anchor(bus, head_at(thief, 10**9, bytes(32), noon()))

    for entries in (1, 2):  # and after a restart
        async with projecting():
            await publish(ANSWER)
            await stored(bus, 1 + entries)

    with History.of(place) as history:
        assert [head.pos for head in history.heads()] == [1, 2]


async def test_heads_that_no_key_signed_do_not_count(bus: JetStreamLog, tmp_path: Path) -> None:
    signer, thief = (Signer.of(tmp_path / f"{name}.key") for name in ("head", "thief"))
    own = head_at(signer, 7, b"h" * 32, noon())
    copied = with_other_signature(head_at(signer, 8, b"h" * 32, noon()))
    await anchor(bus, own, copied, head_at(thief, 9, bytes(32), noon()))

    assert (await anchored.newest(bus, signer.public)).newest == own
