"""`joulie decisions`: lists entries of the decision log, newest last; `--follow` streams them."""

import argparse
import asyncio
import time

from joulie_answers.text.decisions import decision_lines
from joulie_cli.asking import questions
from joulie_cli.asking.sources import SETTINGS, asked, source_of
from joulie_cli.display.output import show
from joulie_cli.wiring import Wiring

__all__ = ["SETTINGS", "run"]
POLL_S = 0.3


def run(args: argparse.Namespace, wires: Wiring) -> int:
    questions.asked_for(args, time.time_ns())  # what cannot be asked is reported before the data
    if args.follow or args.output == "jsonl":
        asyncio.run(_follow(args, wires))
        return 0
    return asked(args, wires, questions.decisions)


async def _follow(args: argparse.Namespace, wires: Wiring) -> None:
    """One document a line, because the list has no end."""
    async with source_of(args, wires) as source:
        async for newest in questions.following(source, args):
            for brief in reversed(newest):
                show(args, [brief] if args.output == "yaml" else brief, *decision_lines([brief]))
            if not args.follow:
                return
            await asyncio.sleep(POLL_S)
