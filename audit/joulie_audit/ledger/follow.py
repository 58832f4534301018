"""Folds committed batches into the ledger, in the order of the log, from where it stopped."""

import time
from typing import NamedTuple

from joulie_audit.archive.fact_source import ColumnSource
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

    async def catch_up(self, history: History, facts: ColumnSource) -> bool:
        """Folds what the history holds, for about `PASS_S`, and commits; False if more is left."""
        state = self._state = self._state or self._table.load() or LedgerState()
        before, until = state.position, time.monotonic() + PASS_S
        _require_complete(history, before)
        newest = history.checkpoint()
        work = _Work(state, history, facts, until)
        while work.fold_parts() and await work.fold_batches():
            pass
        closed = list(state.ledger.closed)
        if state.position != before:
            self._table.save(before, state)
            count_energy(closed)
        reached = newest.position if newest is not None else 0
        metrics.POSITION.set(state.position)
        metrics.LEDGER_LAG_EVENTS.set(max(0, reached - state.position))
        return state.position >= reached


class _Work(NamedTuple):
    """One pass. Parts of an archive are folded in columns where they can be."""

    state: LedgerState
    history: History
    facts: ColumnSource
    until: float

    def fold_parts(self) -> bool:
        """Returns False if the time is over."""
        set_aside = self.history.set_aside()
        while columns := self.facts.columns_at(self.state.position + 1, self.history):
            if not self.state.fold_columns(columns, set_aside):
                return True
            if self._is_over():
                return False
        return True

    async def fold_batches(self) -> bool:
        """From the messages. Returns whether the next part begins."""
        set_aside, state = self.history.set_aside(), self.state
        for manifest in self.history.manifests(state.position + 1):
            records = await self.facts.of(manifest)
            state.fold(records[max(0, state.position + 1 - manifest.p_from) :], set_aside)
            if self._is_over():
                return False
            if self.facts.begins_at(state.position + 1):
                return True
        return False

    def _is_over(self) -> bool:
        return time.monotonic() > self.until


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
