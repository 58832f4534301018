"""show running parts, their positions and their addresses.

joulie status
joulie status --server https://joulie.example.com --token-file token -o json
"""

from __future__ import annotations

import argparse
import time
from typing import TYPE_CHECKING

from joulie_cli.command_line import options as shared
from joulie_cli.command_line.commands import Program

if TYPE_CHECKING:
    from collections.abc import Sequence

    from joulie_answers.schema.responses import Status
    from joulie_projections.component.wiring import Wiring


def options(parser: argparse.ArgumentParser) -> None:
    shared.output(parser)
    shared.server(parser)


def program() -> Program:
    def of_local_data() -> Sequence[type]:
        from joulie_extender.staleness import FreshnessSettings

        return (FreshnessSettings,)

    return Program((), run, of_local_data)


def run(args: argparse.Namespace, wires: Wiring) -> int:
    """The exit code is 1 if nothing runs."""
    from joulie_answers.text.status import status_text
    from joulie_cli.display.output import show

    found = _of_console(args) if args.server else _of_this_machine(wires)
    show(args, found, status_text(found))
    return 0 if found.running else 1


def _of_this_machine(wires: Wiring) -> Status:
    from joulie_answers.here import status_of
    from joulie_extender.staleness import FreshnessSettings

    reading_s = wires.source.load(FreshnessSettings).staleness_s
    return status_of(wires.data, time.time_ns(), reading_s)


def _of_console(args: argparse.Namespace) -> Status:
    import asyncio

    from joulie_answers.schema.requests import NoParameters
    from joulie_cli.asking.sources import console_of

    async def ask() -> Status:
        async with console_of(args) as console:
            return await console.status(NoParameters())

    return asyncio.run(ask())
