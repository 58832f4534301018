"""`joulie extender`: answers kube-scheduler."""

import argparse

from joulie_bus.roles import Role
from joulie_cli.wiring import Wiring, serve_part, viewing
from joulie_extender.service import serve
from joulie_extender.settings import ScoringSettings, ServerSettings

SETTINGS = (ServerSettings, ScoringSettings)


def run(_: argparse.Namespace, wires: Wiring) -> int:
    return serve_part(wires, _answer(wires))


async def _answer(wires: Wiring) -> None:
    server, scoring = wires.source.load(ServerSettings), wires.source.load(ScoringSettings)
    async with viewing(wires, Role.EXTENDER) as (bus, view):
        await serve(bus, wires.subjects, view, wires.data.spool, server, scoring)
