"""`joulie simulator`: publishes the facts of a cluster that does not exist."""

import argparse

from joulie_bus.streams.roles import Role
from joulie_cli.wiring import Wiring, serve_part, viewing
from joulie_projections.hardware.catalog_file import GpuResourceSettings
from joulie_simulator.service import Simulation, SimulatorSettings

SETTINGS = (SimulatorSettings, GpuResourceSettings)


def run(_: argparse.Namespace, wires: Wiring) -> int:
    return serve_part(wires, "simulator", _simulate(wires), fast=True)


async def _simulate(wires: Wiring) -> None:
    settings = wires.source.load(SimulatorSettings)
    async with viewing(wires, Role.SIMULATOR) as (bus, view):
        resources = wires.source.load(GpuResourceSettings).resources
        await Simulation(bus, wires.subjects, view, settings, resources).run()
