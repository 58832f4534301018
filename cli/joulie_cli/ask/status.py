"""`joulie status`: what runs, its positions and lag, and the age of the data."""

import argparse
import asyncio
import time

from joulie_answers.schema.requests import NoParameters
from joulie_answers.schema.responses import Status
from joulie_answers.text.status import status_text
from joulie_cli.asking.here import status_of
from joulie_cli.asking.sources import source_of
from joulie_cli.display.output import show
from joulie_cli.wiring import Wiring
from joulie_extender.settings import ScoringSettings

SETTINGS = (ScoringSettings,)


def run(args: argparse.Namespace, wires: Wiring) -> int:
    """The exit code is 1 if nothing runs."""
    if args.server:
        found = asyncio.run(_of_console(args, wires))
    else:
        reading_s = wires.source.load(ScoringSettings).staleness_s
        found = status_of(wires.data, time.time_ns(), reading_s)
    show(args, found, status_text(found))
    return 0 if found.running else 1


async def _of_console(args: argparse.Namespace, wires: Wiring) -> Status:
    async with source_of(args, wires) as console:
        return await console.status(NoParameters())
