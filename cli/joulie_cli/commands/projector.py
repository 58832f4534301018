"""`joulie projector`: gives events their order, keeps the twins, writes the decision log."""

import argparse

import joulie_migrations
from joulie_bus.roles import Role
from joulie_cli.wiring import Wiring, connected, serve_part
from joulie_projections import database
from joulie_projections.heads import Signer
from joulie_projections.projector import Projector, ProjectorSettings

SETTINGS = (ProjectorSettings,)


def run(_: argparse.Namespace, wires: Wiring) -> int:
    return serve_part(wires, _project(wires))


async def _project(wires: Wiring) -> None:
    wires.data.create()
    engine = database.writer(wires.data.database)
    try:
        joulie_migrations.require(engine)
        signer = Signer.of(wires.data.key)
        signer.publish(wires.data.public_key)
        settings = wires.source.load(ProjectorSettings)
        async with connected(wires, Role.PROJECTOR) as bus:
            await Projector(bus, wires.subjects, engine, signer, settings).run()
    finally:
        engine.dispose()
