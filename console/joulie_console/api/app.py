"""The HTTP application: parses queries from URLs, calls their handlers, writes the responses."""

import time
from collections.abc import Awaitable, Callable, Mapping
from datetime import datetime
from http import HTTPStatus
from types import MappingProxyType
from typing import Any, NamedTuple

import msgspec
from starlette import routing
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.gzip import GZipMiddleware
from starlette.requests import Request
from starlette.responses import Response

from joulie_answers.schema import requests, responses, routes
from joulie_answers.schema.requests import MOST_BYTES
from joulie_answers.schema.routes import ENTRY_PARAMETER, Route
from joulie_bus.errors import BusError, NotAnswered, NotInTheLog, StoreError, TooFarBack
from joulie_bus.runtime import metrics
from joulie_bus.runtime.logging import get_logger
from joulie_bus.runtime.vital_tasks import why_not_ready
from joulie_console.api.queries import Console
from joulie_console.api.security import AccessControl, SecurityMiddleware, etag_matches, problem
from joulie_console.page_files import PageFile, page_files
from joulie_console.schema import asyncapi, openapi
from joulie_console.stream.event_tail import cursor_of
from joulie_console.stream.server_sent_events import EventStream, StreamClient, StreamOptions

API_VERSION = "1.0.0"
BODY_TYPES = ("application/yaml", "application/json")  # of a POST
MOST_READ = 16 * MOST_BYTES  # of a body that is too long: a client that still sends sees no reply
NO_BODY: Mapping[str, str] = MappingProxyType({})
GZIP_LEVEL = 4  # nearly as small as level 9, in a third of the time
log = get_logger("console")
_json = msgspec.json.Encoder().encode


class Operation(NamedTuple):
    route: Route[Any, Any]
    answer: Callable[..., Awaitable[responses.Answer]]

    @property
    def path(self) -> str:
        """In Starlette's syntax: the part that varies may contain slashes."""
        return self.route.path.replace("}", ":path}")


def operations(console: Console) -> list[Operation]:
    c = console
    return [
        Operation(routes.CLUSTER, c.cluster),
        Operation(routes.POWER, c.power),
        Operation(routes.MAP, c.map),
        Operation(routes.NODES, c.nodes),
        Operation(routes.NODE, c.node),
        Operation(routes.PODS, c.pods),
        Operation(routes.POD, c.pod),
        Operation(routes.PENDING, c.pending),
        Operation(routes.ENERGY, c.energy),
        Operation(routes.SAVED, c.saved),
        Operation(routes.WORKLOAD_REQUESTS, c.workload_requests),
        Operation(routes.REPORT, c.report),
        Operation(routes.GPUS, c.gpus),
        Operation(routes.DECISIONS, c.decisions),
        Operation(routes.DECISION, c.decision),
        Operation(routes.PLANS, c.plans),
        Operation(routes.PLAN, c.plan),
        Operation(routes.NEXT_PLAN, c.next_plan),
        Operation(routes.DEFRAGMENT, c.defragment),
        Operation(routes.PLACE, c.place),
        Operation(routes.STATUS, c.status),
        Operation(routes.HEADS, c.heads),
        Operation(routes.REACH, c.reach),
    ]


class StreamEndpoint:
    """The endpoint of the stream. Counts its clients and refuses those beyond the limit."""

    def __init__(self, console: Console, options: StreamOptions, most: int) -> None:
        self._console = console
        self._options = options
        self._most = most
        self._clients = 0
        metrics.STREAM_LISTENERS.set(0)

    async def answer(self, request: Request) -> Response:
        console = self._console
        if not console.is_ready:
            return _not_ready()
        if self._clients >= self._most:
            why = f"The limit of {self._most} clients is reached."
            return problem(503, why, {"Retry-After": "10"})
        query = read(request, requests.Stream)
        named = request.headers.get("last-event-id") or query.after
        start = cursor_of(named) if named else None
        if named and start is None:
            raise NotAnswered(400, f"{named[:80]!r} is not a stream id of the form POSITION.ENTRY.")
        await console.poller.attend()
        client = StreamClient(console.tail, console.poller, query, start)
        return EventStream(client, self._options, self._count)

    def _count(self, by: int) -> None:
        self._clients += by
        metrics.STREAM_LISTENERS.set(self._clients)


def make_app(
    console: Console, access: AccessControl, options: StreamOptions, max_clients: int
) -> Starlette:
    streams = StreamEndpoint(console, options, max_clients)
    app = Starlette(
        routes=[*_api(console, streams), *_probes(console), *_pages()],
        middleware=[
            Middleware(SecurityMiddleware, access=access),
            Middleware(GZipMiddleware, minimum_size=1000, compresslevel=GZIP_LEVEL),
        ],
        exception_handlers={
            HTTPException: _http_error,
            NotAnswered: _api_error,
            TooFarBack: _gone,
            **dict.fromkeys((BusError, NotInTheLog, StoreError), _unavailable),
            Exception: _internal_error,
        },
    )
    app.router.redirect_slashes = False  # a redirect would use the Host that the client sent
    return app


def _api(console: Console, streams: StreamEndpoint) -> list[routing.Route]:
    known = operations(console)
    served = [*(operation.route for operation in known), routes.STREAM]
    return [
        *(_route(console, operation) for operation in known),
        routing.Route(routes.STREAM.path, streams.answer),
        _document("/openapi.json", openapi.document(served, API_VERSION)),
        _document("/asyncapi.json", asyncapi.document(API_VERSION)),
    ]


def _route(console: Console, operation: Operation) -> routing.Route:
    methods = ["POST"] if operation.route.body else ["GET"]
    return routing.Route(operation.path, _endpoint(console, operation), methods=methods)


def _document(path: str, tree: dict[str, Any]) -> routing.Route:
    content = _json(tree)

    async def document(_: Request) -> Response:
        return Response(content, media_type="application/json")

    return routing.Route(path, document)


def _probes(console: Console) -> list[routing.Route]:
    async def healthz(_: Request) -> Response:
        return Response("ok\n", media_type="text/plain")

    async def readyz(_: Request) -> Response:
        why = why_not_ready() if console.is_ready else "the projection is not loaded yet"
        return Response(f"{why or 'ok'}\n", 503 if why else 200, media_type="text/plain")

    return [routing.Route("/healthz", healthz), routing.Route("/readyz", readyz)]


def _endpoint(console: Console, operation: Operation) -> Callable[[Request], Awaitable[Response]]:
    route = operation.route

    async def endpoint(request: Request) -> Response:
        if not console.is_ready:
            return _not_ready()
        started = time.perf_counter()
        content = {route.body: await body_of(request)} if route.body else {}
        query = read(request, route.query_type, content)
        await console.poller.attend()
        answer = await operation.answer(*_path_arguments(request, route), query)
        metrics.CONSOLE_SECONDS.labels(route=route.name).observe(time.perf_counter() - started)
        tag = f'W/"{answer.position}-{console.tail.entry}{answer.revision}"'
        headers = {
            **({} if route.body else {"ETag": tag}),  # a tag is of a path, not of a body
            "Cache-Control": "private, no-cache",
            "Joulie-Position": str(answer.position),
            **({} if answer.age_ms is None else {"Joulie-Age-Ms": str(answer.age_ms)}),
        }
        if not route.body and etag_matches(request.headers, tag):
            return Response(status_code=304, headers=headers)
        return Response(_json(answer), 200, headers, media_type="application/json")

    return endpoint


async def body_of(request: Request) -> str:
    """Of a POST. A page of another site cannot send these types without being asked before."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind not in BODY_TYPES:
        raise NotAnswered(415, f"Send the body with Content-Type {' or '.join(BODY_TYPES)}.")
    body, length = bytearray(), 0
    async for chunk in request.stream():
        length += len(chunk)
        if length > MOST_READ:
            break
        if length <= MOST_BYTES:
            body += chunk
    if length > MOST_BYTES:
        raise NotAnswered(413, f"The body is longer than {MOST_BYTES >> 20} MiB.")
    try:
        return body.decode()
    except UnicodeDecodeError as error:
        raise NotAnswered(400, "The body is not text in UTF-8.") from error


def read(request: Request, query_type: type[Any], content: Mapping[str, str] = NO_BODY) -> Any:
    """`content` are the fields that the body holds, and not the URL."""
    parameters = dict(request.query_params)
    if len(parameters) != len(request.query_params.multi_items()):
        raise NotAnswered(400, "A parameter occurs twice.")
    if twice := content.keys() & parameters.keys():
        raise NotAnswered(400, f"`{min(twice)}` is the body of the request, not a parameter.")
    try:
        query = msgspec.convert({**parameters, **content}, query_type, strict=False)
    except msgspec.ValidationError as error:
        raise NotAnswered(400, f"{error}.") from error
    for field in msgspec.structs.fields(query_type):
        _require_plain(parameters.get(field.encode_name, ""), field, getattr(query, field.name))
    return query


def _require_plain(text: str, field: Any, value: object) -> None:
    """Refuses what msgspec converts beyond the schema: `null` to None, numbers to times."""
    if text and value is None:
        raise NotAnswered(400, f"{text} is not a value of `{field.encode_name}`: omit it.")
    if isinstance(value, datetime) and ":" not in text:
        raise NotAnswered(
            400, f"`{field.encode_name}` must be a time such as 2026-05-04T12:00:00Z."
        )


def _path_arguments(request: Request, route: Route[Any, Any]) -> tuple[Any, ...]:
    if route.path_parameter is None:
        return ()
    name, schema = route.path_parameter
    text: str = request.path_params[name]
    if schema is not ENTRY_PARAMETER:
        return (text,)
    if not (text.isascii() and text.isdigit() and 0 < int(text[:17]) <= requests.MAX_INTEGER):
        raise NotAnswered(404, f"{text[:80]!r} is not the number of an entry.")
    return (int(text),)


def _not_ready() -> Response:
    return problem(503, "The projection is not loaded yet.", {"Retry-After": "1"})


async def _http_error(_: Request, error: Exception) -> Response:
    """The router explains an unknown path with the phrase of the status alone."""
    status = getattr(error, "status_code", 500)
    if status == HTTPStatus.NOT_FOUND:
        return problem(status, "Nothing has this path. /openapi.json lists the paths.")
    return problem(status, str(getattr(error, "detail", error)))


async def _api_error(_: Request, error: Exception) -> Response:
    return problem(getattr(error, "status", 400), str(error))


async def _gone(_: Request, error: Exception) -> Response:
    return problem(410, str(error))


async def _unavailable(_: Request, error: Exception) -> Response:
    return problem(503, str(error), {"Retry-After": "1"})


async def _internal_error(request: Request, error: Exception) -> Response:
    log.error("request_failed", path=request.url.path, error=repr(error))
    return problem(500, "The console failed; its log has the details.")


def _pages() -> list[routing.Route]:
    return [routing.Route(path, _page(file)) for path, file in page_files().items()]


def _page(file: PageFile) -> Callable[[Request], Awaitable[Response]]:
    headers = {"Cache-Control": "no-cache", "ETag": file.etag}

    async def page(request: Request) -> Response:
        if etag_matches(request.headers, file.etag):
            return Response(status_code=304, headers=headers)
        return Response(file.content, 200, headers, media_type=file.media_type)

    return page
