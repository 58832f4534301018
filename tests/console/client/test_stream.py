"""The stream of decisions, through lost connections and restarted consoles."""

import asyncio
import random
from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractAsyncContextManager, aclosing
from pathlib import Path

import pytest
from aiohttp import web

from bus_kit import ask, eco, hardware, node_seen, plan_made, power
from console_kit import ConsoleHarness, console_harness, running_console
from http_server import endless, serving
from joulie.client import (
    ConsoleClient,
    ConsoleNotReached,
    ConsoleRefused,
    StreamEvent,
    answers,
    queries,
    stream,
)
from joulie_bus.broker.embedded import Embedded
from joulie_bus.events import SettingsDeclared
from joulie_bus.runtime.ports import free_port
from tcp_relay import relayed

pytestmark = pytest.mark.anyio
NewHarness = Callable[..., AbstractAsyncContextManager[ConsoleHarness]]
FROM_THE_START = queries.Stream(topics="decisions", after="0.0")


def entries_to_read(count: int) -> list[SettingsDeclared]:
    return [SettingsDeclared(settings=f"s{n}", code="x" * 50, values={}) for n in range(count)]


async def read(events: AsyncGenerator[StreamEvent, None], count: int) -> list[StreamEvent]:
    async with asyncio.timeout(60):
        return [await anext(events) for _ in range(count)]


def numbers(found: list[StreamEvent]) -> list[int]:
    return [each.value.entry for each in found if isinstance(each.value, answers.DecisionBrief)]


async def test_events_are_of_the_classes_of_the_schema(new_harness: NewHarness) -> None:
    topics = "decisions,plans,transitions,cluster,map"
    async with new_harness() as harness, ConsoleClient(harness.url) as console:
        await harness.publish(node_seen("n1"), hardware("n1"), power("n1", 100))
        query = queries.Stream(topics=topics, after="0.0")
        async with aclosing(console.stream(query)) as events:
            await harness.publish(plan_made("p1"), eco("n1"))
            await harness.decide(ask("p1"))
            seen = dict[str, StreamEvent]()
            async with asyncio.timeout(60):
                while seen.keys() != {"decision", "plan", "transition", "cluster", "map"}:
                    event = await anext(events)
                    seen[event.kind] = event

    assert isinstance(seen["cluster"].value, answers.Cluster)
    assert isinstance(seen["map"].value, answers.MapChanges)
    assert isinstance(seen["decision"].value, answers.DecisionBrief)
    plan, transition = seen["plan"].value, seen["transition"].value
    assert isinstance(plan, answers.PlanEntry)
    assert isinstance(transition, answers.PlanEntry)
    assert isinstance(transition.transition, answers.Transition)
    assert (transition.transition.node, transition.transition.to) == ("n1", "eco")


async def test_every_decision_comes_once_although_connections_are_cut_anywhere(
    new_harness: NewHarness,
) -> None:
    dice = random.Random(9)
    limits = [dice.randrange(200, 9000) for _ in range(12)]
    async with (
        new_harness() as harness,
        relayed(harness.url, limits) as relay,
        ConsoleClient(relay.url) as console,
        aclosing(console.stream(FROM_THE_START)) as events,
    ):
        await harness.publish_decisions(*entries_to_read(60))
        first = await read(events, 60)
        await harness.publish_decisions(*entries_to_read(5))
        rest = await read(events, 5)

    assert numbers([*first, *rest]) == list(range(1, 66))
    assert relay.connections > 5


async def test_the_stream_continues_at_a_restarted_console(
    empty_streams: Embedded, tmp_path: Path
) -> None:
    at = f"127.0.0.1:{free_port()}"
    async with (
        console_harness(empty_streams, tmp_path) as harness,
        ConsoleClient(f"http://{at}") as console,
        aclosing(console.stream(FROM_THE_START)) as events,
    ):
        await harness.publish_decisions(*entries_to_read(20))
        async with running_console(empty_streams, tmp_path, CONSOLE_ADDR=at):
            first = await read(events, 20)
        await harness.publish_decisions(*entries_to_read(20))
        async with running_console(empty_streams, tmp_path, CONSOLE_ADDR=at):
            rest = await read(events, 20)

    assert numbers([*first, *rest]) == list(range(1, 41))


async def test_a_program_continues_after_the_event_that_it_kept(new_harness: NewHarness) -> None:
    async with new_harness() as harness, ConsoleClient(harness.url) as console:
        await harness.publish_decisions(*entries_to_read(9))
        async with aclosing(console.stream(FROM_THE_START)) as events:
            kept = (await read(events, 4))[-1].id
        later = queries.Stream(topics="decisions", after=kept)
        async with aclosing(console.stream(later)) as events:
            rest = await read(events, 5)

    assert numbers(rest) == [5, 6, 7, 8, 9]


async def test_events_that_are_gone_are_reported(new_harness: NewHarness) -> None:
    async with new_harness() as harness, ConsoleClient(harness.url) as console:
        query = queries.Stream(topics="decisions", after="999.999")
        async with aclosing(console.stream(query)) as events:
            [gap] = await read(events, 1)

    assert gap.kind == "gap"
    assert gap.value == answers.Notice(
        reason="999.999 does not exist yet: the id is of another log"
    )


async def test_a_stream_without_a_console_ends_after_its_patience() -> None:
    async with ConsoleClient(f"http://127.0.0.1:{free_port()}") as console:
        with pytest.raises(ConsoleNotReached, match=r"heartbeat for 1 s, at last: No console"):
            await anext(console.stream(patience_s=1))


async def test_a_stream_without_a_valid_token_ends_at_once(tmp_path: Path) -> None:
    async def answer(_: web.Request) -> web.Response:
        return web.Response(status=401)

    async with serving(answer) as url, ConsoleClient(url) as console:
        with pytest.raises(ConsoleRefused, match="status 401"):
            await anext(console.stream())


async def test_an_event_without_an_end_is_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream, "LARGEST_FRAME", 1 << 16)

    async with serving(endless) as url, ConsoleClient(url) as console:
        with pytest.raises(ConsoleNotReached, match="an event without an end"):
            await anext(console.stream(patience_s=1))
