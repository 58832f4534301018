"""Server-sent events: every client reads the event tail at its own pace, from its own cursor.

The `id` of an event is a cursor into both logs (`POSITION.ENTRY`): a client that reconnects with it
receives every event once. Decisions, plans and transitions have an id. `cluster` and `map` are
states without an id: only the newest one is sent.
"""

import asyncio
import contextlib
import time
from collections.abc import AsyncGenerator, Callable, Sequence

import msgspec
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from joulie_answers.schema.requests import Stream
from joulie_answers.schema.responses import MapChanges, Notice
from joulie_answers.views.plan_text import PlanLine
from joulie_bus.errors import QueryRefused, Unreadable
from joulie_bus.runtime import metrics
from joulie_bus.runtime.logging import get_logger
from joulie_console.stream.event_tail import Cursor, DecisionLine, EventTail, decision_frame
from joulie_console.stream.poller import ClusterPoller

RETRY_MS = 1_000
SLOW_S = 0.5  # a client that takes longer for one chunk is slow
AGAIN_S = 1.0  # between two reads of decisions of a database that is busy or away
STALLED_S = 20.0  # a client that takes longer for one chunk is disconnected
RELOAD = msgspec.json.encode(MapChanges(reload=True))
SHUTTING_DOWN = "this console is shutting down: reconnect"
log = get_logger("console")


class StreamOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Options of the stream."""

    heartbeat_s: float = 15.0
    max_behind: int = 5_000  # decisions after which a slow client is disconnected


class StreamClient:
    """One client of the stream, with its cursor."""

    def __init__(
        self, tail: EventTail, poller: ClusterPoller, query: Stream, start: Cursor | None
    ) -> None:
        self._tail = tail
        self._poller = poller
        self._query = query
        self._topics = frozenset(query.topics.split(","))
        self._cursor = start or tail.cursor
        self._summary = b""
        poller.refresh(time.monotonic())  # the first client, too, starts with a fresh state
        self._delta_number = poller.delta.number
        self._is_slow = False
        self._waits_for_history = False

    async def chunks(self, options: StreamOptions) -> AsyncGenerator[bytes, None]:
        with self._tail.subscribed():
            yield f"retry: {RETRY_MS}\n{self._first_frame()}".encode()
            while True:
                changed = self._tail.changed
                if self._tail.is_closing:
                    yield _frame("cut", SHUTTING_DOWN, self._cursor).encode()
                    return
                if self._is_cut(options):
                    yield self._cut(options)
                    return
                if chunk := await self._next_frames():
                    sent_at = time.monotonic()
                    yield chunk
                    self._is_slow = time.monotonic() - sent_at > SLOW_S
                    continue
                try:
                    async with asyncio.timeout(self._pause_s(options)):
                        await changed.wait()
                except TimeoutError:
                    yield f": heartbeat\nid: {self._cursor}\n\n".encode()

    def _pause_s(self, options: StreamOptions) -> float:
        return min(AGAIN_S, options.heartbeat_s) if self._waits_for_history else options.heartbeat_s

    def _first_frame(self) -> str:
        """The cursor, or a `gap` if events after the client's cursor are not available."""
        newest, first = self._tail.cursor, self._tail.first_plan
        if self._cursor.entry > newest.entry or self._cursor.position > max(newest.position, first):
            gone, self._cursor = self._cursor, newest
            why = f"{gone} does not exist yet: the id is of another log"
            return _frame("gap", why, self._cursor)
        is_late = self._tail.has_dropped_plans and self._cursor.position < first - 1
        if is_late and self._topics & {"plans", "transitions"}:
            why = f"plans before position {first} are not streamed: get /v1/plans?before={first}"
            return _frame("gap", why, self._cursor)
        return f"id: {self._cursor}\n\n"

    async def _next_frames(self) -> bytes:
        return b"".join([self._plans(), await self._decisions(), self._states()])

    def _plans(self) -> bytes:
        lines = self._tail.plans_after(self._cursor.position)
        if not lines:
            return b""
        matching = [line for line in lines if self._matches_plan(line)]
        chunk = b"".join(_plan_frame(line, self._cursor.entry) for line in matching)
        self._cursor = Cursor(lines[-1].number, self._cursor.entry)
        return chunk

    def _matches_plan(self, line: PlanLine) -> bool:
        return line.topic in self._topics and self._query.node in ("", line.node)

    async def _decisions(self) -> bytes:
        before = self._cursor
        lines = await self._decisions_after(before.entry)
        if not lines:
            return b""
        self._cursor = Cursor(before.position, lines[-1].number)
        if "decisions" not in self._topics:
            return b""
        if self._is_unfiltered:
            return self._tail.encoded_events(before.position, lines)
        matching = [line for line in lines if self._matches(line)]
        return b"".join(decision_frame(line, before.position) for line in matching)

    async def _decisions_after(self, entry: int) -> Sequence[DecisionLine]:
        """None while the history is busy with others or the database is away: the client keeps its
        cursor, and misses nothing."""
        try:
            lines = await self._tail.decisions_after(entry)
        except (QueryRefused, Unreadable):
            self._waits_for_history = True
            return ()
        self._waits_for_history = False
        return lines

    @property
    def _is_unfiltered(self) -> bool:
        query = self._query
        return not (query.pod or query.node or query.verb or query.workload)

    def _matches(self, line: DecisionLine) -> bool:
        query, brief = self._query, line.brief
        return (
            query.pod in ("", f"{brief.namespace}/{brief.name}")
            and (line.is_listed if query.verb is None else query.verb == brief.verb)
            and query.workload in (None, brief.workload)
            and (not query.node or query.node in line.nodes)
        )

    def _states(self) -> bytes:
        parts = []
        if "cluster" in self._topics and self._poller.summary is not self._summary:
            self._summary = self._poller.summary
            parts.append(b"event: cluster\ndata: " + self._summary + b"\n\n")
        delta = self._poller.delta
        if "map" in self._topics and delta.number != self._delta_number:
            missed = delta.number != self._delta_number + 1
            self._delta_number = delta.number
            data = RELOAD if missed else delta.data
            parts.append(b"event: map\ndata: " + data + b"\n\n")
        return b"".join(parts)

    def _is_cut(self, options: StreamOptions) -> bool:
        """Only a slow client is disconnected, not one that received a burst."""
        return self._is_slow and self._tail.entry - self._cursor.entry > options.max_behind

    def _cut(self, options: StreamOptions) -> bytes:
        behind = self._tail.entry - self._cursor.entry
        metrics.STREAM_CUT.inc()
        why = (
            f"the client is {behind} decisions behind, more than {options.max_behind}: read faster "
            f"or select less; reconnect with Last-Event-ID {self._cursor} to receive all of them"
        )
        return _frame("cut", why, self._cursor).encode()


def _frame(event: str, reason: str, at: Cursor) -> str:
    data = msgspec.json.encode(Notice(reason=reason)).decode()
    return f"event: {event}\nid: {at}\ndata: {data}\n\n"


def _plan_frame(line: PlanLine, entry: int) -> bytes:
    kind = "plan" if line.topic == "plans" else "transition"
    return f"event: {kind}\nid: {line.number}.{entry}\ndata: ".encode() + line.data + b"\n\n"


class EventStream(Response):
    """The response: lasts until the client disconnects, is cut, or stalls."""

    media_type = "text/event-stream"

    def __init__(
        self, client: StreamClient, options: StreamOptions, count: Callable[[int], None]
    ) -> None:
        super().__init__(headers={"Cache-Control": "no-store", "X-Accel-Buffering": "no"})
        del self.headers["content-length"]
        self._client = client
        self._options = options
        self._count = count

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = self.raw_headers
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        if scope["method"] == "HEAD":
            await send({"type": "http.response.body", "body": b""})
            return
        disconnected = asyncio.create_task(_disconnected(receive))
        sending = asyncio.create_task(self._send_chunks(send))
        self._count(1)
        try:
            await asyncio.wait({disconnected, sending}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            self._count(-1)
            for task in (disconnected, sending):
                task.cancel()
            await asyncio.wait({disconnected, sending})
        if not sending.cancelled():
            sending.result()

    async def _send_chunks(self, send: Send) -> None:
        try:
            async with contextlib.aclosing(self._client.chunks(self._options)) as chunks:
                async for chunk in chunks:
                    async with asyncio.timeout(STALLED_S):
                        await send({"type": "http.response.body", "body": chunk, "more_body": True})
        except TimeoutError:
            metrics.STREAM_CUT.inc()
            log.info("client_stalled", after_s=STALLED_S)
            return
        await send({"type": "http.response.body", "body": b""})


async def _disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
