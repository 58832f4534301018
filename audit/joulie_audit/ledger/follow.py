"""Folds committed batches into the ledger, in the order of the log, from where it stopped."""

import time

from joulie_audit.archive.fact_source import FactSource
from joulie_bus.errors import NotInTheLog
from joulie_bus.runtime import metrics
from joulie_projections.energy.intervals import Interval
from joulie_projections.energy.saved import LedgerState
from joulie_projections.history.history import History
from joulie_projections.store.energy_table import EnergyTable

PASS_S = 5.0  # between two commits while there is a backlog
REST_S = 30.0  # after a pass without one: a pass has a fixed cost, and no placement waits for it
UJ_PER_JOULE = 1_000_000


class LedgerFollower:
    """Owns the state of the fold. After Fenced or any other error, `reload` it."""

    def __init__(self, table: EnergyTable) -> None:
        self._table = table
        self._state: LedgerState | None = None

    def reload(self) -> None:
        self._state = None

    async def catch_up(self, history: History, facts: FactSource) -> bool:
        """Folds what the history holds, for about `PASS_S`, and commits; False if more is left."""
        state = self._state = self._state or self._table.load() or LedgerState()
        before, until = state.position, time.monotonic() + PASS_S
        _require_complete(history, before)
        set_aside = history.set_aside()
        newest = history.checkpoint()
        for manifest in history.manifests(before + 1):
            records = await facts.of(manifest)
            state.fold(records[max(0, state.position + 1 - manifest.p_from) :], set_aside)
            if time.monotonic() > until:
                break
        closed = list(state.ledger.closed)
        if state.position != before:
            self._table.save(before, state)
            count_energy(closed)
        reached = newest.position if newest is not None else 0
        metrics.POSITION.set(state.position)
        metrics.LEDGER_LAG_EVENTS.set(max(0, reached - state.position))
        return state.position >= reached


def _require_complete(history: History, position: int) -> None:
    cut = history.cut()
    if cut is not None and position < cut.p_to:
        raise NotInTheLog(
            f"The ledger is at position {position}, and the log starts after {cut.p_to}. Nothing "
            "was folded. Set ARCHIVE_DIR to the archive that holds the earlier part."
        )


def count_energy(closed: list[Interval]) -> None:
    for interval in closed:
        if interval.grain == "minutes":
            for node in interval.nodes:
                _JOULES["pods"].inc(node.pods_uj / UJ_PER_JOULE)
                _JOULES["idle"].inc(node.idle_uj / UJ_PER_JOULE)
                _JOULES["unknown"].inc(node.unknown_uj / UJ_PER_JOULE)


_JOULES = {kind: metrics.ENERGY.labels(kind=kind) for kind in ("pods", "idle", "unknown")}
