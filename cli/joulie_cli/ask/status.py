"""show running parts, their positions and their addresses."""

from __future__ import annotations

import argparse
import time
from typing import TYPE_CHECKING

from joulie_cli.command_line import options as shared
from joulie_cli.command_line.commands import Program

if TYPE_CHECKING:
    from joulie_answers.schema.responses import Status
    from joulie_projections.component.wiring import Wiring


def options(parser: argparse.ArgumentParser) -> None:
    shared.output(parser)
    shared.server(parser)


def program() -> Program:
    from joulie_extender.staleness import FreshnessSettings

    return Program((FreshnessSettings,), run)


def run(args: argparse.Namespace, wires: Wiring) -> int:
    """The exit code is 1 if nothing runs."""
    import asyncio

    from joulie_answers.here import status_of
    from joulie_answers.text.status import status_text
    from joulie_cli.display.output import show
    from joulie_extender.staleness import FreshnessSettings

    if args.server:
        found = asyncio.run(_of_console(args, wires))
    else:
        reading_s = wires.source.load(FreshnessSettings).staleness_s
        found = status_of(wires.data, time.time_ns(), reading_s)
    show(args, found, status_text(found))
    return 0 if found.running else 1


async def _of_console(args: argparse.Namespace, wires: Wiring) -> Status:
    from joulie_answers.schema.requests import NoParameters
    from joulie_cli.asking.sources import source_of

    async with source_of(args, wires) as console:
        return await console.status(NoParameters())
