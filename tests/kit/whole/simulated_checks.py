"""Properties of the whole: some are checked all the time, others at the end of a run."""

import asyncio
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping

from simulated_components import Component, ProjectorComponent, Surroundings, ViewComponent
from simulated_ledger import BEHIND_S, counted_uj, ledger_position
from simulated_models import FoldedBy, require_each_message_once
from simulated_moves import archive_of, lost_readings
from sqlalchemy import Engine, create_engine
from sqlalchemy.pool import StaticPool
from virtual_time import POLLS, Process

from bus_kit.memory_broker import MemoryLog
from joulie_audit.archive.archived_facts import ArchivedFacts
from joulie_audit.archive.combined_history import Sources
from joulie_audit.archive.fact_source import ColumnSource, StreamFacts
from joulie_audit.archive.parts import Archive
from joulie_audit.ledger.follow import LedgerFollower
from joulie_audit.replay.replay import replay
from joulie_audit.verify.verify import verify
from joulie_bus.log.whole_stream import everything
from joulie_bus.streams.subjects import MERGE_ORDER, Stream
from joulie_projections.chain.head import Head, statement_in
from joulie_projections.decision_log.heads import Signer
from joulie_projections.energy.intervals import Interval
from joulie_projections.energy.saved import LedgerState
from joulie_projections.fold.manifest import CODE_VERSION
from joulie_projections.history.history import History
from joulie_projections.state.rows import cluster_state_of
from joulie_projections.store import database
from joulie_projections.store.energy_table import EnergyTable
from joulie_projections.store.retrying import DatabaseExecutor
from joulie_projections.store.store import Store
from joulie_projections.store.tables import batch, ledger_metadata, metadata
from joulie_projections.view.view import View, ViewSnapshot

EVERY_S = 0.5
FROZEN_S = 15.0  # the longest time without a fold while one projector reaches everything
REPORTED_S = 8.0  # the longest time until a projector reports that it does not reach the broker
NAMED_S = 60.0  # the longest time until heartbeats name a copy that lacks messages
FRESH_S = 2.0  # the oldest state at the end


class _Since:
    """Since when something holds without a break, for one life of a component."""

    def __init__(self) -> None:
        self._since: dict[str, tuple[Process, float]] = {}

    def seconds(self, component: Component, *, holds: bool) -> float:
        process, now = component.process, asyncio.get_running_loop().time()
        if process is None or process.is_frozen or process.is_dead or not holds:
            self._since.pop(component.name, None)
            return 0.0
        known = self._since.get(component.name)
        if known is None or known[0] is not process:
            known = self._since[component.name] = process, now
        return now - known[1]


class Watching:
    """Compares what components state with what the simulator knows."""

    def __init__(self, around: Surroundings, components: Mapping[str, Component]) -> None:
        self._around = around
        self._components = components
        self._expected = sum(isinstance(each, ViewComponent) for each in components.values())
        self._able, self._cut, self._told = _Since(), _Since(), _Since()
        engine = database.reader(around.database.file)
        self._store = Store(engine)
        self._close = engine.dispose

    def still_at(self) -> int | None:
        """The position at which everything is folded, and each view has it; None while not so."""
        found, views = self._around.database.committed(), self._views()
        if found is None or len(views) < self._expected:
            return None
        ages = [process.context.run(getattr, view, "ages").oldest_ms for _, process, view in views]
        are_here = all(view.position == found.position for *_, view in views)
        is_still = are_here and max(ages) < 1000 * FRESH_S and not self._unread_s()
        return found.position if is_still else None

    async def follow(self) -> None:
        POLLS.set(True)
        try:
            while True:
                await asyncio.sleep(EVERY_S)
                self._check_ages()
                self._check_progress()
                self._check_readiness()
                self._check_copies()
        finally:
            self._close()

    def _views(self) -> list[tuple[str, Process, View]]:
        return [
            (name, each.process, each.view)
            for name, each in self._components.items()
            if isinstance(each, ViewComponent) and each.process and each.view and each.view.is_ready
            if not (each.process.is_frozen or each.process.is_dead)
        ]

    def _projectors(self) -> list[ProjectorComponent]:
        return [e for e in self._components.values() if isinstance(e, ProjectorComponent)]

    def _check_ages(self) -> None:
        for name, process, view in self._views():
            process.context.run(self._check_age, name, view.snapshot)

    def _check_age(self, name: str, snapshot: Callable[[], ViewSnapshot]) -> None:
        seen = snapshot()
        self._around.truth.check_age(name, seen.incarnation, seen.position, seen.behind_ms)

    def _unread_s(self) -> float:
        found = self._around.database.committed()
        return self._around.truth.oldest_unread_s(found.inputs if found else {})

    def _check_progress(self) -> None:
        able_s = max(self._able.seconds(e, holds=self._reaches_all(e)) for e in self._projectors())
        if able_s > FROZEN_S and (waits_s := self._unread_s()) > FROZEN_S:
            self._around.truth.fail(
                f"a fact was not folded for {waits_s:.1f} s, although a projector reached the "
                f"broker and the database for {able_s:.1f} s"
            )

    def _reaches_all(self, component: Component) -> bool:
        broker, link, database_link = self._around.broker, component.link, component.database_link
        links = (
            link.works and not link.slow_s and database_link.works and not database_link.lost_share
        )
        disk = not (component.has_slow_disk or self._around.database.is_full)
        return links and disk and broker.stores and self._around.database.is_up

    def _check_readiness(self) -> None:
        for component in self._projectors():
            link, process = component.link, component.process
            is_cut = not (link.sends and link.receives and self._around.broker.stores)
            cut_s = self._cut.seconds(component, holds=is_cut)
            if process is None or component.projector is None or cut_s <= REPORTED_S:
                continue
            if not process.context.run(component.projector.liveness.ready):
                self._around.truth.fail(
                    f"{component.name} is ready, and reached no majority of the broker for "
                    f"{cut_s:.1f} s"
                )

    def _check_copies(self) -> None:
        """A reader that follows a projector knows the copies of streams that lack messages."""
        copies, console = self._around.broker.copies, self._components["console"]
        known = copies.damaged if copies is not None else []
        is_followed = any(self._reaches_all(each) for each in self._projectors())
        follows = bool(known) and is_followed and self._reaches_all(console)
        if self._told.seconds(console, holds=follows) <= NAMED_S:
            return
        for name, process, view in self._views():
            heard_ms = process.context.run(getattr, view, "ages").heard_ms
            beat = view.last_beat if name == console.name and heard_ms < 1000 * FRESH_S else None
            if beat is not None and not beat.incomplete:
                self._around.truth.fail(f"no heartbeat names {known[0]} after {NAMED_S:g} s")

    def require_everything_fresh(self) -> None:
        if (waits_s := self._unread_s()) > FRESH_S:
            self._around.truth.fail(f"at the end, a fact was not folded for {waits_s:.1f} s")
        views = self._views()
        if len(views) < self._expected:
            self._around.truth.fail(
                f"at the end, only {len(views)} views of {self._expected} are there"
            )
        for name, process, view in views:
            if (age_s := process.context.run(getattr, view, "age_s")) > FRESH_S:
                self._around.truth.fail(f"at the end, the view of {name} is {age_s:.1f} s old")
            self._require_rows(name, view)
        self._require_what_models_know()
        self._require_ledger()

    def _require_ledger(self) -> None:
        """It holds what was committed until a while ago."""
        now, at = self._around.broker.broker.now(), ledger_position(self._around)
        with History.of(self._around.database.file) as history:
            waiting = next(history.manifests(at + 1), None)
        if waiting and (behind_s := (now - waiting.committed_at) / 1e9) > BEHIND_S:
            self._around.truth.fail(
                f"at the end, the ledger is at {at}, and {waiting.p_from} was committed "
                f"{behind_s:.1f} s ago"
            )

    def _require_what_models_know(self) -> None:
        """Of the rows, which are equal to the views."""
        cluster_state, fail = cluster_state_of(self._store.load()[1]), self._around.truth.fail
        self._around.api.places.require_in(cluster_state, fail)
        self._around.meters.require_in(cluster_state, self._folded_by(), fail)

    def _folded_by(self) -> FoldedBy:
        with History.of(self._around.database.file) as history:
            versions = [
                (each.last, manifest.fold_version)
                for manifest in history.manifests()
                for each in manifest.ranges
                if each.stream is Stream.TEL
            ]

        def folded_by(sequence: int) -> Collection[str]:
            at = bisect_left(versions, (sequence, ""))
            known = versions[at][1] if at < len(versions) else CODE_VERSION
            return {known, CODE_VERSION} if self._around.database.is_restored else {known}

        return folded_by

    def _require_rows(self, name: str, view: View) -> None:
        found, rows = self._store.load()
        there, here = cluster_state_of(rows), view.cluster_state
        if found is None or found.position != view.position:
            return  # a change is on the way
        if (here.nodes, here.pods, here.gpus) != (there.nodes, there.pods, there.gpus):
            self._around.truth.fail(f"the view of {name} differs from the rows at {view.position}")


async def require_all_equal(around: Surroundings, fail: Callable[[str], None]) -> str:
    """The log by itself: complete, chained, signed, and computed again with the same results."""
    bus = MemoryLog(around.broker.broker)
    archive = archive_of(around) if archive_of(around).exists() else None
    with Sources(around.database.file, archive).reading() as history:
        entries = list(history.entries())
        _require_each_once(around, [entry.event_id for entry in entries], fail)
        _require_read_once(around, history, fail)
        heads = await _require_verified(around, bus, fail)
        async with StreamFacts.on(bus, history) as streams:
            facts = ArchivedFacts(Archive.of(archive), streams) if archive else streams
            lost = lost_readings(Archive.of(archive)) if archive else set[int]()
            for counted in (await _counted_uj(history, facts), counted_uj(around)):
                around.meters.require_energy(counted, lost, fail)
            done = await replay(history, facts)
    if done.mismatches:
        fail(f"replay: {done.mismatches} mismatches: {done.reported[0]}")
    counts = f"{done.events} facts, {len(entries)} entries, {heads} heads"
    again = f"{done.decisions} decisions and {done.plans} plans recomputed"
    again += f", {done.set_back} of them on lost state"
    if done.uncompared:
        again += f"; {sum(done.uncompared.values())} facts of another version"
    if done.holes:
        again += f"; {done.in_holes} not recomputed, in a hole"
    return f"{counts}; {again}"


async def _counted_uj(history: History, facts: ColumnSource) -> Mapping[str, int]:
    """The energy of each node in a ledger of the whole log."""
    executor, counted = DatabaseExecutor(), Counter[str]()
    shared = {"check_same_thread": False}  # with the thread of the executor
    engine = create_engine("sqlite://", poolclass=StaticPool, connect_args=shared)
    try:
        metadata.create_all(engine, tables=[batch])
        ledger_metadata.create_all(engine)
        table = _CountingTable(engine, counted)
        follower = LedgerFollower(table, executor)
        while not await follower.catch_up(history, facts):
            pass
        state = table.load() or LedgerState()
    finally:
        executor.close()
        engine.dispose()
    state.ledger.end()
    _count(state.ledger.closed, counted)
    return counted


def _count(intervals: Iterable[Interval], counted: Counter[str]) -> None:
    for interval in intervals:
        for each in interval.nodes if interval.grain == "minutes" else ():
            counted[each.node] += each.pods_uj + each.idle_uj


class _CountingTable(EnergyTable):
    """Counts the intervals that it saves: those of an earlier hour are not kept in minutes."""

    def __init__(self, engine: Engine, counted: Counter[str]) -> None:
        super().__init__(engine)
        self._counted = counted

    def save(self, before: int, state: LedgerState) -> None:
        _count(state.ledger.closed, self._counted)
        super().save(before, state)


def _require_read_once(around: Surroundings, history: History, fail: Callable[[str], None]) -> None:
    broker = around.broker.broker
    stored = {stream: broker.stream(stream).last for stream in MERGE_ORDER}
    require_each_message_once(history.manifests(), stored.__getitem__, fail)


async def _require_verified(
    around: Surroundings, bus: MemoryLog, fail: Callable[[str], None]
) -> int:
    published = [statement_in(each.data) for each in await everything(bus, Stream.HEADS)]
    anchored = [each for each in published if isinstance(each, Head)]
    with History.of(around.database.file) as history:
        report = verify(history, Signer.of(around.key).public, anchored)
    if report.flaw is not None:
        fail(f"verify: {report.flaw}")
    if report.gaps:
        fail(f"verify: numbers are missing: {report.gaps}")
    return report.heads


def _require_each_once(around: Surroundings, ids: list[str], fail: Callable[[str], None]) -> None:
    counted = Counter(ids)
    twice = [each for each, count in counted.items() if count > 1]
    lost = [each for each in around.truth.spooled if each not in counted]
    if twice:
        fail(f"{len(twice)} entries are in the log twice, the first is {twice[0]}")
    if lost:
        fail(f"{len(lost)} answers are not in the log, the first is {lost[0]}")
