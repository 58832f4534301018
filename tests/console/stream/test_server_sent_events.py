"""What is heard, by whom, from where on: nothing twice, nothing missed, nobody waited for."""

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import httpx2
import pytest

from joulie_bus.broker.embedded import Embedded, free_port
from joulie_bus.events import SettingsDeclared
from joulie_bus.testing import ask, caps, eco, hardware, node_seen, plan_made, power
from joulie_console.stream import server_sent_events
from joulie_console.stream.event_tail import DecisionLine, Journal
from joulie_console.stream.server_sent_events import SLOW_S
from joulie_console.testing import (
    Ear,
    Heard,
    Refusal,
    Stage,
    asking,
    listening_to,
    showing,
    staging,
)
from joulie_projections.history.history import Logged

pytestmark = pytest.mark.anyio
Staging = Callable[..., AbstractAsyncContextManager[Stage]]


def noise(count: int, size: int = 10) -> list[SettingsDeclared]:
    """Entries that are quickly made."""
    return [
        SettingsDeclared(settings=f"s{number}", code="x" * size, values={})
        for number in range(count)
    ]


async def heard(ear: Ear, count: int, *events: str) -> list[Heard]:
    async with asyncio.timeout(20):
        return [await ear.next(*events) for _ in range(count)]


def entries(found: list[Heard]) -> list[int]:
    return [event.data["entry"] for event in found]


async def test_a_decision_is_heard_within_moments_with_its_winner(stage_of: Staging) -> None:
    async with stage_of() as stage, listening_to(stage.url, topics="decisions") as ear:
        await stage.tell(node_seen("n1"), hardware("n1"), power("n1", 100))
        await stage.place(ask("p1"))
        _, filtered, scored = await heard(ear, 3)

    assert [filtered.event, scored.event] == ["decision", "decision"]
    assert (filtered.data["verb"], scored.data["winner"]) == ("filter", "n1")
    assert scored.id.endswith(".3")


async def test_plans_and_transitions_carry_the_position_that_they_took(stage_of: Staging) -> None:
    async with stage_of() as stage:
        await stage.tell(node_seen("n1"), hardware("n1"))
        async with listening_to(stage.url, topics="plans,transitions") as ear:
            await stage.tell(plan_made("p2"), eco("n1"), caps("n1", cpu=60))
            plan, profile, capped = await heard(ear, 3)

    assert [event.event for event in (plan, profile, capped)] == ["plan", *["transition"] * 2]
    assert [event.id for event in (plan, profile, capped)] == ["3.0", "4.0", "5.0"]
    assert (profile.data["transition"]["to"], capped.data["position"]) == ("eco", 5)


async def test_who_comes_back_hears_everything_once(stage_of: Staging) -> None:
    async with stage_of() as stage:
        async with listening_to(stage.url, topics="decisions,transitions") as ear:
            await stage.record(*noise(3))
            first = await heard(ear, 2)
        await stage.tell(node_seen("n1"))
        await stage.tell(eco("n1"))
        await stage.record(*noise(4))
        async with listening_to(stage.url, first[-1].id, topics="decisions,transitions") as again:
            rest = await heard(again, 6)

    decisions = [event for event in (*first, *rest) if event.event == "decision"]
    assert entries(decisions) == [1, 2, 3, 4, 5, 6, 7]
    assert [event.data["position"] for event in rest if event.event == "transition"] == [2]


async def test_nothing_is_told_to_nobody_and_who_comes_then_hears_it_all(
    stage_of: Staging, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = list[int]()

    def telling(journal: Journal, logged: Logged) -> DecisionLine:
        told.append(logged.pos)
        return line(journal, logged)

    line = Journal._line
    monkeypatch.setattr(Journal, "_line", telling)
    async with stage_of() as stage:
        await stage.record(*noise(9))
        async with httpx2.AsyncClient(base_url=stage.url) as client, asyncio.timeout(20):
            while (await client.get("/v1/reach")).json()["entries"] < 9:
                await asyncio.sleep(0.02)
        before = list(told)
        async with listening_to(stage.url, "0.0", topics="decisions") as ear:
            await stage.record(*noise(3))
            found = await heard(ear, 12)

    assert before == []
    assert entries(found) == list(range(1, 13))
    assert sorted(told) == list(range(1, 13))


async def test_a_console_that_was_killed_goes_on_where_its_listeners_were(
    empty_streams: Embedded, tmp_path: Path
) -> None:
    port = f"127.0.0.1:{free_port()}"
    async with staging(empty_streams, tmp_path) as stage:
        await stage.record(*noise(20))
        async with (
            showing(empty_streams, tmp_path, CONSOLE_ADDR=port) as url,
            listening_to(url, "0.0", topics="decisions") as ear,
        ):
            first = await heard(ear, 7)
        await stage.record(*noise(20))
        async with (
            showing(empty_streams, tmp_path, CONSOLE_ADDR=port) as url,
            listening_to(url, first[-1].id, topics="decisions") as ear,
        ):
            rest = await heard(ear, 33)

    assert entries([*first, *rest]) == list(range(1, 41))


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
async def test_listeners_choose_what_they_hear(
    stage_of: Staging, query: dict[str, Any], wanted: list[int]
) -> None:
    async with stage_of() as stage:
        await stage.tell(node_seen("n1"), hardware("n1"), power("n1", 100), eco("n1"))
        await stage.place(ask("p1"))
        await stage.place(ask("p2", performance=True))
        async with listening_to(stage.url, "0.0", topics="decisions", **query) as ear:
            found = await heard(ear, len(wanted))

    assert entries(found) == wanted


async def test_silence_is_broken_by_heartbeats_that_say_how_far_we_are(
    stage_of: Staging,
) -> None:
    async with stage_of({"heartbeat_s": 0.05}) as stage:
        await stage.record(*noise(3))
        async with (
            asking(stage.url, "/v1/stream?topics=plans&after=0.0") as lines,
            asyncio.timeout(10),
        ):
            beats = [line async for line in _until(lines, "id: 0.3") if line.startswith(":")]

    assert set(beats) == {": still here"}


async def _until(lines: AsyncIterator[str], last: str) -> AsyncIterator[str]:
    async for line in lines:
        yield line
        if line == last:
            return


async def test_the_cluster_is_a_state_and_only_the_newest_counts(stage_of: Staging) -> None:
    async with stage_of() as stage, listening_to(stage.url, topics="cluster") as ear:
        await stage.tell(node_seen("n1"), hardware("n1"), power("n1", 123))
        async with asyncio.timeout(10):
            while (found := await ear.next("cluster")).data["nodes"] != 1:
                pass

    assert found.data["measured_w"] == 123.0


async def test_the_map_tells_what_changed_and_nothing_else(stage_of: Staging) -> None:
    async with stage_of() as stage:
        await stage.tell(node_seen("n1"), node_seen("n2"), hardware("n1"), hardware("n2"))
        async with asyncio.timeout(10), listening_to(stage.url, topics="map,cluster") as ear:
            while (await ear.next()).data["position"] < stage.view.position:
                pass
            await stage.tell(power("n2", 72))
            while not (found := await ear.next("map")).data["rows"]:
                pass

    assert found.data["rows"] == [[1, 0, 90, 14, 72, -1]]


async def test_a_slow_listener_is_cut_with_a_reason_and_may_come_back(
    stage_of: Staging, monkeypatch: pytest.MonkeyPatch
) -> None:
    # On a busy machine the log takes longer to write than a stalled listener is kept.
    monkeypatch.setattr(server_sent_events, "STALLED_S", 100.0)
    async with stage_of({"behind": 10}) as stage:
        async with listening_to(stage.url, buffer=65_536, topics="decisions") as ear:
            await stage.record(*noise(1))
            first = await heard(ear, 1)
            # More than all buffers on the way hold, before a single byte is read.
            for _ in range(20):
                await stage.record(*noise(2_400, size=256))
            await asyncio.sleep(3 * SLOW_S)  # this is what slow means
            found, last = await _to_the_cut(ear)
        async with listening_to(stage.url, last.id, topics="decisions") as again:
            rest = await heard(again, stage.entries - len(found) - 1)

    assert "decisions behind, more than 10" in last.data["reason"]
    assert entries([*first, *found, *rest]) == list(range(1, stage.entries + 1))


async def _to_the_cut(ear: Ear) -> tuple[list[Heard], Heard]:
    found: list[Heard] = []
    async with asyncio.timeout(30):
        while (event := await ear.next()).event == "decision":
            found.append(event)
    assert event.event == "cut"
    return found, event


async def test_there_is_room_for_so_many_and_the_next_one_is_told(stage_of: Staging) -> None:
    async with stage_of({"listeners": 2}) as stage, contextlib.AsyncExitStack() as stack:
        for _ in range(2):
            ear = await stack.enter_async_context(listening_to(stage.url, topics="cluster"))
            await ear.next()
        async with httpx2.AsyncClient(base_url=stage.url) as client:
            answer = await client.get("/v1/stream")

    assert (answer.status_code, answer.headers["retry-after"]) == (503, "10")
    assert "2 listeners are here already" in answer.json()["detail"]


async def test_an_id_of_another_log_is_answered_by_a_gap_and_not_by_silence(
    stage_of: Staging,
) -> None:
    async with stage_of() as stage:
        await stage.record(*noise(3))
        async with listening_to(stage.url, "7.700", topics="decisions") as ear:
            gap = await ear.next()

    assert (gap.event, "another log" in gap.data["reason"]) == ("gap", True)


@pytest.mark.drill
async def test_five_hundred_listeners_end_with_the_same_sequence(
    empty_streams: Embedded, tmp_path: Path
) -> None:
    await _drill(empty_streams, tmp_path, listeners=500, kills=4, rounds=20)


async def test_forty_listeners_end_with_the_same_sequence(
    empty_streams: Embedded, tmp_path: Path
) -> None:
    await _drill(empty_streams, tmp_path, listeners=40, kills=1, rounds=8)


async def _drill(
    broker: Embedded, directory: Path, *, listeners: int, kills: int, rounds: int
) -> None:
    """Listeners leave at random, the console dies, decisions go on: all hear the same."""
    at = f"127.0.0.1:{free_port()}"
    goal = rounds * 50

    def listen() -> list[list[int]]:
        """On a loop of their own: what is slow here must not be what is tested."""
        return asyncio.run(_listen_all(f"http://{at}", goal, listeners))

    async with staging(broker, directory) as stage, asyncio.TaskGroup() as tasks:
        told = tasks.create_task(asyncio.to_thread(listen))
        tasks.create_task(_speak(stage, rounds))
        for life in range(kills + 1):
            async with showing(broker, directory, CONSOLE_ADDR=at):
                enough = goal * (life + 1) // (kills + 1)
                while stage.entries < enough or (life == kills and not told.done()):
                    await asyncio.sleep(0.05)

    assert told.result() == [list(range(1, goal + 1))] * listeners


async def _listen_all(url: str, goal: int, listeners: int) -> list[list[int]]:
    pause_s = listeners / 500
    return await asyncio.gather(
        *(_listen_stubbornly(url, goal, seed, pause_s) for seed in range(listeners))
    )


async def _speak(stage: Stage, rounds: int) -> None:
    for _ in range(rounds):
        await stage.record(*noise(50))


async def _listen_stubbornly(url: str, goal: int, seed: int, pause_s: float) -> list[int]:
    """Leaves after a while of its own and comes back, until it has heard the last one."""
    draw, found, last = random.Random(seed), list[int](), "0.0"
    while len(found) < goal:
        patience = draw.randint(1, max(2, goal // 3))
        with contextlib.suppress(Refusal, EOFError, OSError):
            async with listening_to(url, last, topics="decisions") as ear:
                for _ in range(patience):
                    event = await ear.next("decision")
                    found.append(event.data["entry"])
                    last = event.id
                    if len(found) >= goal:
                        break
        await asyncio.sleep(draw.random() * pause_s)
    return found
