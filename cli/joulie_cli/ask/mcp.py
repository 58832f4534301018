"""answer a language model's questions: tools of the Model Context Protocol, over stdio.

joulie mcp
joulie mcp --server https://joulie.example.com --token-file token
"""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING

from joulie_cli.command_line import options as shared
from joulie_cli.command_line.commands import Program

if TYPE_CHECKING:
    from joulie_projections.component.wiring import Wiring


def options(parser: argparse.ArgumentParser) -> None:
    shared.source(parser)


def program() -> Program:
    from joulie_cli.asking.sources import settings_of_local_data

    return Program((), run, settings_of_local_data)


def run(args: argparse.Namespace, wires: Wiring) -> int:
    """Until the input ends."""
    import asyncio

    from joulie_cli.asking.context_protocol import serve
    from joulie_cli.asking.sources import source_of

    asyncio.run(serve(sys.stdin.buffer, sys.stdout.buffer, lambda: source_of(args, wires)))
    return 0
