"""An HTTP server on loopback with a handler of the test."""

import asyncio
import contextlib
import ssl
from collections.abc import AsyncGenerator, Awaitable, Callable

from aiohttp import web

from joulie_bus.runtime.ports import free_port

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


@contextlib.asynccontextmanager
async def serving(
    answer: Handler, port: int = 0, tls: ssl.SSLContext | None = None
) -> AsyncGenerator[str, None]:
    """Answers every request by this handler while the block runs, at this port or a free one."""
    app, port = web.Application(), port or free_port()
    app.router.add_route("*", "/{path:.*}", answer)
    runner = web.AppRunner(app, shutdown_timeout=0.2, access_log=None)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", port, ssl_context=tls).start()
        yield f"http{'s' if tls else ''}://127.0.0.1:{port}"
    finally:
        await runner.cleanup()


async def endless(request: web.Request) -> web.StreamResponse:
    """Answers with a body that never ends."""
    response = web.StreamResponse()
    await response.prepare(request)
    while True:
        await response.write(b"x" * 4096)
        await asyncio.sleep(0)  # with TLS, a write alone never gives way to the client
