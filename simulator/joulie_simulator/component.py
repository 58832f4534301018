"""`joulie simulator`: publishes the facts of a simulated cluster."""

import argparse
import asyncio
from pathlib import Path

import msgspec

from joulie_bus.runtime.secret_files import write_private
from joulie_bus.runtime.settings import Source, named
from joulie_bus.streams.roles import Role
from joulie_projections.catalog_file import GpuResourceSettings
from joulie_projections.component.process import serve_part
from joulie_projections.component.wiring import Wiring
from joulie_projections.view.viewing import viewing
from joulie_simulator.service import Simulation, SimulatorOptions, WebhookSettings

SETTINGS = (WebhookSettings, GpuResourceSettings)
NAMES = [
    each.metadata["name"].removeprefix("--").replace("-", "_") for each in named(SimulatorOptions)
]


def run(args: argparse.Namespace, wires: Wiring) -> int:
    options = options_of(given_arguments(args))
    return serve_part(wires, "simulator", _simulate(wires, options), fast=True)


def given_arguments(args: argparse.Namespace) -> dict[str, str]:
    """The options that are set, by their names on the command line."""
    given = {name: getattr(args, name, None) for name in NAMES}
    return {
        f"--{name.replace('_', '-')}": str(value)
        for name, value in given.items()
        if value is not None
    }


def options_of(arguments: dict[str, str]) -> SimulatorOptions:
    """Raises SettingsError with every invalid option, and BadTrace."""
    source = Source(arguments, said_by="the command line")
    options = source.load(SimulatorOptions)
    source.finish()
    options.sizes()
    return options


async def _simulate(wires: Wiring, options: SimulatorOptions) -> None:
    """Writes what the pods got when it ends, or when its simulated time is over: then the cluster
    stands still until the process is stopped."""
    file = wires.data.simulated
    file.unlink(missing_ok=True)
    async with viewing(wires, Role.SIMULATOR) as (bus, view):
        resources = wires.source.load(GpuResourceSettings).resources
        extender = wires.source.load(WebhookSettings).extender
        simulation = Simulation(bus, wires.subjects, view, options, resources, extender)
        try:
            await simulation.run()
        except asyncio.CancelledError:
            _write(file, simulation)
            raise
        _write(file, simulation)
        await asyncio.Event().wait()


def _write(file: Path, simulation: Simulation) -> None:
    placements = simulation.placements
    found = {
        **simulation.achieved().as_json(),
        "bound": placements.bound,
        "unanswered": placements.unanswered,
    }
    write_private(file, msgspec.json.encode(found).decode())
