"""The stream: every client receives every event once, and a slow client delays no other."""

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import httpx2
import pytest

from bus_kit import ask, caps, eco, hardware, node_seen, plan_made, power
from console_kit import (
    ConsoleHarness,
    EventReader,
    StreamEvent,
    UnexpectedStatus,
    console_harness,
    open_response,
    open_stream,
    running_console,
)
from joulie_answers.readers import history
from joulie_answers.views.decision_text import DescribedEntry
from joulie_bus.broker.embedded import Embedded
from joulie_bus.events import SettingsDeclared
from joulie_bus.runtime.ports import free_port
from joulie_console.stream import event_tail, server_sent_events
from joulie_console.stream.event_tail import DecisionLine
from joulie_console.stream.server_sent_events import SLOW_S

pytestmark = pytest.mark.anyio
NewHarness = Callable[..., AbstractAsyncContextManager[ConsoleHarness]]


def settings_entries(count: int, size: int = 10) -> list[SettingsDeclared]:
    """Entries that are cheap to make."""
    return [
        SettingsDeclared(settings=f"s{number}", code="x" * size, values={})
        for number in range(count)
    ]


async def read_events(reader: EventReader, count: int, *events: str) -> list[StreamEvent]:
    async with asyncio.timeout(60):
        return [await reader.next(*events) for _ in range(count)]


def entries(found: list[StreamEvent]) -> list[int]:
    return [event.data["entry"] for event in found]


async def test_a_decision_is_streamed_with_its_winner(new_harness: NewHarness) -> None:
    async with new_harness() as harness, open_stream(harness.url, topics="decisions") as reader:
        await harness.publish(node_seen("n1"), hardware("n1"), power("n1", 100))
        await harness.decide(ask("p1"))
        _, filtered, scored = await read_events(reader, 3)

    assert [filtered.event, scored.event] == ["decision", "decision"]
    assert (filtered.data["verb"], scored.data["winner"]) == ("filter", "n1")
    assert scored.id.endswith(".3")


async def test_plans_and_transitions_carry_their_position(
    new_harness: NewHarness,
) -> None:
    async with new_harness() as harness:
        await harness.publish(node_seen("n1"), hardware("n1"))
        async with open_stream(harness.url, topics="plans,transitions") as reader:
            await harness.publish(plan_made("p2"), eco("n1"), caps("n1", cpu=60))
            plan, profile, capped = await read_events(reader, 3)

    assert [event.event for event in (plan, profile, capped)] == ["plan", *["transition"] * 2]
    assert [event.id for event in (plan, profile, capped)] == ["3.0", "4.0", "5.0"]
    assert (profile.data["transition"]["to"], capped.data["position"]) == ("eco", 5)


async def test_a_returning_client_receives_every_event_once(new_harness: NewHarness) -> None:
    async with new_harness() as harness:
        async with open_stream(harness.url, topics="decisions,transitions") as reader:
            await harness.publish_decisions(*settings_entries(3))
            first = await read_events(reader, 2)
        await harness.publish(node_seen("n1"))
        await harness.publish(eco("n1"))
        await harness.publish_decisions(*settings_entries(4))
        async with open_stream(harness.url, first[-1].id, topics="decisions,transitions") as again:
            rest = await read_events(again, 6)

    decisions = [event for event in (*first, *rest) if event.event == "decision"]
    assert entries(decisions) == [1, 2, 3, 4, 5, 6, 7]
    assert [event.data["position"] for event in rest if event.event == "transition"] == [2]


async def test_without_clients_nothing_is_encoded_and_nothing_is_lost(
    new_harness: NewHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    described = list[int]()

    def describing(found: DescribedEntry) -> DecisionLine:
        described.append(found.brief.entry)
        return line(found)

    line = event_tail._line
    monkeypatch.setattr(event_tail, "_line", describing)
    async with new_harness() as harness:
        await harness.publish_decisions(*settings_entries(9))
        async with httpx2.AsyncClient(base_url=harness.url) as client, asyncio.timeout(60):
            while (await client.get("/v1/reach")).json()["entries"] < 9:
                await asyncio.sleep(0.02)
        before = list(described)
        async with open_stream(harness.url, "0.0", topics="decisions") as reader:
            await harness.publish_decisions(*settings_entries(3))
            found = await read_events(reader, 12)

    assert before == []
    assert entries(found) == list(range(1, 13))
    assert sorted(described) == list(range(1, 13))


async def test_clients_resume_at_a_restarted_console(
    empty_streams: Embedded, tmp_path: Path
) -> None:
    port = f"127.0.0.1:{free_port()}"
    async with console_harness(empty_streams, tmp_path) as harness:
        await harness.publish_decisions(*settings_entries(20))
        async with (
            running_console(empty_streams, tmp_path, CONSOLE_ADDR=port) as url,
            open_stream(url, "0.0", topics="decisions") as reader,
        ):
            first = await read_events(reader, 7)
        await harness.publish_decisions(*settings_entries(20))
        async with (
            running_console(empty_streams, tmp_path, CONSOLE_ADDR=port) as url,
            open_stream(url, first[-1].id, topics="decisions") as reader,
        ):
            rest = await read_events(reader, 33)

    assert entries([*first, *rest]) == list(range(1, 41))


async def test_clients_that_return_at_once_wait_for_a_busy_history(
    empty_streams: Embedded, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A console that starts has nothing in memory, and more clients than queries may wait."""
    monkeypatch.setattr(history, "MAX_QUERIES", 1)
    monkeypatch.setattr(server_sent_events, "AGAIN_S", 0.01)
    async with contextlib.AsyncExitStack() as stack:
        harness = await stack.enter_async_context(console_harness(empty_streams, tmp_path))
        await harness.publish_decisions(*settings_entries(20))
        url = await stack.enter_async_context(running_console(empty_streams, tmp_path))
        opened = [open_stream(url, "0.0", topics="decisions") for _ in range(20)]
        readers = [await stack.enter_async_context(each) for each in opened]
        found = await asyncio.gather(*(read_events(reader, 20) for reader in readers))

    assert [entries(each) for each in found] == [list(range(1, 21))] * 20


@pytest.mark.parametrize(
    ("query", "wanted"),
    [
        ({"verb": "prioritize"}, [3, 5]),
        ({"class": "performance"}, [4, 5]),
        ({"pod": "team/p1"}, [2, 3]),
        ({"node": "n1", "verb": "filter"}, [4]),
    ],
    ids=str,
)
async def test_clients_select_events(
    new_harness: NewHarness, query: dict[str, Any], wanted: list[int]
) -> None:
    async with new_harness() as harness:
        await harness.publish(node_seen("n1"), hardware("n1"), power("n1", 100), eco("n1"))
        await harness.decide(ask("p1"))
        await harness.decide(ask("p2", performance=True))
        async with open_stream(harness.url, "0.0", topics="decisions", **query) as reader:
            found = await read_events(reader, len(wanted))

    assert entries(found) == wanted


async def test_heartbeats_carry_the_cursor(
    new_harness: NewHarness,
) -> None:
    async with new_harness({"heartbeat_s": 0.05}) as harness:
        await harness.publish_decisions(*settings_entries(3))
        async with (
            open_response(harness.url, "/v1/stream?topics=plans&after=0.0") as lines,
            asyncio.timeout(60),
        ):
            beats = [line async for line in _until(lines, "id: 0.3") if line.startswith(":")]

    assert set(beats) == {": heartbeat"}


async def _until(lines: AsyncIterator[str], last: str) -> AsyncIterator[str]:
    async for line in lines:
        yield line
        if line == last:
            return


async def test_the_cluster_event_is_the_newest_state(new_harness: NewHarness) -> None:
    async with new_harness() as harness, open_stream(harness.url, topics="cluster") as reader:
        await harness.publish(node_seen("n1"), hardware("n1"), power("n1", 123))
        async with asyncio.timeout(60):
            while (found := await reader.next("cluster")).data["nodes"] != 1:
                pass

    assert found.data["measured_w"] == 123.0


async def test_the_map_event_has_changed_rows_only(new_harness: NewHarness) -> None:
    async with new_harness() as harness:
        await harness.publish(node_seen("n1"), node_seen("n2"), hardware("n1"), hardware("n2"))
        async with asyncio.timeout(60), open_stream(harness.url, topics="map,cluster") as reader:
            while (await reader.next()).data["position"] < harness.view.position:
                pass
            await harness.publish(power("n2", 72))
            while not (found := await reader.next("map")).data["rows"]:
                pass

    assert found.data["rows"] == [[1, 0, 90, 14, 72, -1, 0, 0]]


@pytest.mark.long
async def test_a_slow_client_is_cut_with_a_reason_and_may_return(
    new_harness: NewHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    # On a busy machine, writing the log takes longer than a stalled client is kept.
    monkeypatch.setattr(server_sent_events, "STALLED_S", 100.0)
    async with new_harness({"max_behind": 10}) as harness:
        async with open_stream(harness.url, buffer=65_536, topics="decisions") as reader:
            await harness.publish_decisions(*settings_entries(1))
            first = await read_events(reader, 1)
            # More than all buffers on the way can hold, before a byte is read.
            for _ in range(20):
                await harness.publish_decisions(*settings_entries(900, size=256))
            await asyncio.sleep(3 * SLOW_S)  # makes the client slow
            found, last = await _to_the_cut(reader)
        async with open_stream(harness.url, last.id, topics="decisions") as again:
            rest = await read_events(again, harness.entries - len(found) - 1)

    assert "decisions behind, more than 10" in last.data["reason"]
    assert entries([*first, *found, *rest]) == list(range(1, harness.entries + 1))


async def _to_the_cut(reader: EventReader) -> tuple[list[StreamEvent], StreamEvent]:
    found: list[StreamEvent] = []
    async with asyncio.timeout(60):
        while (event := await reader.next()).event == "decision":
            found.append(event)
    assert event.event == "cut"
    return found, event


async def test_clients_beyond_the_limit_get_503(new_harness: NewHarness) -> None:
    async with new_harness({"max_clients": 2}) as harness, contextlib.AsyncExitStack() as stack:
        for _ in range(2):
            reader = await stack.enter_async_context(open_stream(harness.url, topics="cluster"))
            await reader.next()
        async with httpx2.AsyncClient(base_url=harness.url) as client:
            answer = await client.get("/v1/stream")

    assert (answer.status_code, answer.headers["retry-after"]) == (503, "10")
    assert "The limit of 2 clients is reached" in answer.json()["detail"]


async def test_an_id_of_another_log_is_answered_by_a_gap(
    new_harness: NewHarness,
) -> None:
    async with new_harness() as harness:
        await harness.publish_decisions(*settings_entries(3))
        async with open_stream(harness.url, "7.700", topics="decisions") as reader:
            gap = await reader.next()

    assert (gap.event, "another log" in gap.data["reason"]) == ("gap", True)


@pytest.mark.drill
async def test_five_hundred_clients_receive_the_same_sequence(
    empty_streams: Embedded, tmp_path: Path
) -> None:
    await _drill(empty_streams, tmp_path, max_clients=500, kills=4, rounds=20)


@pytest.mark.long
async def test_forty_clients_receive_the_same_sequence(
    empty_streams: Embedded, tmp_path: Path
) -> None:
    await _drill(empty_streams, tmp_path, max_clients=40, kills=1, rounds=8)


async def _drill(
    broker: Embedded, directory: Path, *, max_clients: int, kills: int, rounds: int
) -> None:
    """Clients leave at random and the console restarts: all receive the same decisions."""
    at = f"127.0.0.1:{free_port()}"
    goal = rounds * 50

    def read_all() -> list[list[int]]:
        """Runs the clients on their own event loop, so that they do not slow the console."""
        return asyncio.run(_read_all(f"http://{at}", goal, max_clients))

    async with console_harness(broker, directory) as harness, asyncio.TaskGroup() as tasks:
        described = tasks.create_task(asyncio.to_thread(read_all))
        tasks.create_task(_publish_rounds(harness, rounds))
        for life in range(kills + 1):
            async with running_console(broker, directory, CONSOLE_ADDR=at):
                enough = goal * (life + 1) // (kills + 1)
                while harness.entries < enough or (life == kills and not described.done()):
                    await asyncio.sleep(0.05)

    assert described.result() == [list(range(1, goal + 1))] * max_clients


async def _read_all(url: str, goal: int, max_clients: int) -> list[list[int]]:
    pause_s = max_clients / 500
    return await asyncio.gather(
        *(_read_with_reconnects(url, goal, seed, pause_s) for seed in range(max_clients))
    )


async def _publish_rounds(harness: ConsoleHarness, rounds: int) -> None:
    for _ in range(rounds):
        await harness.publish_decisions(*settings_entries(50))


async def _read_with_reconnects(url: str, goal: int, seed: int, pause_s: float) -> list[int]:
    """Disconnects at random and reconnects until the last event has arrived."""
    draw, found, last = random.Random(seed), list[int](), "0.0"
    while len(found) < goal:
        patience = draw.randint(1, max(2, goal // 3))
        with contextlib.suppress(UnexpectedStatus, EOFError, OSError):
            async with open_stream(url, last, topics="decisions") as reader:
                for _ in range(patience):
                    event = await reader.next("decision")
                    found.append(event.data["entry"])
                    last = event.id
                    if len(found) >= goal:
                        break
        await asyncio.sleep(draw.random() * pause_s)
    return found
