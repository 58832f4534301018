"""`joulie extender`: answers kube-scheduler."""

import argparse
import asyncio

from joulie_bus.errors import BusError
from joulie_bus.logging import get_logger
from joulie_bus.roles import Role
from joulie_cli.wiring import Wiring, serve_part, viewing
from joulie_extender.service import serving
from joulie_extender.settings import ScoringSettings, ServerSettings

SETTINGS = (ServerSettings, ScoringSettings)
RETRY_S = 1.0
log = get_logger("extender")


def run(_: argparse.Namespace, wires: Wiring) -> int:
    return serve_part(wires, _answer(wires), fast=True)


async def _answer(wires: Wiring) -> None:
    """Listens at once; a broker that is not there yet makes it wait, not end."""
    server, scoring = wires.source.load(ServerSettings), wires.source.load(ScoringSettings)
    wires.data.require()
    async with serving(wires.subjects, wires.data.spool, server, scoring) as service:
        while True:
            try:
                async with viewing(wires, Role.EXTENDER) as (bus, view):
                    await service.work(bus, view)
            except BusError as error:
                log.error("no_view_yet", error=str(error), what="answers without one; tries again")
                await asyncio.sleep(RETRY_S)
