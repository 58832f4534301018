"""The running console: its view, its journal, its listeners, its door."""

import asyncio
import contextlib
import socket
import time
from collections.abc import AsyncGenerator

import uvicorn
from starlette.applications import Starlette

from joulie_bus.errors import PortTaken
from joulie_bus.runtime.logging import get_logger
from joulie_bus.runtime.settings import HostPort
from joulie_bus.streams.log import Log
from joulie_bus.streams.subjects import Subjects
from joulie_console.api.app import make_app
from joulie_console.api.http_limits import BoundedProtocol
from joulie_console.api.queries import Console, Older
from joulie_console.api.security import Gate
from joulie_console.settings import ConsoleSettings
from joulie_console.stream.event_tail import Journal
from joulie_console.stream.plans import PlanPages
from joulie_console.stream.poller import Pulse
from joulie_console.stream.server_sent_events import Pace
from joulie_console.views.cluster_view import names_by_id
from joulie_console.views.past import Opening, Past
from joulie_console.views.time_travel import Travel
from joulie_projections.view.view import View

KEEP_ALIVE_S = 30
OTHERS = 256  # connections beside those that listen to the stream
DRAIN_S = 1  # listeners never end by themselves; they come back to the next life
log = get_logger("console")


async def serve(
    bus: Log,
    subjects: Subjects,
    view: View,
    opening: Opening,
    settings: ConsoleSettings,
    staleness_s: float,
) -> None:
    """For ever."""
    past = Past(opening)
    journal = Journal(bus, past, lambda: names_by_id(view.cluster_state))
    pulse = Pulse(view, journal, subjects.cluster, staleness_s)
    older = Older(past, Travel(bus, past), PlanPages(bus, past, journal))
    console = Console(pulse, journal, older, time.time_ns, staleness_s)
    pace = Pace(heartbeat_s=settings.heartbeat_s, behind=settings.behind)
    app = make_app(console, Gate(settings), pace, settings.listeners)

    def ring(_: bytes) -> None:
        journal.bell.set()

    try:
        async with (
            bus.listening(subjects.beat, ring),
            listening(app, settings.addr, settings.listeners + OTHERS),
            contextlib.AsyncExitStack() as before,
            asyncio.TaskGroup() as tasks,
        ):
            before.callback(journal.close)  # listeners leave by themselves, not with the door
            log.info("showing", at=f"http://{settings.addr}")
            tasks.create_task(journal.follow(), name="journal")
            tasks.create_task(pulse.beat(), name="pulse")
    finally:
        past.close()


class _Server(uvicorn.Server):
    """Signals are the process's business, not a library's."""

    @contextlib.contextmanager
    def capture_signals(self):  # type: ignore[no-untyped-def]
        yield


@contextlib.asynccontextmanager
async def listening(
    app: Starlette, at: HostPort, most_connections: int
) -> AsyncGenerator[None, None]:
    config = uvicorn.Config(
        app,
        log_level="error",
        access_log=False,
        proxy_headers=False,  # who the peer is decides about trust: no header may change it
        timeout_keep_alive=KEEP_ALIVE_S,
        timeout_graceful_shutdown=DRAIN_S,
        http=BoundedProtocol,
        limit_concurrency=most_connections,
        ws="none",
        lifespan="off",
        server_header=False,
        backlog=2048,
    )
    server = _Server(config)
    door = _open_door(at)
    running = asyncio.create_task(server.serve([door]), name=f"http {at}")
    try:
        while not server.started and not running.done():
            await asyncio.sleep(0.01)
        yield
    finally:
        server.should_exit = True
        await running
        door.close()


def _open_door(at: HostPort) -> socket.socket:
    family = socket.AF_INET6 if ":" in at.host else socket.AF_INET
    try:
        return socket.create_server(at, family=family, backlog=2048)
    except OSError as error:
        raise PortTaken(str(at), error.strerror or str(error)) from error
