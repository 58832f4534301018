"""Folds the ledger again in memory, up to a position, to compare it with what was reported."""

import contextlib
from collections.abc import AsyncGenerator

from joulie_audit.archive.fact_source import FactSource
from joulie_bus.errors import NotInTheLog
from joulie_projections.energy.saved import LedgerState
from joulie_projections.fold.manifest import hash_of_all
from joulie_projections.history.history import History
from joulie_projections.store.energy_table import EnergyTable

ALTERED = (
    "The facts of positions {} to {} are not those that were committed: their hashes differ. "
    "Nothing was computed. Give --archive DIR, if an archive holds them."
)


@contextlib.asynccontextmanager
async def refolded(
    history: History, facts: FactSource, last: int
) -> AsyncGenerator[EnergyTable, None]:
    """The ledger as it was at this position."""
    state, set_aside = LedgerState(), history.set_aside()
    with EnergyTable.in_memory() as table:
        for manifest in history.manifests(1, last):
            before = state.position
            records = await facts.of(manifest)
            if hash_of_all([record.data for record in records]) != manifest.facts_hash:
                raise NotInTheLog(ALTERED.format(manifest.p_from, manifest.p_to))
            state.fold(records[: last - before], set_aside)
            table.save(before, state)
        yield table
