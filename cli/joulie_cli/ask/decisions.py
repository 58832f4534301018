"""list the entries of the decision log, newest last.

joulie decisions --pod team-a/train-0
joulie decisions --node node-17 --since -10m
joulie decisions --kind bind --follow
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

from joulie_cli.command_line import options as shared
from joulie_cli.command_line.commands import Program

if TYPE_CHECKING:
    from joulie_projections.component.wiring import Wiring

# A test compares them with the types of the events.
ENTRY_KINDS = (
    *("settings-declared", "filter", "prioritize", "preempt", "fallback", "dropped", "set-back"),
    *("bind", "outcome", "promise", "promise-key"),
)


def options(parser: argparse.ArgumentParser) -> None:
    question(parser, ("table", "json", "jsonl", "yaml"))
    parser.add_argument(
        *("--follow", "-w", "--watch"),
        action="store_true",
        help="print new entries as they are written",
    )
    shared.source(parser)


def question(
    parser: argparse.ArgumentParser, formats: Sequence[str] = ("table", "json", "yaml")
) -> None:
    """Without where it is asked: `kubectl joulie` has other options for that."""
    shared.output(parser, formats)
    parser.add_argument("--pod", metavar="POD", help="namespace/name, a name or a uid")
    parser.add_argument("--node", metavar="NODE", help="name of a candidate")
    parser.add_argument("--namespace", metavar="NAME")
    parser.add_argument(
        "--kind",
        action="append",
        type=lambda word: word.removeprefix("decision."),  # as entries and the stream have it
        choices=ENTRY_KINDS,
        metavar="KIND",
        help=f"{', '.join(ENTRY_KINDS[:-1])} or {ENTRY_KINDS[-1]}",
    )
    parser.add_argument("--since", metavar="TIME", help="a time, or -10m")
    shared.newest(parser)


POLL_S = 0.3


def program() -> Program:
    from joulie_cli.asking.sources import settings_of_local_data

    return Program((), run, settings_of_local_data)


def run(args: argparse.Namespace, wires: Wiring) -> int:
    import asyncio

    from joulie_cli.asking import questions
    from joulie_cli.asking.sources import asked

    questions.asked_for(args, time.time_ns())  # what cannot be asked is reported before the data
    if args.follow or args.output == "jsonl":
        asyncio.run(_follow(args, wires))
        return 0
    return asked(args, wires, questions.decisions)


async def _follow(args: argparse.Namespace, wires: Wiring) -> None:
    """One document a line, because the list has no end."""
    import asyncio

    from joulie_answers.text.decisions import decision_lines
    from joulie_cli.asking import questions
    from joulie_cli.asking.sources import source_of
    from joulie_cli.display.output import show

    async with source_of(args, wires) as source:
        async for newest in questions.following(source, args):
            for brief in reversed(newest):
                show(args, [brief] if args.output == "yaml" else brief, *decision_lines([brief]))
            if not args.follow:
                return
            await asyncio.sleep(POLL_S)
