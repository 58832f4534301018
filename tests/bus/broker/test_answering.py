"""Replies of a service whose requests wait while the broker goes away."""

import asyncio
from pathlib import Path

import pytest

from bus_kit import bare_broker, connected, until
from joulie_bus.broker.answering import AT_ONCE, answering

pytestmark = pytest.mark.anyio
ASKS = "joulie.test.asks"


async def test_nobody_gets_a_reply_to_what_was_asked_before_the_broker_was_lost(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    begun, free = list[bytes](), asyncio.Event()

    async def answer(data: bytes) -> bytes:
        begun.append(data)
        await free.wait()
        return b"to " + data

    async with (
        bare_broker(tmp_path) as broker,
        connected(broker) as service,
        connected(broker) as asker,
        answering(service, ASKS, answer),
    ):
        for number in range(3 * AT_ONCE):
            await asker.send(ASKS, b"old %d" % number, asker.new_inbox())
        await asker.flush()
        await until(lambda: len(begun) == AT_ONCE)
        broker.kill()
        await broker.wait()
        await broker.start()
        await until(lambda: service.is_connected and service.lives == 2)
        free.set()
        await until(lambda: asker.is_connected)
        reply = await asker.request(ASKS, b"new")

    assert reply.data == b"to new"
    assert begun[AT_ONCE:] == [b"new"]
    assert "never retrieved" not in "".join(capfd.readouterr())
