"""The running extender: its view, its two listeners, and the shipping of decisions."""

import asyncio
import contextlib
import socket
import time
from collections.abc import AsyncGenerator
from pathlib import Path

import uvicorn
from starlette.applications import Starlette

from joulie_bus import metrics
from joulie_bus.errors import BusError, PortTaken
from joulie_bus.events import DecisionEntry
from joulie_bus.log import Log
from joulie_bus.logging import get_logger
from joulie_bus.producer import Producer
from joulie_bus.settings import HostPort
from joulie_bus.subjects import Subjects
from joulie_extender.app import Extender, make_app
from joulie_extender.decide import declaration
from joulie_extender.settings import ScoringSettings, ServerSettings
from joulie_extender.spool import Spool
from joulie_projections.view import View

KEEP_ALIVE_S = 120  # longer than kube-scheduler's own 90 s: who closes first must not be us
SHIP_AT_ONCE = 500
RETRY_S = 1.0
DRAIN_S = 3
log = get_logger("extender")


class Shipper:
    """Takes decisions in, keeps them safe, and gets them into the log, in order."""

    def __init__(self, producer: Producer, spool: Spool) -> None:
        self._producer = producer
        self._spool = spool
        self._news = asyncio.Event()
        self._news.set()  # what the last life left behind is news to the broker

    def record(self, entry: DecisionEntry) -> None:
        """Never stops scheduling: what cannot be kept is counted, and its number stays a hole."""
        try:
            self._spool.append(self._producer.stamp(entry, corr=entry.key))
        except OSError as error:
            metrics.DECISIONS_DROPPED.inc()
            log.error("decision_dropped", error=str(error), pod=entry.key)
        self._news.set()

    async def ship(self, bus: Log) -> None:
        """For ever. What the broker refuses stays in the spool and is tried again."""
        while True:
            await self._news.wait()
            self._news.clear()
            while not self._spool.is_empty:
                messages, place = self._spool.unshipped(SHIP_AT_ONCE)
                metrics.SPOOLED.set(len(messages))
                try:
                    await bus.publish(messages)
                except BusError as error:
                    log.error("not_shipped", error=str(error), what="kept and tried again")
                    await asyncio.sleep(RETRY_S)
                    continue
                self._spool.shipped(place)
            metrics.SPOOLED.set(0)

    async def drained(self, patience_s: float) -> None:
        """At a clean end: give the broker a moment to take what is left; the rest stays on disk."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(patience_s):
                while not self._spool.is_empty:
                    await asyncio.sleep(0.02)


async def serve(
    bus: Log,
    subjects: Subjects,
    view: View,
    spool_directory: Path,
    server: ServerSettings,
    scoring: ScoringSettings,
) -> None:
    """Until cancelled; then answers what has begun, closes the doors, ships what it decided."""
    weights = scoring.weights()
    spool = Spool(spool_directory / server.replica)
    shipper = Shipper(Producer(server.replica, subjects, time.time_ns), spool)
    shipper.record(declaration(weights))
    extender = Extender(view.snapshot, shipper.record, weights, time.time_ns)
    app = make_app(extender, lambda: view.is_ready, server.body_limit)
    shipping = asyncio.create_task(shipper.ship(bus), name="ship")
    try:
        async with listening(app, server.addr):
            log.info("serving", at=str(server.addr))
            await asyncio.shield(shipping)
    finally:
        await shipper.drained(DRAIN_S)
        shipping.cancel()
        spool.close()


class _Server(uvicorn.Server):
    """Signals are the process's business, not a library's."""

    @contextlib.contextmanager
    def capture_signals(self):  # type: ignore[no-untyped-def]
        yield


@contextlib.asynccontextmanager
async def listening(app: Starlette, at: HostPort) -> AsyncGenerator[None, None]:
    config = uvicorn.Config(
        app,
        log_level="warning",
        access_log=False,
        timeout_keep_alive=KEEP_ALIVE_S,
        timeout_graceful_shutdown=DRAIN_S,
        http="httptools",
        ws="none",
        lifespan="off",
        server_header=False,
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
        return socket.create_server(at, family=family, backlog=1024)
    except OSError as error:
        raise PortTaken(str(at), error.strerror or str(error)) from error
