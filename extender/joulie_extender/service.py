"""The running extender: it answers from its first moment, and ever better.

Without a view it is open and neutral, and not ready. With one it answers from it, also when the
broker or the database are gone: by age, and past the staleness bound neutral again.
"""

import asyncio
import contextlib
import time
from collections.abc import AsyncGenerator
from pathlib import Path

from joulie_bus.runtime.http_head import HeadRule
from joulie_bus.runtime.logging import get_logger
from joulie_bus.runtime.tasks import background
from joulie_bus.streams.log import Log
from joulie_bus.streams.producer import Producer
from joulie_bus.streams.subjects import Subjects
from joulie_extender.binding.bind import Bindings
from joulie_extender.binding.binder import Binder
from joulie_extender.binding.claim_log import Ledger
from joulie_extender.binding.claim_reconciler import Caretaker
from joulie_extender.current_snapshot import CurrentSnapshot
from joulie_extender.decide.decide import declaration
from joulie_extender.decide.scoring import Weights
from joulie_extender.decision_log.shipping import Shipper
from joulie_extender.decision_log.spool import Spool
from joulie_extender.http.app import Extender
from joulie_extender.http.routes import PROBES, routed
from joulie_extender.http.server import Door, listening
from joulie_extender.settings import ServerSettings
from joulie_projections.view.view import View

FAREWELL_S = 3.0
log = get_logger("extender")


class Service:
    """What answers, and what it looks at."""

    def __init__(
        self, shipper: Shipper, weights: Weights, server: ServerSettings, subjects: Subjects
    ) -> None:
        self._shipper = shipper
        self._weights = weights
        self._server = server
        self._subjects = subjects
        self._lookout = CurrentSnapshot(weights)
        self.door: Door | None = None
        self.extender = Extender(
            self._lookout.snapshot,
            shipper.record,
            weights,
            time.time_ns,
            lambda: self._lookout.is_ready,
            server.conduct(),
        )
        self.extender.later = asyncio.get_running_loop().call_soon
        shipper.record(declaration(weights))

    def is_draining(self) -> bool:
        return self.door is not None and self.door.is_draining

    async def work(self, bus: Log, view: View, binder: Binder | None = None) -> None:
        """Until cancelled; then sees everybody out and ships what was decided meanwhile.

        The view stays, whatever becomes of its bus: its age tells.
        """
        async with (
            background(self._shipper.ship(bus), "ship"),
            background(self._lookout.follow(view), "boards"),
            self._binding(bus, view, binder),
        ):
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                if self.door is not None:
                    await self.door.drain()
                await self._shipper.drained(FAREWELL_S)
                raise

    @contextlib.asynccontextmanager
    async def _binding(
        self, bus: Log, view: View, binder: Binder | None
    ) -> AsyncGenerator[None, None]:
        """While the block lasts pods are bound, and their claims tended to."""
        if binder is None:
            yield
            return
        ledger = Ledger(bus, self._subjects, view, self._server.replica)
        patience = self._server.patience()
        self.extender.bindings = Bindings(
            view, ledger, binder, self._weights, time.time_ns, patience
        )
        caretaker = Caretaker(view, ledger, binder, time.time_ns, 2 * patience.bind_s)
        try:
            async with background(caretaker.run(), "claims"):
                yield
        finally:
            self.extender.bindings = None


@contextlib.asynccontextmanager
async def serving(
    subjects: Subjects, spool_directory: Path, server: ServerSettings, weights: Weights
) -> AsyncGenerator[Service, None]:
    """Listens for as long as the block lasts; `Service.work` gives it something to look at."""
    with contextlib.closing(Spool(spool_directory / server.replica)) as spool:
        producer = Producer(server.replica, subjects, time.time_ns)
        service = Service(Shipper(producer, spool, server.durability()), weights, server, subjects)
        handler = routed(service.extender, service.is_draining)
        rule = HeadRule(server.own_names(), PROBES)
        async with listening(
            handler, server.addr, server.limits(), server.certificates(), rule
        ) as door:
            service.door = door
            log.info("serving", at=str(server.addr), names=sorted(rule.names))
            yield service
