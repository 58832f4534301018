"""The console polls only while the stream has clients, and every client gets a fresh state."""

import time
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path

import msgspec
import pytest

from joulie_bus.testing import node_seen
from joulie_console.readers.history import HistoryReader
from joulie_console.schema.requests import Stream
from joulie_console.stream.event_tail import EventTail
from joulie_console.stream.poller import POLL_S, POWER_S, ClusterPoller
from joulie_console.stream.server_sent_events import StreamClient, StreamOptions
from joulie_console.testing import STALENESS_S, ConsoleHarness
from joulie_projections.history.history import History

pytestmark = pytest.mark.anyio
NewHarness = Callable[..., AbstractAsyncContextManager[ConsoleHarness]]


def poller_of(harness: ConsoleHarness, directory: Path) -> tuple[ClusterPoller, EventTail]:
    """A poller that has polled an empty cluster some time ago, and its tail."""
    history = HistoryReader(lambda: History.readable(directory / "joulie.db"))
    tail = EventTail(harness.bus, history, dict)
    poller = ClusterPoller(harness.view, tail, "local", STALENESS_S)
    poller.poll(time.monotonic() - 10 * POWER_S)
    return poller, tail


def nodes_of(summary: bytes) -> int:
    nodes: int = msgspec.json.decode(summary)["nodes"]
    return nodes


async def test_without_clients_only_points_of_the_power_chart_are_polled(
    new_harness: NewHarness, tmp_path: Path
) -> None:
    async with new_harness() as harness:
        poller, tail = poller_of(harness, tmp_path)
        before = poller.delta, poller.summary, len(poller.power)
        await harness.publish(node_seen("n1"))
        poller.poll(time.monotonic())

        assert (poller.delta, poller.summary, len(poller.power) - 1) == before
        assert poller.power[-1].position == harness.view.position

        with tail.subscribed():
            poller.poll(time.monotonic() + POWER_S)

            assert poller.delta.number == before[0].number + 1
            assert nodes_of(poller.summary) == 1


async def test_the_first_client_of_the_stream_gets_the_state_of_now(
    new_harness: NewHarness, tmp_path: Path
) -> None:
    async with new_harness() as harness:
        poller, tail = poller_of(harness, tmp_path)
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
        poller, _ = poller_of(harness, tmp_path)
        await harness.publish(node_seen("n1"), node_seen("n2"))
        taken = poller.overview

        assert taken.totals().nodes == 2
        assert poller.overview is taken  # for all queries of the next POLL_S

        poller.refresh(time.monotonic() + POLL_S)
        assert poller.overview.snapshot.position == harness.view.position
