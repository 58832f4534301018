"""The source of the answers of a command: a console, or the local data.

A command that asks a console imports nothing that reads a database or a broker.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
from typing import TYPE_CHECKING

from joulie.client.console import ConsoleClient
from joulie_cli.display.output import show

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Sequence

    from joulie_cli.asking.questions import Answered, Question
    from joulie_cli.asking.source_type import Source
    from joulie_projections.component.wiring import Wiring


def settings_of_local_data() -> Sequence[type]:
    from joulie_cli.asking.local_data import SETTINGS

    return SETTINGS


@contextlib.asynccontextmanager
async def source_of(args: argparse.Namespace, wires: Wiring) -> AsyncGenerator[Source, None]:
    if args.server:
        async with console_of(args) as console:
            yield console
        return
    from joulie_cli.asking.local_data import answers_of

    async with answers_of(args, wires) as answers:
        yield answers


def console_of(args: argparse.Namespace) -> ConsoleClient:
    token, ca = args.token_file or "", args.ca_file or ""
    return ConsoleClient(args.server, token_file=token, ca_file=ca)


def asked(args: argparse.Namespace, wires: Wiring, question: Question) -> int:
    """Asks, and prints the answer."""
    found = answered(args, wires, question)
    show(args, found.document, found.text)
    return 0


def answered(args: argparse.Namespace, wires: Wiring, question: Question) -> Answered:
    async def ask() -> Answered:
        async with source_of(args, wires) as source:
            return await question(source, args)

    return asyncio.run(ask())
