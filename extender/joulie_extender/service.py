"""The running extender, which answers from its start.

Without a view it answers open and neutral, and is not ready. With a view it answers from it, even
when the broker or the database are down; once the view is stale, it answers neutral again.
"""

import asyncio
import contextlib
import time
from collections.abc import AsyncGenerator
from pathlib import Path

from joulie_bus.core.http_head import HeadRule
from joulie_bus.http.server import HttpServer, listening
from joulie_bus.log.producer import Producer
from joulie_bus.log.protocol import Log
from joulie_bus.runtime import metrics
from joulie_bus.runtime.logging import get_logger
from joulie_bus.runtime.vital_tasks import VitalTask, living
from joulie_bus.streams.subjects import Subjects
from joulie_extender.answering.extender import Extender
from joulie_extender.binding.bind import Bindings
from joulie_extender.binding.binder import Binder
from joulie_extender.binding.claim_log import ClaimLog
from joulie_extender.binding.claim_reconciler import ClaimReconciler
from joulie_extender.catalogue.declaration import declaration
from joulie_extender.catalogue.weights import Weights
from joulie_extender.current_snapshot import CurrentSnapshot
from joulie_extender.decision_log.shipping import Shipper, shipping
from joulie_extender.decision_log.spool_reports import SpoolReports
from joulie_extender.gpu.unusable import free_gpus
from joulie_extender.http.routes import PROBES, routed
from joulie_extender.settings import ServerSettings
from joulie_projections.store.database import Place
from joulie_projections.view.view import View

FLUSH_S = 8.0  # with the drained server less than a supervisor waits
MOST_MODELS = 50  # of cards, in metrics
log = get_logger("extender")


class Service:
    """The HTTP application with the snapshot it answers from and the log it writes to."""

    def __init__(
        self, shipper: Shipper, weights: Weights, server: ServerSettings, subjects: Subjects
    ) -> None:
        self._shipper = shipper
        self._weights = weights
        self._server = server
        self._subjects = subjects
        self._current_snapshot = CurrentSnapshot(weights)
        self.http_server: HttpServer | None = None
        self.extender = Extender(
            self._current_snapshot.snapshot,
            shipper.record,
            weights,
            self._current_snapshot.now_ns,
            lambda: self._current_snapshot.is_ready,
            server.fallback_policy(),
        )
        self.extender.in_flight = self._current_snapshot.in_flight
        self.extender.defer = asyncio.get_running_loop().call_soon
        shipper.spool(declaration(weights))

    def is_draining(self) -> bool:
        return self.http_server is not None and self.http_server.is_draining

    async def work(self, bus: Log, view: View, binder: Binder | None = None) -> None:
        """Runs until cancelled; then drains the server and ships the decisions that are left.

        The view stays usable when its bus is down; its age shows it.
        """
        with metrics.FREE_GPUS.computed_by(self._free_gpus):
            await self._work(bus, view, binder)

    def _free_gpus(self) -> dict[tuple[str, ...], float]:
        """Bounded, because agents and resources name the models."""
        columns = self._current_snapshot.snapshot().twin_columns
        found = sorted(free_gpus(columns, self._weights.gpu.aliases).items())
        return {
            (model, of): value
            for model, gpus in found[:MOST_MODELS]
            for of, value in (("all", gpus.free), ("unusable", gpus.unusable))
        }

    async def _work(self, bus: Log, view: View, binder: Binder | None) -> None:
        reports = SpoolReports(bus, self._subjects, self._server.replica, self._shipper)
        async with (
            self._shipper.working(bus),
            living(VitalTask.SPOOL, reports.run),
            living(VitalTask.SNAPSHOT, lambda: self._current_snapshot.follow(view)),
            self._binding(bus, view, binder),
        ):
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                if self.http_server is not None:
                    await self.http_server.drain()
                await self._shipper.drained(FLUSH_S)
                await reports.send(ends=True)
                raise

    @contextlib.asynccontextmanager
    async def _binding(
        self, bus: Log, view: View, binder: Binder | None
    ) -> AsyncGenerator[None, None]:
        """Binds pods and reconciles claims while the block runs."""
        if binder is None:
            yield
            return
        claim_log = ClaimLog(bus, self._subjects, view, self._server.replica)
        bind_timeouts = self._server.bind_timeouts()
        self.extender.bindings = Bindings(
            view, claim_log, binder, self._weights, self._current_snapshot.now_ns, bind_timeouts
        )
        claim_reconciler = ClaimReconciler(
            view, claim_log, binder, view.now_ns, 2 * bind_timeouts.bind_s
        )
        try:
            async with living(VitalTask.CLAIMS, claim_reconciler.run):
                yield
        finally:
            self.extender.bindings = None


@contextlib.asynccontextmanager
async def serving(
    subjects: Subjects,
    spool_directory: Path,
    server: ServerSettings,
    weights: Weights,
    place: Place | None = None,
) -> AsyncGenerator[Service, None]:
    """Serves HTTP while the block runs; `Service.work` connects it to a view.

    `place` is the database of the log, where it looks for its own answers.
    """
    producer = Producer(server.replica, subjects, time.time_ns)
    directory = spool_directory / server.replica
    log_of = (place, subjects) if place is not None else None
    with shipping(producer, directory, server.durability(), log_of) as shipper:
        service = Service(shipper, weights, server, subjects)
        handler = routed(service.extender, service.is_draining)
        names = server.own_names()
        rule = HeadRule(names, PROBES)
        async with listening(
            handler, server.addr, server.limits(), server.certificates(), rule
        ) as http_server:
            service.http_server = http_server
            log.info("serving", at=str(server.addr), names=sorted(names))
            yield service
