"""The source of the answers of a command: a console, or the local data."""

import argparse
import contextlib
import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Protocol, TypeVar

from msgspec.structs import replace

from joulie.client.console import ConsoleClient
from joulie_answers.answers import Answers
from joulie_answers.readers.history import OpenHistory
from joulie_answers.stored import Judgement, Stored, stored_answers
from joulie_audit.archive.combined_history import Sources
from joulie_cli.log_access.past import (
    ArchivePlace,
    archive_of,
    require_readable,
    retained_facts_of,
)
from joulie_cli.wiring import Wiring
from joulie_extender.gpu.models import aliases_of
from joulie_extender.settings import ScoringSettings
from joulie_projections.catalog_file import CatalogSettings
from joulie_projections.store.energy_table import EnergyTable

SETTINGS = (ArchivePlace, ScoringSettings, CatalogSettings)
Source = Answers | ConsoleClient  # their methods are the same
PAGE = 1000  # items; the most that a console sends at once


class _Listed(Protocol):
    @property
    def items(self) -> list[Any]: ...
    @property
    def next(self) -> int | None: ...


L = TypeVar("L", bound=_Listed)


@contextlib.asynccontextmanager
async def source_of(args: argparse.Namespace, wires: Wiring) -> AsyncGenerator[Source, None]:
    if args.server:
        token, ca = args.token_file or "", args.ca_file or ""
        async with ConsoleClient(args.server, token_file=token, ca_file=ca) as console:
            yield console
        return
    archive = archive_of(args, wires)
    require_readable(wires.data)
    async with stored_answers(_stored(wires, archive), _judgement(wires)) as answers:
        yield answers


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


async def all_pages(
    question: Callable[[Any], Awaitable[L]], query: Any, most: int | None = None
) -> L:
    """One answer with the items of all pages, or with the first `most`."""
    field = "before" if "before" in query.__struct_fields__ else "offset"
    whole = page = await question(replace(query, limit=min(PAGE, most or PAGE)))
    items = list(page.items)
    while page.next is not None and (most is None or len(items) < most):
        limit = PAGE if most is None else min(PAGE, most - len(items))
        page = await question(replace(query, limit=limit, **{field: page.next}))
        items += page.items
    return replace(whole, items=items, next=page.next)  # type: ignore[type-var]
