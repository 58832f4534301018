"""answer kube-scheduler's filter, prioritize and bind calls.

joulie extender --data /srv/joulie
"""

import argparse
import asyncio
import contextlib
from collections.abc import AsyncGenerator

from joulie_bus.errors import BusError
from joulie_bus.runtime.logging import get_logger
from joulie_bus.streams.roles import Role
from joulie_extender.binding.binder import Binder
from joulie_extender.binding.simulated_binder import SimulatedBinder
from joulie_extender.service import serving
from joulie_extender.settings import ScoringSettings, ServerSettings
from joulie_projections.catalog_file import CatalogSettings, GpuResourceSettings
from joulie_projections.component.opening import await_migration
from joulie_projections.component.process import serve_part
from joulie_projections.component.wiring import Wiring
from joulie_projections.view.view import View
from joulie_projections.view.viewing import viewing

SETTINGS = (ServerSettings, ScoringSettings, CatalogSettings, GpuResourceSettings)
SIMULATED = "simulated"
RETRY_S = 1.0
log = get_logger("extender")


def run(_: argparse.Namespace, wires: Wiring) -> int:
    await_migration(wires)
    return serve_part(wires, "extender", _answer(wires), fast=True)


async def _answer(wires: Wiring) -> None:
    """Listen at once; retry until the broker is reachable instead of exiting."""
    server, scoring = wires.source.load(ServerSettings), wires.source.load(ScoringSettings)
    resources = wires.source.load(GpuResourceSettings).resources
    weights = scoring.weights(wires.source.load(CatalogSettings).catalog, resources)
    wires.data.require()
    spool = server.spool_in(wires.data.spool)
    place = wires.data.database
    async with serving(wires.subjects, spool, server, weights, place) as service:
        while True:
            try:
                async with (
                    viewing(wires, Role.EXTENDER) as (bus, view),
                    _binder(server.binds, view, resources) as binder,
                ):
                    await service.work(bus, view, binder)
            except BusError as error:
                log.error(
                    "no_view_yet", error=str(error), what="answers without a view and retries"
                )
                await asyncio.sleep(RETRY_S)


@contextlib.asynccontextmanager
async def _binder(
    binds: str, view: View, resources: tuple[str, ...]
) -> AsyncGenerator[Binder | None, None]:
    if not binds:
        yield None
    elif binds == SIMULATED:
        yield SimulatedBinder(view)
    else:
        # Imported here: costs half a second and 40 MB, and only binding requires it.
        from joulie_extender.binding.kubernetes_binding import KubeBinder

        async with KubeBinder.of(binds, resources) as binder:
            yield binder
