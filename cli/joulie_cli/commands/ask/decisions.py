"""list the entries of the decision log, newest last."""

import argparse
from collections.abc import Sequence

from joulie_cli.command_line import options as shared
from joulie_cli.command_line.commands import Program

# A test compares them with the types of the events.
ENTRY_KINDS = (
    *("settings-declared", "filter", "prioritize", "preempt", "fallback", "dropped", "set-back"),
    *("bind", "outcome"),
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
    parser.add_argument("--node", metavar="NAME", help="name of a candidate")
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


def program() -> Program:
    from joulie_cli.ask import decisions

    return decisions
