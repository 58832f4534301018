"""The HTTP server of METRICS_ADDR: few threads, a timeout per request, no access log."""

import contextlib
import socket
import threading
from collections.abc import Callable, Iterable
from typing import Any
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

from prometheus_client.exposition import ThreadingWSGIServer

from joulie_bus.core.http_head import Head, HeadRule, is_loopback, refusal_of_host

THREADS = 64  # Prometheus and the kubelet need two; connections beyond are closed at once
REQUEST_S = 10.0  # for a whole request and its reply
Application = Callable[[dict[str, Any], Callable[..., Any]], Iterable[bytes]]
_TEXT = [("Content-Type", "text/plain; charset=utf-8")]


def listener(host: str, port: int, application: Application) -> WSGIServer:
    """Bound, and not yet serving. On loopback it accepts only host names of this machine, which
    keeps pages in a browser from reading it through a name of their own.
    """
    guarded = _guarded(application) if is_loopback(host) else application
    return make_server(host, port, guarded, _BoundedServer, _QuietHandler)


def _guarded(application: Application) -> Application:
    def answer(environ: dict[str, Any], start: Callable[..., Any]) -> Iterable[bytes]:
        given = environ.get("HTTP_HOST")
        fields = [] if given is None else [(b"host", given.encode("latin-1"))]
        head = Head(environ["REQUEST_METHOD"], environ["PATH_INFO"], fields)
        refused = refusal_of_host(head, HeadRule()) if fields else None
        if refused is None:
            return application(environ, start)
        start(f"{refused.status} Refused", _TEXT)
        return [f"{refused.why}\n".encode()]

    return answer


class _BoundedServer(ThreadingWSGIServer):
    def __init__(self, *args: Any, **more: Any) -> None:
        super().__init__(*args, **more)
        self._free = threading.BoundedSemaphore(THREADS)

    def process_request(self, request: Any, client_address: Any) -> None:
        if self._free.acquire(blocking=False):
            super().process_request(request, client_address)
        else:
            self.shutdown_request(request)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        end = threading.Timer(REQUEST_S, _cut, [request])
        end.daemon = True
        end.start()
        try:
            super().process_request_thread(request, client_address)
        finally:
            end.cancel()
            self._free.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignores connections that were cut or closed by the client."""


def _cut(request: socket.socket) -> None:
    with contextlib.suppress(OSError):
        request.shutdown(socket.SHUT_RDWR)


class _QuietHandler(WSGIRequestHandler):
    def log_message(self, format: str, *args: Any) -> None:
        """Logs nothing: probes come every few seconds."""
