"""Folds the ledger again in memory, up to a position, to compare it with what was reported."""

from joulie_audit.archive.fact_source import FactSource
from joulie_projections.energy.saved import LedgerState
from joulie_projections.history.history import History
from joulie_projections.store.energy_table import EnergyTable


async def refolded(history: History, facts: FactSource, last: int) -> EnergyTable:
    """The ledger as it was at this position."""
    table, state = EnergyTable.in_memory(), LedgerState()
    set_aside = history.set_aside()
    for manifest in history.manifests(1, last):
        before = state.position
        records = await facts.of(manifest)
        state.fold(records[: last - before], set_aside)
        table.save(before, state)
    return table
