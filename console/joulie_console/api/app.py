"""The HTTP of it: reads questions from URLs, asks the console, writes answers."""

import time
from collections.abc import Awaitable, Callable
from datetime import datetime
from typing import Any, NamedTuple

import msgspec
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.gzip import GZipMiddleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from joulie_bus.errors import BusError, NotInTheLog, StoreError, TooFarBack
from joulie_bus.runtime import metrics
from joulie_bus.runtime.logging import get_logger
from joulie_console.api.openapi import Described, document
from joulie_console.api.queries import Console, Refused
from joulie_console.api.security import Gate, Guarded, etag_fits, problem
from joulie_console.page_files import page_files
from joulie_console.schema import requests, responses
from joulie_console.stream.event_tail import cursor_of
from joulie_console.stream.server_sent_events import EventStream, Listener, Pace

API_VERSION = "1.0.0"
GZIP_LEVEL = 4  # of the nine: nearly as small, and a third of the time
log = get_logger("console")
_json = msgspec.json.Encoder().encode

TEXT_PLACE = {"type": "string", "minLength": 1}
ENTRY_PLACE = {"type": "integer", "minimum": 1, "maximum": requests.LARGEST}


class Operation(NamedTuple):
    path: str  # as Starlette writes it
    described: Described
    answer: Callable[..., Awaitable[responses.Answer]]


def operations(console: Console) -> list[Operation]:
    q, a = requests, responses

    def plain(name: str, summary: str, question: Any, answer: Any, does: Any) -> Operation:
        path = f"/v1/{name}"
        return Operation(path, Described(path, name, summary, question, answer, None), does)

    def one(
        name: str, summary: str, question: Any, answer: Any, does: Any, place: str = "name"
    ) -> Operation:
        schema = ENTRY_PLACE if place == "entry" else TEXT_PLACE
        shown = f"/v1/{name}s/{{{place}}}"
        told = Described(shown, name, summary, question, answer, (place, schema))
        return Operation(f"/v1/{name}s/{{{place}:path}}", told, does)

    return [
        plain("cluster", "The cluster at a glance", q.Moment, a.Cluster, console.cluster),
        plain("power", "Watts over time", q.Power, a.PowerSeries, console.power),
        plain("map", "Every node, in columns", q.Moment, a.Map, console.map),
        plain("nodes", "Nodes", q.Nodes, a.NodeList, console.nodes),
        one("node", "One node: twin, history, transitions", q.Moment, a.NodeDetail, console.node),
        plain("pods", "Pods", q.Pods, a.PodList, console.pods),
        one("pod", "One pod, explained", q.Moment, a.PodDetail, console.pod, "uid"),
        plain("gpus", "GPU cards", q.Gpus, a.GpuList, console.gpus),
        plain(
            "decisions", "Decisions, newest first", q.Decisions, a.DecisionList, console.decisions
        ),
        one(
            *("decision", "One decision with its terms", q.Decision, a.DecisionDetail),
            *(console.decision, "entry"),
        ),
        plain("plans", "Plans and transitions, newest first", q.Plans, a.PlanList, console.plans),
        plain("heads", "Signed heads of the decision log", q.Heads, a.HeadList, console.heads),
        plain("reach", "How far back one can go", q.Nothing, a.Reach, console.reach),
    ]


STREAM = Described("/v1/stream", "stream", "Events as they happen", requests.Stream, None, None)


class Streams:
    """Counts the listeners, and lets no more in than there is room for."""

    def __init__(self, console: Console, pace: Pace, most: int) -> None:
        self._console = console
        self._pace = pace
        self._most = most
        self._here = 0

    async def answer(self, request: Request) -> Response:
        console = self._console
        if not console.is_ready:
            return _not_ready()
        if self._here >= self._most:
            why = f"{self._most} listeners are here already."
            return problem(503, why, {"Retry-After": "10"})
        asked = read(request, requests.Stream)
        named = request.headers.get("last-event-id") or asked.after
        start = cursor_of(named) if named else None
        if named and start is None:
            raise Refused(400, f"{named[:80]!r} is not an id of this stream: POSITION.ENTRY.")
        listener = Listener(console.journal, console.pulse, asked, start)
        return EventStream(listener, self._pace, self._count)

    def _count(self, by: int) -> None:
        self._here += by
        metrics.STREAM_LISTENERS.set(self._here)


def make_app(console: Console, gate: Gate, pace: Pace, most_listeners: int) -> Starlette:
    known = operations(console)
    described = [*(operation.described for operation in known), STREAM]
    api = _json(document(described, API_VERSION))

    async def openapi(_: Request) -> Response:
        return Response(api, media_type="application/json")

    async def healthz(_: Request) -> Response:
        return Response("ok\n", media_type="text/plain")

    async def readyz(_: Request) -> Response:
        if console.is_ready:
            return Response("ok\n", media_type="text/plain")
        return Response("the projection is not loaded yet\n", 503, media_type="text/plain")

    streams = Streams(console, pace, most_listeners)
    app = Starlette(
        routes=[
            *(Route(operation.path, _endpoint(console, operation)) for operation in known),
            Route(STREAM.path, streams.answer),
            Route("/openapi.json", openapi),
            Route("/healthz", healthz),
            Route("/readyz", readyz),
            *_pages(),
        ],
        middleware=[
            Middleware(Guarded, gate=gate),
            Middleware(GZipMiddleware, minimum_size=1000, compresslevel=GZIP_LEVEL),
        ],
        exception_handlers={
            HTTPException: _http_error,
            Refused: _refused,
            TooFarBack: _gone,
            **dict.fromkeys((BusError, NotInTheLog, StoreError), _away),
            Exception: _bug,
        },
    )
    app.router.redirect_slashes = False  # it would redirect to whatever name the client sent
    return app


def _endpoint(console: Console, operation: Operation) -> Callable[[Request], Awaitable[Response]]:
    described = operation.described

    async def endpoint(request: Request) -> Response:
        if not console.is_ready:
            return _not_ready()
        started = time.perf_counter()
        asked = read(request, described.question)
        answer = await operation.answer(asked, *_place(request, described))
        metrics.CONSOLE_SECONDS.labels(route=described.name).observe(time.perf_counter() - started)
        tag = f'W/"{answer.position}-{console.journal.entry}"'
        headers = {
            "ETag": tag,
            "Cache-Control": "private, no-cache",
            "Joulie-Position": str(answer.position),
            "Joulie-Age-Ms": str(answer.age_ms),
        }
        if etag_fits(request.headers, tag):
            return Response(status_code=304, headers=headers)
        return Response(_json(answer), 200, headers, media_type="application/json")

    return endpoint


def read(request: Request, question: type[Any]) -> Any:
    given = dict(request.query_params)
    if len(given) != len(request.query_params.multi_items()):
        raise Refused(400, "A parameter is given twice.")
    try:
        asked = msgspec.convert(given, question, strict=False)
    except msgspec.ValidationError as error:
        raise Refused(400, f"{error}.") from error
    for field in msgspec.structs.fields(question):
        _require_plain(given.get(field.encode_name, ""), field, getattr(asked, field.name))
    return asked


def _require_plain(text: str, field: Any, value: object) -> None:
    """msgspec takes the word null for nothing, and a number for a time; a URL should not."""
    if text and value is None:
        raise Refused(400, f"{text} is no value of `{field.encode_name}`: leave it out.")
    if isinstance(value, datetime) and ":" not in text:
        raise Refused(400, f"`{field.encode_name}` is a time such as 2026-05-04T12:00:00Z.")


def _place(request: Request, described: Described) -> tuple[Any, ...]:
    if described.place is None:
        return ()
    name, schema = described.place
    text: str = request.path_params[name]
    if schema is not ENTRY_PLACE:
        return (text,)
    if not (text.isascii() and text.isdigit() and 0 < int(text[:17]) <= requests.LARGEST):
        raise Refused(404, f"{text[:80]!r} is not a number of an entry.")
    return (int(text),)


def _not_ready() -> Response:
    return problem(503, "The projection is not loaded yet.", {"Retry-After": "1"})


async def _http_error(_: Request, error: Exception) -> Response:
    status = getattr(error, "status_code", 500)
    return problem(status, str(getattr(error, "detail", error)))


async def _refused(_: Request, error: Exception) -> Response:
    return problem(getattr(error, "status", 400), str(error))


async def _gone(_: Request, error: Exception) -> Response:
    return problem(410, str(error))


async def _away(_: Request, error: Exception) -> Response:
    return problem(503, str(error), {"Retry-After": "1"})


async def _bug(request: Request, error: Exception) -> Response:
    log.error("not_answered", path=request.url.path, error=repr(error))
    return problem(500, "The console's log says more.")


def _pages() -> list[Route]:
    return [Route(path, _page(*file)) for path, file in page_files().items()]


def _page(content: bytes, kind: str) -> Callable[[Request], Awaitable[Response]]:
    async def page(_: Request) -> Response:
        return Response(content, 200, {"Cache-Control": "no-cache"}, media_type=kind)

    return page
