"""Server-sent events: every listener reads the journal at its own pace, from where it left off.

`id` names both logs (`POSITION.ENTRY`), so that whoever comes back with it hears everything once.
Decisions, plans and transitions are such lines. `cluster` and `map` are states: the newest counts,
and they carry no id.
"""

import asyncio
import contextlib
import time
from collections.abc import AsyncGenerator, Callable

import msgspec
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from joulie_bus.runtime import metrics
from joulie_bus.runtime.logging import get_logger
from joulie_console.schema.requests import Stream
from joulie_console.stream.event_tail import Cursor, DecisionLine, Journal, decision_frame
from joulie_console.stream.poller import Pulse
from joulie_console.views.plan_text import PlanLine

RETRY_MS = 1_000
SLOW_S = 0.5  # whoever takes longer for one piece holds himself up
STALLED_S = 20.0  # one piece that nobody takes for so long ends the connection
STOPS = "this console stops: come back to the next"
log = get_logger("console")


class Pace(msgspec.Struct, frozen=True, kw_only=True):
    """How patient the stream is with its listeners."""

    heartbeat_s: float = 15.0
    behind: int = 5_000  # lines that a listener who is slow may be behind


class Listener:
    """One connection."""

    def __init__(self, journal: Journal, pulse: Pulse, asked: Stream, start: Cursor | None) -> None:
        self._journal = journal
        self._pulse = pulse
        self._asked = asked
        self._topics = frozenset(asked.topics.split(","))
        self._at = start or journal.cursor
        self._summary = b""
        self._step = pulse.step.number
        self._is_slow = False

    async def pieces(self, pace: Pace) -> AsyncGenerator[bytes, None]:
        with self._journal.heard():
            yield f"retry: {RETRY_MS}\n{self._opening()}".encode()
            while True:
                turn = self._journal.turn
                if self._journal.is_closing:
                    yield _frame("cut", STOPS, self._at).encode()
                    return
                if self._is_cut(pace):
                    yield self._cut(pace)
                    return
                if piece := await self._next():
                    given = time.monotonic()
                    yield piece
                    self._is_slow = time.monotonic() - given > SLOW_S
                    continue
                try:
                    async with asyncio.timeout(pace.heartbeat_s):
                        await turn.wait()
                except TimeoutError:
                    yield f": still here\nid: {self._at}\n\n".encode()

    def _opening(self) -> str:
        """Says at once where we are; and, to who comes back, what cannot be had any more."""
        newest, first = self._journal.cursor, self._journal.first_plan
        if self._at.entry > newest.entry or self._at.position > max(newest.position, first):
            gone, self._at = self._at, newest
            why = f"{gone} has not come yet here: this is another log than the one you heard"
            return _frame("gap", why, self._at)
        is_late = self._journal.forgets_plans and self._at.position < first - 1
        if is_late and self._topics & {"plans", "transitions"}:
            why = (
                f"plans before position {first} are not streamed: /v1/plans?before={first} has them"
            )
            return _frame("gap", why, self._at)
        return f"id: {self._at}\n\n"

    async def _next(self) -> bytes:
        return b"".join([self._plans(), await self._decisions(), self._states()])

    def _plans(self) -> bytes:
        lines = self._journal.plans_after(self._at.position)
        if not lines:
            return b""
        wanted = [line for line in lines if self._wants_plan(line)]
        piece = b"".join(_plan_frame(line, self._at.entry) for line in wanted)
        self._at = Cursor(lines[-1].number, self._at.entry)
        return piece

    def _wants_plan(self, line: PlanLine) -> bool:
        return line.topic in self._topics and self._asked.node in ("", line.node)

    async def _decisions(self) -> bytes:
        before = self._at
        lines = await self._journal.decisions_after(before.entry)
        if not lines:
            return b""
        self._at = Cursor(before.position, lines[-1].number)
        if "decisions" not in self._topics:
            return b""
        if self._is_plain:
            return self._journal.piece(before.position, lines)
        wanted = [line for line in lines if self._wants(line)]
        return b"".join(decision_frame(line, before.position) for line in wanted)

    @property
    def _is_plain(self) -> bool:
        asked = self._asked
        return not (asked.pod or asked.node or asked.verb or asked.workload)

    def _wants(self, line: DecisionLine) -> bool:
        asked, brief = self._asked, line.brief
        return (
            asked.pod in ("", f"{brief.namespace}/{brief.name}")
            and asked.verb in (None, brief.verb)
            and asked.workload in (None, brief.workload)
            and (not asked.node or asked.node in line.nodes)
        )

    def _states(self) -> bytes:
        parts = []
        if "cluster" in self._topics and self._pulse.summary is not self._summary:
            self._summary = self._pulse.summary
            parts.append(b"event: cluster\ndata: " + self._summary + b"\n\n")
        step = self._pulse.step
        if "map" in self._topics and step.number != self._step:
            missed = step.number != self._step + 1
            self._step = step.number
            data = b'{"reload":true}' if missed else step.data
            parts.append(b"event: map\ndata: " + data + b"\n\n")
        return b"".join(parts)

    def _is_cut(self, pace: Pace) -> bool:
        """Behind, and because of himself: what comes all at once is nobody's fault."""
        return self._is_slow and self._journal.entry - self._at.entry > pace.behind

    def _cut(self, pace: Pace) -> bytes:
        behind = self._journal.entry - self._at.entry
        metrics.STREAM_CUT.inc()
        why = (
            f"you are {behind} decisions behind, more than {pace.behind}: read faster or ask for "
            f"less; come back with Last-Event-ID {self._at} and nothing is lost"
        )
        return _frame("cut", why, self._at).encode()


def _frame(event: str, reason: str, at: Cursor) -> str:
    data = msgspec.json.encode({"reason": reason}).decode()
    return f"event: {event}\nid: {at}\ndata: {data}\n\n"


def _plan_frame(line: PlanLine, entry: int) -> bytes:
    kind = "plan" if line.topic == "plans" else "transition"
    return f"event: {kind}\nid: {line.number}.{entry}\ndata: ".encode() + line.data + b"\n\n"


class EventStream(Response):
    """Until the listener leaves, is cut, or takes nothing any more."""

    media_type = "text/event-stream"

    def __init__(self, listener: Listener, pace: Pace, count: Callable[[int], None]) -> None:
        super().__init__(headers={"Cache-Control": "no-store", "X-Accel-Buffering": "no"})
        del self.headers["content-length"]
        self._listener = listener
        self._pace = pace
        self._count = count

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = self.raw_headers
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        if scope["method"] == "HEAD":
            await send({"type": "http.response.body", "body": b""})
            return
        left = asyncio.create_task(_disconnected(receive))
        told = asyncio.create_task(self._tell(send))
        self._count(1)
        try:
            await asyncio.wait({left, told}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            self._count(-1)
            for task in (left, told):
                task.cancel()
            await asyncio.wait({left, told})
        if not told.cancelled():
            told.result()

    async def _tell(self, send: Send) -> None:
        try:
            async with contextlib.aclosing(self._listener.pieces(self._pace)) as pieces:
                async for piece in pieces:
                    async with asyncio.timeout(STALLED_S):
                        await send({"type": "http.response.body", "body": piece, "more_body": True})
        except TimeoutError:
            metrics.STREAM_CUT.inc()
            log.info("listener_stalled", after_s=STALLED_S)
            return
        await send({"type": "http.response.body", "body": b""})


async def _disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
