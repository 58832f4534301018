"""The source of the answers of a command: a console, or the local data."""

import argparse
import asyncio
import contextlib
import time
from collections.abc import AsyncGenerator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from joulie.client.console import ConsoleClient
from joulie_answers.readers.history import OpenHistory
from joulie_answers.stored import Judgement, Stored, stored_answers
from joulie_audit.access.past import ArchivePlace, archive_of, retained_facts_of
from joulie_audit.archive.combined_history import Sources
from joulie_cli.asking.questions import Answered, Question, Source
from joulie_cli.display.output import show
from joulie_extender.gpu.models import aliases_of
from joulie_extender.settings import ScoringSettings
from joulie_projections.catalog_file import CatalogSettings
from joulie_projections.component.opening import require_readable
from joulie_projections.component.wiring import Wiring
from joulie_projections.store.energy_table import EnergyTable

SETTINGS = (ArchivePlace, ScoringSettings, CatalogSettings)


@contextlib.asynccontextmanager
async def source_of(args: argparse.Namespace, wires: Wiring) -> AsyncGenerator[Source, None]:
    if args.server:
        async with console_of(args) as console:
            yield console
        return
    archive = archive_of(args, wires)
    require_readable(wires.data)
    async with stored_answers(_stored(wires, archive), _judgement(wires)) as answers:
        yield answers


def console_of(args: argparse.Namespace) -> ConsoleClient:
    token, ca = args.token_file or "", args.ca_file or ""
    return ConsoleClient(args.server, token_file=token, ca_file=ca)


def _stored(wires: Wiring, archive: Path | None) -> Stored:
    return Stored(
        _history(wires, archive),
        lambda: EnergyTable.readable(wires.data.database),
        lambda: retained_facts_of(wires, archive),
    )


def _history(wires: Wiring, archive: Path | None) -> OpenHistory:
    def opened() -> AbstractContextManager[Any]:
        return Sources(wires.data.database, archive).reading()

    return opened


def _judgement(wires: Wiring) -> Judgement:
    staleness_s = wires.source.load(ScoringSettings).staleness_s
    aliases = aliases_of(wires.source.load(CatalogSettings).catalog)
    return Judgement(time.time_ns(), staleness_s, aliases)


def asked(args: argparse.Namespace, wires: Wiring, question: Question) -> int:
    """Asks, and prints the answer."""

    async def ask() -> Answered:
        async with source_of(args, wires) as source:
            return await question(source, args)

    found = asyncio.run(ask())
    show(args, found.document, found.text)
    return 0
