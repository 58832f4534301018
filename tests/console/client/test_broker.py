"""Events straight from the broker: what is missing is reported."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path

import pytest

from bus_kit import CLUSTER, eco, node_seen
from console_kit import ConsoleHarness
from joulie.client import BrokerEvent, JoulieError, answers, broker, events, events_of_broker
from joulie_bus.broker.embedded import Embedded
from joulie_bus.events import SettingsDeclared
from joulie_bus.streams.roles import Role
from tcp_relay import relayed

pytestmark = pytest.mark.anyio
NewHarness = Callable[..., AbstractAsyncContextManager[ConsoleHarness]]
NAME = CLUSTER.cluster


def declared(name: str) -> SettingsDeclared:
    return SettingsDeclared(settings=name, code="1", values={})


async def read(found: AsyncIterator[BrokerEvent], count: int) -> list[BrokerEvent]:
    async with asyncio.timeout(60):
        return [await anext(found) for _ in range(count)]


@pytest.fixture
def password(spare_broker: Embedded, tmp_path: Path) -> Path:
    file = tmp_path / "viewer"
    file.write_text(spare_broker.address_of(Role.VIEWER).password)
    return file


async def test_decisions_and_transitions_arrive_as_they_are_published(
    spare_broker: Embedded, new_harness: NewHarness, password: Path
) -> None:
    url = spare_broker.address_of(Role.VIEWER).url
    async with (
        new_harness() as harness,
        events_of_broker(url, password_file=password, cluster=NAME) as published,
    ):
        await harness.publish(node_seen("n1"), eco("n1"))
        await harness.publish_decisions(declared("s1"))
        transition, decision = await read(published, 2)

    assert isinstance(transition, events.ProfileAssigned)
    assert decision == declared("s1")


async def test_a_program_that_reads_too_slowly_learns_how_many_events_it_lacks(
    spare_broker: Embedded,
    new_harness: NewHarness,
    password: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(broker, "MOST_WAITING", 3)
    url = spare_broker.address_of(Role.VIEWER).url
    async with (
        new_harness() as harness,
        events_of_broker(url, password_file=password, cluster=NAME) as published,
    ):
        await harness.publish_decisions(*(declared(f"s{n}") for n in range(9)))
        found = await read(published, 4)
        await harness.publish_decisions(declared("later"))
        found += await read(published, 1)

    lacking = answers.Notice(reason="6 events were dropped: read faster")
    assert found == [declared("s0"), declared("s1"), declared("s2"), lacking, declared("later")]


async def test_a_lost_connection_is_reported_before_the_next_event(
    spare_broker: Embedded, new_harness: NewHarness, password: Path
) -> None:
    async with (
        new_harness() as harness,
        relayed(spare_broker.address_of(Role.VIEWER).url) as relay,
        events_of_broker(relay.url, password_file=password, cluster=NAME) as published,
    ):
        await harness.publish_decisions(declared("first"))
        found = await read(published, 1)
        relay.cut()
        while not published.waiting:  # what is published before the reconnection is lost
            await harness.publish_decisions(declared("again"))
            await asyncio.sleep(0.05)
        found += await read(published, 2)

    assert found == [
        declared("first"),
        answers.Notice(reason="the connection to the broker was lost"),
        declared("again"),
    ]


async def test_a_wrong_password_is_reported_without_it(
    spare_broker: Embedded, tmp_path: Path
) -> None:
    (tmp_path / "wrong").write_text("not the password")
    url = spare_broker.address_of(Role.VIEWER).url

    with pytest.raises(JoulieError, match="Authorization") as refused:
        async with events_of_broker(url, password_file=tmp_path / "wrong"):
            pass

    assert "not the password" not in str(refused.value)
