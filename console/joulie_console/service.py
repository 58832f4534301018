"""The running console: the view, the event tail, the poller and the HTTP server."""

import asyncio
import contextlib
import os
import socket
from collections.abc import AsyncGenerator
from typing import NamedTuple

import uvicorn
from starlette.applications import Starlette

from joulie_answers.answers import HistorySources
from joulie_answers.readers.energy import EnergyReader, LedgerLag, OpenEnergy
from joulie_answers.readers.facts import in_streams
from joulie_answers.readers.history import HistoryReader, OpenHistory
from joulie_bus.errors import PortTaken
from joulie_bus.log.protocol import Log
from joulie_bus.runtime.logging import get_logger
from joulie_bus.runtime.settings import HostPort
from joulie_bus.runtime.vital_tasks import VitalTask, living, vital
from joulie_bus.streams.subjects import Subjects
from joulie_console.api.app import make_app
from joulie_console.api.http_limits import BoundedProtocol
from joulie_console.api.queries import Console, ConsoleSources
from joulie_console.api.reports import ReportProgram, Reports
from joulie_console.api.security import AccessControl
from joulie_console.notify.integrity import Integrity
from joulie_console.notify.settings import NotifySettings
from joulie_console.settings import ConsoleSettings
from joulie_console.stream.event_tail import EventTail
from joulie_console.stream.poller import ClusterPoller
from joulie_console.stream.server_sent_events import StreamOptions
from joulie_console.traces.wanted import is_wanted
from joulie_extender.gpu.models import Aliases
from joulie_projections.history.history import History
from joulie_projections.store.database import Place
from joulie_projections.store.energy_lag import seconds_behind
from joulie_projections.store.energy_table import EnergyTable
from joulie_projections.view.view import View

KEEP_ALIVE_S = 30
OTHER_CONNECTIONS = 256  # besides those of the stream
DRAIN_S = 1  # streams do not end by themselves; their clients reconnect
log = get_logger("console")


class StoredData(NamedTuple):
    """How to open what is in the database, and the program that computes reports from it."""

    open_history: OpenHistory
    open_energy: OpenEnergy
    ledger_behind_s: LedgerLag
    report: ReportProgram

    @classmethod
    def at(cls, place: Place, report: ReportProgram) -> "StoredData":
        return cls(
            lambda: History.readable(place),
            lambda: EnergyTable.readable(place),
            lambda: seconds_behind(place),
            report,
        )

    def readers(self) -> tuple[HistoryReader, EnergyReader]:
        energy = EnergyReader(self.open_energy, self.ledger_behind_s)
        return HistoryReader(self.open_history), energy


class ServiceSettings(NamedTuple):
    console: ConsoleSettings
    notify: NotifySettings
    staleness_s: float
    aliases: Aliases = ()  # of models of cards


async def serve(
    bus: Log, subjects: Subjects, view: View, stored: StoredData, settings: ServiceSettings
) -> None:
    """Runs until it is cancelled."""
    own = settings.console
    history, energy = stored.readers()
    tail = EventTail(bus, history, energy)
    poller = ClusterPoller(view, tail, subjects.cluster, settings.staleness_s)
    sources = ConsoleSources(
        HistorySources.over(in_streams(bus, history), history, tail, energy),
        Reports(stored.report),
    )
    console = Console(poller, tail, sources, settings.staleness_s, settings.aliases)
    options = StreamOptions(heartbeat_s=own.heartbeat_s, max_behind=own.max_behind)
    app = make_app(console, AccessControl(own), options, own.max_clients)
    integrity = Integrity(bus, history)

    def wake(_: bytes) -> None:
        if tail.has_clients:
            tail.wakeup.set()

    try:
        async with (
            bus.listening(subjects.beat, wake),
            bus.listening(subjects.spools, poller.spools.hear),
            listening(app, own.addr, own.max_clients + OTHER_CONNECTIONS),
            contextlib.AsyncExitStack() as shutdown,
            asyncio.TaskGroup() as tasks,
        ):
            shutdown.callback(tail.close)  # streams end with a `cut` before the server stops
            log.info("serving", at=f"http://{own.addr}")
            tasks.create_task(vital(VitalTask.TAIL, tail.follow), name="tail")
            tasks.create_task(vital(VitalTask.POLL, poller.run), name="poll")
            _start_notifying(tasks, poller, integrity, subjects.cluster, settings.notify)
            _start_tracing(tasks, bus, subjects.cluster)
    finally:
        history.close()
        energy.close()


def _start_notifying(
    tasks: asyncio.TaskGroup,
    poller: ClusterPoller,
    integrity: Integrity,
    cluster: str,
    settings: NotifySettings,
) -> None:
    if not settings.url:
        return
    # Imported here: the HTTP client is 15 MB that a console without a webhook does not need.
    from joulie_console.notify.notifier import Notifier
    from joulie_console.notify.webhook import Webhook

    webhook = Webhook(settings)
    notifier = Notifier(poller, integrity, cluster, webhook)
    tasks.create_task(vital(VitalTask.NOTIFY, notifier.watch), name="notify")
    tasks.create_task(vital(VitalTask.DELIVER, webhook.deliver), name="deliver")


def _start_tracing(tasks: asyncio.TaskGroup, bus: Log, cluster: str) -> None:
    if not is_wanted(os.environ):
        return
    try:
        # The SDK is of an extra, and 20 MB of memory that a console without traces does not need.
        from joulie_console.traces.sender import TraceSender
    except ImportError as error:
        log.error("traces_not_sent", why=f"{error}: pip install 'joulie[traces]'")
        return
    tasks.create_task(vital(VitalTask.TRACES, TraceSender(bus, cluster).send), name="traces")


class _Server(uvicorn.Server):
    """uvicorn's server without its signal handlers: the process installs its own."""

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
        proxy_headers=False,  # the peer's address decides about trust: no header may change it
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
    sock = _listening_socket(at)
    has_ended = asyncio.Event()

    async def answer() -> None:
        try:
            await server.serve([sock])
        finally:
            has_ended.set()
        if server.should_exit:
            await asyncio.Event().wait()  # it was told to end

    async with living(VitalTask.HTTP, answer):
        try:
            while not server.started:
                await asyncio.sleep(0.01)
            yield
        finally:
            server.should_exit = True
            await has_ended.wait()
            sock.close()


def _listening_socket(at: HostPort) -> socket.socket:
    family = socket.AF_INET6 if ":" in at.host else socket.AF_INET
    try:
        return socket.create_server(at, family=family, backlog=2048)
    except OSError as error:
        raise PortTaken(str(at), error.strerror or str(error)) from error
