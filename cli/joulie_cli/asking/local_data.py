"""The answers from the local data: its settings, its history, its ledger and its streams."""

import argparse
import time
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from pathlib import Path
from typing import Any

from joulie_answers.answers import Answers
from joulie_answers.readers.history import OpenHistory
from joulie_answers.stored import Judgement, Stored, stored_answers
from joulie_audit.access.past import ArchivePlace, archive_of, retained_facts_of
from joulie_audit.archive.combined_history import Sources
from joulie_extender.gpu.models import aliases_of
from joulie_extender.settings import ScoringSettings
from joulie_projections.catalog_file import CatalogSettings
from joulie_projections.component.opening import require_readable
from joulie_projections.component.wiring import Wiring
from joulie_projections.store.energy_lag import seconds_behind
from joulie_projections.store.energy_table import EnergyTable

SETTINGS = (ArchivePlace, ScoringSettings, CatalogSettings)


def answers_of(args: argparse.Namespace, wires: Wiring) -> AbstractAsyncContextManager[Answers]:
    archive = archive_of(args, wires)
    require_readable(wires.data)
    return stored_answers(_stored(wires, archive), _judgement(wires))


def _stored(wires: Wiring, archive: Path | None) -> Stored:
    return Stored(
        _history(wires, archive),
        lambda: EnergyTable.readable(wires.data.database),
        lambda: seconds_behind(wires.data.database),
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
