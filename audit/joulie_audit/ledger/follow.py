"""Folds committed batches into the ledger, in the order of the log, from where it stopped."""

import math
import time
from collections.abc import AsyncIterator

from joulie_audit.archive.fact_source import ColumnSource
from joulie_audit.ledger import energy_metrics
from joulie_audit.ledger.held_facts import Piece, pieces_of
from joulie_bus.errors import JoulieError, NotInTheLog
from joulie_bus.runtime import metrics
from joulie_bus.runtime.logging import get_logger
from joulie_projections.energy.columns import LogColumns
from joulie_projections.energy.idle_holders import IdleHolder, idle_holders
from joulie_projections.energy.saved import LedgerState
from joulie_projections.fold.manifest import Manifest
from joulie_projections.history.history import History
from joulie_projections.store.energy_table import EnergyTable
from joulie_projections.store.retrying import ANSWERS, DatabaseExecutor

PASS_S = 5.0  # between two commits while there is a backlog
LONGEST_PASS_S = 60.0
IDLE_AFTER_S = 900.0  # a card without work is reported after this time
WORTHWHILE = 4  # a pass folds for this many times the time that its commit takes
REST_S = 5.0  # after a pass without a backlog: a pass has a fixed cost, and no placement waits
# What reading the log can fail with. The facts that were read before are folded and committed.
NOT_READ = (JoulieError, *ANSWERS, OSError)
log = get_logger("ledger")


class LedgerFollower:
    """Owns the state of the fold. After any error, `reload` it."""

    def __init__(
        self, table: EnergyTable, database: DatabaseExecutor, idle_after_s: float = IDLE_AFTER_S
    ) -> None:
        self._table, self._database = table, database
        self._idle_after_ms = round(idle_after_s * 1000)
        self._holders: list[IdleHolder] | None = None  # as last written
        self._state: LedgerState | None = None
        self._commit_s = 0.0  # of the last commit
        self._complete_at = time.monotonic()  # when the ledger held every committed fact
        self._newest_ms: int | None = None  # the time of the newest reading
        self._read_at: float | None = None  # when that one was folded, since the start
        metrics.LEDGER_LAG_SECONDS.set_function(lambda: time.monotonic() - self._complete_at)

    def reload(self) -> None:
        self._state = self._holders = None

    async def catch_up(self, history: History, facts: ColumnSource) -> bool:
        """Folds what the history holds, for about `PASS_S`, and commits; False if more is left.

        What was folded before the facts cannot be read any further is committed, too.
        """
        began = time.monotonic()
        state = self._state = self._state or await self._loaded()
        self._newest_ms = state.ledger.newest_ms if self._newest_ms is None else self._newest_ms
        newest = history.checkpoint()
        reached = newest.position if newest is not None else 0
        if state.position > reached:
            state = await self._of_this_log(state)
        before = state.position
        _require_complete(history, before)
        work = _Work(state, history, facts, self._budget_s())
        while await work.fold_parts() and await work.fold_batches():
            pass
        if state.position != before:
            await self._commit(before, state)
        await self._show(state)
        metrics.POSITION.set(state.position)
        metrics.LEDGER_LAG_EVENTS.set(max(0, reached - state.position))
        if work.failure is not None:
            raise work.failure
        if state.position < reached:
            return False
        self._complete_at = began
        return True

    async def _loaded(self) -> LedgerState:
        return await self._database.until_done(self._table.load) or LedgerState()

    async def _of_this_log(self, state: LedgerState) -> LedgerState:
        """A ledger that is ahead of the log was folded from another one, or from facts that a
        restored log does not hold. The history may be older than the state."""
        end = await self._database.until_done(self._table.log_end)
        if state.position <= end:
            return state
        what = "the ledger is emptied, and folded again from the first fact"
        log.warning("ledger_ahead_of_log", ledger=state.position, log=end, what=what)
        await self._database.until_done(self._table.clear)
        self._state, self._holders = LedgerState(), None
        return self._state

    async def _commit(self, before: int, state: LedgerState) -> None:
        started, closed = time.monotonic(), list(state.ledger.closed)
        await self._database.until_done(self._table.save, before, state)
        self._commit_s = time.monotonic() - started
        energy_metrics.count(closed)

    async def _show(self, state: LedgerState) -> None:
        """Also while nothing arrives: a reading is not the newest power for ever."""
        now, newest_ms = time.monotonic(), state.ledger.newest_ms
        if newest_ms != self._newest_ms:
            self._newest_ms, self._read_at = newest_ms, now
        silent_ms = math.inf if self._read_at is None else (now - self._read_at) * 1000
        energy_metrics.show(state.ledger, silent_ms)
        if self._read_at is not None:
            await self._keep_holders(state, silent_ms)

    async def _keep_holders(self, state: LedgerState, silent_ms: float) -> None:
        """Most times they are the same."""
        found = idle_holders(state.ledger, self._idle_after_ms, silent_ms)
        energy_metrics.show_holders(found)
        if found != self._holders:
            await self._database.until_done(self._table.keep_holders, found, state.position)
            self._holders = found

    def _budget_s(self) -> float:
        """On a slow machine a commit takes long: with more to fold before the next one, most of the
        time goes to the fold all the same."""
        return min(LONGEST_PASS_S, max(PASS_S, WORTHWHILE * self._commit_s))


class _Work:
    """One pass. Parts of an archive are folded in columns where they can be."""

    def __init__(
        self, state: LedgerState, history: History, facts: ColumnSource, budget_s: float
    ) -> None:
        self.failure: Exception | None = None
        self._state, self._history, self._facts = state, history, facts
        self._set_aside = history.set_aside()
        self._budget_s = budget_s
        self._until: float | None = None  # set by the first facts: opening readers does not count

    async def fold_parts(self) -> bool:
        """Returns False if the pass is over."""
        while columns := self._columns():
            if not self._state.fold_columns(columns, self._set_aside):
                return True
            if self._is_over():
                return False
        return self.failure is None

    def _columns(self) -> LogColumns | None:
        try:
            return self._facts.columns_at(self._state.position + 1, self._history)
        except Exception as error:  # only of reading; the caller raises it
            self.failure = error
            return None

    async def fold_batches(self) -> bool:
        """From the messages. Returns whether the next part begins."""
        state, batches = self._state, self._batches()
        while (found := await self._next(batches)) is not None:
            manifest, pieces = found
            for before, records in pieces:
                state.position = max(state.position, before)  # lost messages have positions, too
                state.fold(records[state.position - before :], self._set_aside)
            state.position = max(state.position, manifest.p_to)
            if self._is_over():
                return False
            if self._facts.begins_at(state.position + 1):
                return True
        return False

    async def _batches(self) -> AsyncIterator[tuple[Manifest, list[Piece]]]:
        for manifest in self._history.manifests(self._state.position + 1):
            yield manifest, await pieces_of(self._facts, manifest)

    async def _next(
        self, batches: AsyncIterator[tuple[Manifest, list[Piece]]]
    ) -> tuple[Manifest, list[Piece]] | None:
        try:
            return await anext(batches, None)
        except Exception as error:  # only of reading; the caller raises it
            self.failure = error
            return None

    def _is_over(self) -> bool:
        if self._until is None:
            self._until = time.monotonic() + self._budget_s
        return time.monotonic() > self._until


def _require_complete(history: History, position: int) -> None:
    cut = history.cut()
    if cut is not None and position < cut.p_to:
        raise NotInTheLog(
            f"The ledger is at position {position}, and the log starts after {cut.p_to}. Nothing "
            "was folded. Set ARCHIVE_DIR to the archive that holds the earlier part."
        )
