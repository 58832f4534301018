"""Who may look, and what a browser may do with what it got.

There is no cookie and nothing that changes anything, so another site's page has nothing to make a
browser do. A console without a token answers only under names of this machine: a name of somebody
else's that points here (DNS rebinding) is refused.
"""

import hmac
import ipaddress
from collections.abc import Callable

import msgspec
from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from joulie_console.answers import Problem
from joulie_console.settings import ConsoleSettings, is_loopback, read_token

OPEN = ("/healthz", "/readyz", "/openapi.json")
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
TITLES = {
    400: "The question is not one",
    401: "Who asks?",
    403: "Not from there",
    404: "Not here",
    405: "Only looking is possible",
    410: "Too far back",
    421: "Not under that name",
    500: "Our mistake",
    503: "Not now",
}


def problem(status: int, detail: str, headers: dict[str, str] | None = None) -> Response:
    told = Problem(type="about:blank", title=TITLES[status], status=status, detail=detail)
    return Response(
        msgspec.json.encode(told), status, headers, media_type="application/problem+json"
    )


class Gate:
    """Decides about one request: None lets it pass."""

    def __init__(self, settings: ConsoleSettings) -> None:
        self._token = read_token(settings.token_file).encode() if settings.token_file else b""
        self._header = settings.proxy_header
        self._proxies = settings.proxies
        self._hosts = settings.hosts

    def __call__(self, request: Request) -> Response | None:
        if not (self._token or self._header):
            return self._refuse_strange_names(request)
        if not request.url.path.startswith("/v1/") or request.url.path in OPEN:
            return None  # the page itself holds no data: it asks for the token
        if self._has_token(request) or self._is_vouched_for(request):
            return None
        ways = {"WWW-Authenticate": 'Bearer realm="joulie"'} if self._token else None
        return problem(401, "Bring the token as `Authorization: Bearer ...`.", ways)

    def _refuse_strange_names(self, request: Request) -> Response | None:
        name = host_of(request.headers.get("host", ""))
        if is_loopback(name) or name in self._hosts:
            return None
        return problem(421, "This console answers under names of its own machine (CONSOLE_HOSTS).")

    def _has_token(self, request: Request) -> bool:
        scheme, _, given = request.headers.get("authorization", "").partition(" ")
        is_right = hmac.compare_digest(given.strip().encode(), self._token)
        return bool(self._token) and scheme.lower() == "bearer" and is_right

    def _is_vouched_for(self, request: Request) -> bool:
        """By the peer itself: what a header says of where a request came from counts nothing."""
        if not self._header or request.client is None:
            return False
        try:
            peer = ipaddress.ip_address(request.client.host)
        except ValueError:
            return False
        if isinstance(peer, ipaddress.IPv6Address) and peer.ipv4_mapped:
            peer = peer.ipv4_mapped
        named = request.headers.get(self._header, "").strip()
        return bool(named) and any(peer in network for network in self._proxies)


class Guarded:
    """ASGI middleware: the gate before, the headers behind."""

    def __init__(self, app: ASGIApp, gate: Callable[[Request], Response | None]) -> None:
        self._app = app
        self._gate = gate

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def sending(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers[name] = value
            await send(message)

        request = Request(scope)
        answer = self._gate(request)
        if answer is None and scope["method"] not in ("GET", "HEAD"):
            answer = problem(405, "The console only shows.", {"Allow": "GET, HEAD"})
        await (answer or self._app)(scope, receive, sending)


def host_of(header: str) -> str:
    """Without the port."""
    if header.startswith("["):
        return header[1:].partition("]")[0]
    return header.rpartition(":")[0] or header


def etag_fits(headers: Headers, tag: str) -> bool:
    """If-None-Match, weakly compared."""
    given = headers.get("if-none-match", "")
    plain = tag.removeprefix("W/")
    return any(part.strip().removeprefix("W/") in (plain, "*") for part in given.split(","))
