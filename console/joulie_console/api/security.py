"""Access control and security headers.

There are no cookies and no requests that change anything (a POST only asks), so a page of another
site cannot misuse the browser's credentials. A console without a token answers only under names of
this machine: a name of another site that resolves to it (DNS rebinding) is refused. With a token,
every path needs it except those without data; the path is the one that the router matches, decoded
and without the root path.
"""

import hmac
import ipaddress
from collections.abc import Callable, Iterator
from http import HTTPStatus

import msgspec
from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from joulie_answers.schema import routes
from joulie_answers.schema.requests import TOKEN_HEADER
from joulie_answers.schema.responses import Problem
from joulie_answers.schema.routes import Route
from joulie_bus.core.http_head import Head, HeadRule, canonical_names, refusal_of_host
from joulie_bus.runtime import metrics
from joulie_console.page_files import page_files
from joulie_console.settings import ConsoleSettings, read_token

PUBLIC_PATHS = frozenset(
    {"/healthz", "/readyz", "/openapi.json", "/asyncapi.json"}
)  # besides the page's own files
# Of a query with a body. Nothing is written.
POSTED_PATHS = frozenset(
    each.path for each in vars(routes).values() if isinstance(each, Route) and each.body
)
CONTENT_SECURITY_POLICY = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self'",
        "connect-src 'self'",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
        "require-trusted-types-for 'script'",
        "trusted-types 'none'",
    )
)
HEADERS = {
    "Content-Security-Policy": CONTENT_SECURITY_POLICY,
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
}


def problem(status: int, detail: str, headers: dict[str, str] | None = None) -> Response:
    """An RFC 9457 problem. With `about:blank` the title is the phrase of the status."""
    title = HTTPStatus(status).phrase
    body = msgspec.json.encode(
        Problem(type="about:blank", title=title, status=status, detail=detail)
    )
    return Response(body, status, headers, media_type="application/problem+json")


class AccessControl:
    """Decides about a request: None allows it, a response refuses it."""

    def __init__(self, settings: ConsoleSettings) -> None:
        self._token = read_token(settings.token_file).encode() if settings.token_file else b""
        self._proxies = settings.proxies
        self._rule = HeadRule(canonical_names(()))
        self._public = PUBLIC_PATHS | page_files().keys()

    def __call__(self, request: Request) -> Response | None:
        if not (self._token or self._proxies):
            return self._refuse_unknown_host(request)
        if route_path(request.scope) in self._public:
            return None
        if self._has_token(request) or self._is_from_trusted_proxy(request):
            return None
        challenge = {"WWW-Authenticate": 'Bearer realm="joulie"'} if self._token else None
        return problem(401, " Or: ".join(self._ways()), challenge)

    def _ways(self) -> Iterator[str]:
        """What a client can do to be answered."""
        if self._token:
            yield (
                "Send the header `Authorization: Bearer TOKEN`, with the line in the file of "
                "CONSOLE_TOKEN_FILE."
            )
        if self._proxies:
            yield (
                "Send the request through a proxy of CONSOLE_PROXIES, which sets the header "
                f"{self._proxies.header}."
            )

    def _refuse_unknown_host(self, request: Request) -> Response | None:
        scope = request.scope
        found = refusal_of_host(Head(scope["method"], scope["path"], scope["headers"]), self._rule)
        if found is None:
            return None
        metrics.CONSOLE_REFUSED.labels(reason=found.reason).inc()
        return problem(found.status, found.why)

    def _has_token(self, request: Request) -> bool:
        scheme, _, bearer = request.headers.get("authorization", "").partition(" ")
        if scheme.lower() != "bearer":
            bearer = ""
        given = request.headers.get(TOKEN_HEADER, "") or bearer.strip()
        is_right = hmac.compare_digest(given.encode(), self._token)
        return bool(self._token) and is_right

    def _is_from_trusted_proxy(self, request: Request) -> bool:
        """By the address of the TCP peer: a header such as X-Forwarded-For is not evidence."""
        if self._proxies is None or request.client is None:
            return False
        try:
            peer = ipaddress.ip_address(request.client.host)
        except ValueError:
            return False
        if isinstance(peer, ipaddress.IPv6Address) and peer.ipv4_mapped:
            peer = peer.ipv4_mapped
        named = request.headers.get(self._proxies.header, "").strip()
        return bool(named) and any(peer in network for network in self._proxies.networks)


class SecurityMiddleware:
    """ASGI middleware: access control before the application, security headers after it."""

    def __init__(self, app: ASGIApp, access: Callable[[Request], Response | None]) -> None:
        self._app = app
        self._access = access

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def sending(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers[name] = value
            await send(message)

        request = Request(scope)
        answer = self._access(request)
        if answer is None and scope["method"] not in ("GET", "HEAD"):
            answer = _refuse_method(scope)
        await (answer or self._app)(scope, receive, sending)


def _refuse_method(scope: Scope) -> Response | None:
    if route_path(scope) in POSTED_PATHS and scope["method"] == "POST":
        return None
    return problem(405, "The console is read-only.", {"Allow": "GET, HEAD"})


def route_path(scope: Scope) -> str:
    """The path that Starlette's router matches: decoded, without the root path of a mount.

    Not `request.url.path`: Starlette parses that from a URL that contains the client's Host header.
    """
    path: str = scope["path"]
    root: str = scope.get("root_path", "")
    if root and (path == root or path.startswith(f"{root}/")):
        return path[len(root) :]
    return path


def etag_matches(headers: Headers, tag: str) -> bool:
    """Whether If-None-Match names the tag, by weak comparison."""
    given = headers.get("if-none-match", "")
    plain = tag.removeprefix("W/")
    return any(part.strip().removeprefix("W/") in (plain, "*") for part in given.split(","))
