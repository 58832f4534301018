"""Answers from a database and its facts, for a command: no console has to run."""

import contextlib
from collections.abc import AsyncGenerator, Sequence
from typing import NamedTuple

from joulie_answers.answers import Answers, HistorySources
from joulie_answers.readers.energy import EnergyReader, LedgerLag, OpenEnergy
from joulie_answers.readers.facts import OpenFacts
from joulie_answers.readers.history import HistoryReader, OpenHistory
from joulie_answers.readers.time_travel import UNBOUNDED
from joulie_answers.schema.responses import ReplicaSpool, Stamp
from joulie_answers.views.cluster_view import ClusterSnapshot, Overview
from joulie_answers.views.plan_text import PlanLine
from joulie_bus.core.times import MS
from joulie_extender.gpu.models import Aliases
from joulie_projections.history.history import NEWEST, History
from joulie_projections.state.completeness import NEVER_MS, ViewAges, known_ms
from joulie_projections.twin.columns import TwinColumns

PATIENCE_S = 24 * 3600.0  # a command waits for its own query


class Stored(NamedTuple):
    """How to open what is stored."""

    history: OpenHistory
    energy: OpenEnergy
    ledger_behind_s: LedgerLag
    facts: OpenFacts


class Judgement(NamedTuple):
    """What an answer takes from the settings and from the clock."""

    now: int
    staleness_s: float
    aliases: Aliases = ()


class NewestStored:
    """The state of the newest commit: as old as that commit, whatever runs."""

    def __init__(self, snapshot: ClusterSnapshot, entries: int, judged: Judgement) -> None:
        age_ms = max(0, judged.now - snapshot.at) // MS if snapshot.at else NEVER_MS
        self.overview = Overview(snapshot, judged.staleness_s)
        self.ages = ViewAges(age_ms, age_ms)
        self.position = snapshot.position
        self.entries = entries

    def spools(self) -> Sequence[ReplicaSpool]:
        """None: their reports are live messages of the broker, which are not stored."""
        return ()

    def stamp(self) -> Stamp:
        return {
            "position": self.position,
            "at_ms": self.overview.snapshot.at // MS,
            "age_ms": known_ms(self.ages.heard_ms),
            "behind_ms": known_ms(self.ages.behind_ms),
        }


class NoRecentPlans:
    """A command keeps no plans in memory: all are read."""

    plans_gone = 0
    first_plan = NEWEST
    has_dropped_plans = True

    def plans_before(self, _position: int, /) -> Sequence[PlanLine]:
        return ()


def _newest_in(history: History) -> ClusterSnapshot:
    checkpoint = history.checkpoint()
    position = checkpoint.position if checkpoint else 0
    state = history.cluster_state()
    at = history.committed_at(position) if position else None
    return ClusterSnapshot(position, at or 0, state, TwinColumns.of_state(state))


@contextlib.asynccontextmanager
async def stored_answers(stored: Stored, judged: Judgement) -> AsyncGenerator[Answers, None]:
    history = HistoryReader(stored.history, PATIENCE_S)
    energy = EnergyReader(stored.energy, stored.ledger_behind_s)
    try:
        newest = await history.newest_after(0)
        snapshot = await history.run(_newest_in)
        found = NewestStored(snapshot, newest.pos if newest else 0, judged)
        sources = HistorySources.over(stored.facts, history, NoRecentPlans(), energy, UNBOUNDED)
        yield Answers(found, sources, lambda: judged.now, judged.staleness_s, judged.aliases)
    finally:
        history.close()
        energy.close()
