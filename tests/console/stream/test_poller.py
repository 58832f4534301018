"""The console polls only while the stream has clients, and every client gets a fresh state."""

import time
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path

import msgspec
import pytest

from bus_kit import node_seen, until
from console_kit import FRESH_S, STALENESS_S, ConsoleHarness, energy_of
from joulie_answers.readers.history import HistoryReader
from joulie_answers.schema.requests import Stream
from joulie_console.stream.event_tail import EventTail
from joulie_console.stream.poller import IDLE_POWER_S, IDLE_S, POLL_S, POWER_S, ClusterPoller
from joulie_console.stream.server_sent_events import StreamClient, StreamOptions
from joulie_console.views.health import GONE_MS
from joulie_projections.history.history import History

pytestmark = pytest.mark.anyio
NewHarness = Callable[..., AbstractAsyncContextManager[ConsoleHarness]]


async def poller_of(harness: ConsoleHarness, directory: Path) -> tuple[ClusterPoller, EventTail]:
    """A poller that has polled an empty cluster some time ago, and its tail. The view has heard of
    the projector: what nothing is known of has no point in the power chart."""
    await until(lambda: harness.view.age_s < FRESH_S)
    history = HistoryReader(lambda: History.readable(directory / "joulie.db"))
    tail = EventTail(harness.bus, history, energy_of(directory / "joulie.db"))
    poller = ClusterPoller(harness.view, tail, "local", STALENESS_S)
    await poller.poll(time.monotonic() - 10 * POWER_S)
    return poller, tail


def nodes_of(summary: bytes) -> int:
    nodes: int = msgspec.json.decode(summary)["nodes"]
    return nodes


async def test_without_clients_only_points_of_the_power_chart_are_polled(
    new_harness: NewHarness, tmp_path: Path
) -> None:
    async with new_harness() as harness:
        poller, tail = await poller_of(harness, tmp_path)
        before = poller.delta, poller.summary, len(poller.power)
        await harness.publish(node_seen("n1"))
        await poller.poll(time.monotonic())

        assert (poller.delta, poller.summary, len(poller.power) - 1) == before
        assert poller.power[-1].position == harness.view.position

        with tail.subscribed():
            await poller.poll(time.monotonic() + POWER_S)

            assert poller.delta.number == before[0].number + 1
            assert nodes_of(poller.summary) == 1


async def test_the_first_client_of_the_stream_gets_the_state_of_now(
    new_harness: NewHarness, tmp_path: Path
) -> None:
    async with new_harness() as harness:
        poller, tail = await poller_of(harness, tmp_path)
        await harness.publish(node_seen("n1"))
        client = StreamClient(tail, poller, Stream(topics="cluster,map"), None)
        chunks = client.chunks(StreamOptions())
        _, states = await anext(chunks), (await anext(chunks)).decode()
        await chunks.aclose()

    (line,) = [line for line in states.splitlines() if line.startswith("data: ")]
    assert nodes_of(line.removeprefix("data: ").encode()) == 1  # and no `map` before the next poll


async def test_a_query_without_clients_of_the_stream_sees_the_state_of_now(
    new_harness: NewHarness, tmp_path: Path
) -> None:
    async with new_harness() as harness:
        poller, _ = await poller_of(harness, tmp_path)
        await harness.publish(node_seen("n1"), node_seen("n2"))
        taken = poller.overview

        assert taken.totals().nodes == 2
        assert poller.overview is taken  # for all queries of the next POLL_S

        poller.refresh(time.monotonic() + POLL_S)
        assert poller.overview.snapshot.position == harness.view.position


async def test_half_a_minute_after_the_last_query_changes_are_read_for_a_query_only(
    new_harness: NewHarness, tmp_path: Path
) -> None:
    async with new_harness() as harness:
        poller, _ = await poller_of(harness, tmp_path)
        await poller.attend()
        await poller.poll(time.monotonic() + IDLE_S - 1)
        await harness.publish(node_seen("n1"))  # returns when the view has it
        await poller.poll(time.monotonic() + IDLE_S)
        await harness.commit(node_seen("n2"))
        before, points = harness.view.position, len(poller.power)
        await poller.attend()

        assert (before, harness.view.position) == (1, 2)
        assert poller.overview.totals().nodes == 2
        assert len(poller.power) == points


async def test_a_paused_console_continues_its_power_chart_each_minute(
    new_harness: NewHarness, tmp_path: Path
) -> None:
    async with new_harness() as harness:
        poller, _ = await poller_of(harness, tmp_path)
        start = time.monotonic()
        await poller.poll(start)
        await poller.poll(start + IDLE_S)
        await harness.commit(node_seen("n1"))
        points = len(poller.power)
        await poller.poll(start + IDLE_POWER_S - 1)
        none_early = len(poller.power) == points
        await poller.poll(start + IDLE_POWER_S)

        assert none_early
        assert [point.position for point in list(poller.power)[points:]] == [1]


async def test_the_power_chart_ends_where_the_view_does(
    new_harness: NewHarness, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with new_harness() as harness:
        poller, _ = await poller_of(harness, tmp_path)
        start = time.monotonic()
        await poller.poll(start)
        points = len(poller.power)
        gone = harness.view.ages._replace(heard_ms=GONE_MS)
        monkeypatch.setattr(type(harness.view), "ages", gone)
        await poller.poll(start + IDLE_S - 1)
        without = len(poller.power)
        monkeypatch.undo()
        await poller.poll(start + IDLE_S + IDLE_POWER_S)

        assert (without - points, len(poller.power) - points) == (0, 1)


async def test_clients_of_the_stream_keep_the_view_going(
    new_harness: NewHarness, tmp_path: Path
) -> None:
    async with new_harness() as harness:
        poller, tail = await poller_of(harness, tmp_path)
        with tail.subscribed():
            await poller.poll(time.monotonic() + IDLE_S)
            await harness.publish(node_seen("n1"))

        assert harness.view.position == 1
