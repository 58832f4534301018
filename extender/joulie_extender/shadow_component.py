"""answer for pods that another scheduler places; changes nothing in the cluster.

joulie shadow --data /srv/joulie
"""

import argparse
import asyncio
import time
from collections.abc import Callable
from functools import partial

from joulie_bus.errors import BusError
from joulie_bus.events import FilterDecided
from joulie_bus.log.producer import Producer
from joulie_bus.runtime.logging import get_logger
from joulie_bus.runtime.vital_tasks import VitalTask, vital
from joulie_bus.streams.roles import Role
from joulie_extender.catalogue.declaration import declaration
from joulie_extender.decision_log.shipping import Shipper, shipping
from joulie_extender.service import FLUSH_S
from joulie_extender.settings import ScoringSettings, ServerSettings
from joulie_extender.shadow import REPLICA, Shadow
from joulie_projections.catalog_file import CatalogSettings, GpuResourceSettings
from joulie_projections.component.opening import history_in
from joulie_projections.component.process import serve_part
from joulie_projections.component.wiring import Wiring
from joulie_projections.history.history import EntryQuery
from joulie_projections.view.viewing import viewing

SETTINGS = (ServerSettings, ScoringSettings, CatalogSettings, GpuResourceSettings)
RETRY_S = 1.0
log = get_logger("shadow")


def run(_: argparse.Namespace, wires: Wiring) -> int:
    return serve_part(wires, "shadow", _answer(wires))


async def _answer(wires: Wiring) -> None:
    """Runs until cancelled. Decisions that the broker does not take stay in the spool."""
    load = wires.source.load
    resources = load(GpuResourceSettings).resources
    weights = load(ScoringSettings).weights(load(CatalogSettings).catalog, resources)
    wires.data.require()
    directory = load(ServerSettings).spool_in(wires.data.spool) / REPLICA
    producer = Producer(REPLICA, wires.subjects, time.time_ns)
    log_of = wires.data.database, wires.subjects
    with shipping(producer, directory, log_of=log_of) as shipper:
        shipper.record(declaration(weights))
        while True:
            try:
                async with (
                    viewing(wires, Role.EXTENDER) as (bus, view),
                    shipper.working(bus),
                ):
                    shadow = partial(Shadow, view, shipper, weights, view.now_ns)
                    follow = partial(_follow, shadow, shipper, wires)
                    await vital(VitalTask.SHADOW, follow)
            except BusError as error:
                log.error("no_view", error=str(error), what="retries")
                await asyncio.sleep(RETRY_S)


async def _follow(shadow: Callable[[set[str]], Shadow], shipper: Shipper, wires: Wiring) -> None:
    try:
        await shadow(_answered(wires)).follow()
    except asyncio.CancelledError:
        await shipper.drained(FLUSH_S)
        raise


def _answered(wires: Wiring) -> set[str]:
    """The pods with an answer in the log: a restart answers for those that came since."""
    with history_in(wires.data) as history:
        entries = history.find(EntryQuery(kinds=(FilterDecided.TYPE,)))
        return {entry.pod_uid for entry in entries}
