"""For tests and benchmarks: a past in memory and in a real database, made as real ones are."""

import contextlib
from collections.abc import AsyncGenerator, Sequence
from pathlib import Path
from typing import NamedTuple

import joulie_migrations
from joulie_audit.archive.fact_source import Facts, StreamFacts
from joulie_audit.archive.parts import Archive
from joulie_audit.archive.restore import Restored, restore
from joulie_bus.events import AnyEvent, Fact, PodAsk
from joulie_bus.streams.memory import MemoryBroker, MemoryLog
from joulie_bus.streams.producer import Producer
from joulie_bus.streams.records import Record
from joulie_bus.streams.subjects import MERGE_ORDER, Stream
from joulie_bus.testing import CLUSTER, VirtualClock, ask, hardware, node_seen, power
from joulie_extender.decide.decide import (
    DecisionContext,
    decide_filter,
    decide_prioritize,
    declaration,
)
from joulie_extender.decide.scoring import Weights
from joulie_operator.planning.plugins import chosen
from joulie_operator.planning.reconcile import Moment as Situation
from joulie_operator.planning.reconcile import plan
from joulie_operator.planning.rules import Rules
from joulie_projections.decision_log import key_change
from joulie_projections.decision_log.entry import Entry, about_before_bounds, entry_of
from joulie_projections.decision_log.heads import Head, Signer
from joulie_projections.decision_log.log import DecisionLog
from joulie_projections.fold.commit import Input, Poison
from joulie_projections.fold.manifest import Manifest
from joulie_projections.fold.quarantine_quota import in_short
from joulie_projections.fold.sequence import Standing, sequence
from joulie_projections.fold.snapshots import moment_of, pack
from joulie_projections.history.history import History
from joulie_projections.state.state import ClusterState
from joulie_projections.store import database
from joulie_projections.store.database import Place
from joulie_projections.store.store import Store
from joulie_projections.twin.columns import TwinColumns

RULES = Rules(caps_settle_s=0.0)
NAMES = ("n1", "n2", "n3", "n4")


class LogMaker:
    """Facts, plans and answers as the projector, the operator and an extender would leave them.

    `headers`: else its entries are those that were logged before entries had any.
    """

    def __init__(
        self, store: Store, log: DecisionLog, signer: Signer, *, headers: bool = True
    ) -> None:
        self.headers = headers
        self.clock = VirtualClock()
        self.broker = MemoryBroker(CLUSTER, self.clock)
        self.bus = MemoryLog(self.broker)
        self.signer = signer
        self.cluster_state = ClusterState()
        self.weights = Weights()
        self._store, self._log = store, log
        held = self._store.acquire("test", 2**62, 0, "inc", lambda _: True)
        assert held is not None
        self._epoch = held.epoch
        self._standing = Standing(0, {}, held.digests, b"")
        self._facts = Producer("facts", CLUSTER, self.clock, "b1")
        self._says = Producer("extender-0", CLUSTER, self.clock, "b1")
        self._read = dict.fromkeys(Stream, 0)
        self._log.open()

    @property
    def position(self) -> int:
        return self._standing.position

    async def facts(self, *events: Fact, after_s: float = 1.0) -> None:
        """One batch, committed."""
        self.clock.advance(after_s)
        await self.bus.publish([self._facts.stamp(event) for event in events])
        await self._commit(await self._new_facts())

    async def poisoned(self, *events: Fact) -> None:
        """A batch that the code of then could not read, though today's can."""
        await self.bus.publish([self._facts.stamp(event) for event in events])
        records, first = await self._new_facts(), self.position + 1
        poison = [
            Poison(position, str(record.stream), record.sequence, "unknown then", record.data)
            for position, record in enumerate(records, first)
        ]
        await self._commit(records, poison)

    async def _new_facts(self) -> list[Record]:
        records: list[Record] = []
        for stream in MERGE_ORDER:
            async with self.bus.reading(stream, self._read[stream]) as reader:
                taken = reader.take(10_000)
            records += taken
            self._read[stream] += len(taken)
        return records

    async def _commit(self, records: Sequence[Record], poison: Sequence[Poison] = ()) -> None:
        created = {stream: (await self.bus.state(stream)).created for stream in MERGE_ORDER}
        aside = {found.position for found in poison}
        done = sequence(self.cluster_state, self._standing, records, created, self.clock(), aside)
        self._store.commit(self._epoch, done.commit._replace(poison=in_short(poison)))
        done.draft.commit()
        self._standing = done.standing

    async def plan(self, rules: Rules = RULES, beside: Sequence[Fact] = ()) -> None:
        """In one batch with what else was said by then."""
        moment = Situation(self.position, self.clock())
        made = plan(self.cluster_state, chosen(rules.policy), rules, moment)
        await self.facts(*beside, made.made, *made.events)

    async def declare(self) -> None:
        await self.say(declaration(self.weights))

    async def answer(self, pod: PodAsk, names: Sequence[str] = NAMES) -> None:
        """Filtered and scored, as kube-scheduler asks."""
        twin_columns = TwinColumns.believing(self.cluster_state)
        moment = DecisionContext(twin_columns, self.position, 3, self.clock())
        filtered = decide_filter(pod, names, moment, self.weights)
        left = [name for name, code in zip(names, filtered.verdicts, strict=True) if code == 0]
        await self.say(filtered, decide_prioritize(pod, left, moment, self.weights))

    async def say(self, *entries: AnyEvent) -> None:
        await self.bus.publish([self._says.stamp(entry) for entry in entries])
        async with self.bus.reading(Stream.DEC, self._read[Stream.DEC]) as reader:
            records = reader.take(10_000)
        self._read[Stream.DEC] += len(records)
        log = entry_of if self.headers else _entry_without_header
        added = [log(record) for record in records]
        self._log.append(self._epoch, added, Input("", self._read[Stream.DEC]))

    def snapshot(self) -> int:
        """Kept as the projector would; its position."""
        made = pack(moment_of(self.cluster_state, self._standing), self.clock())
        self._store.keep(self._epoch, made, 100)
        return made.position

    def drop(self) -> None:
        """A number is used, and what it was for never comes."""
        self._says.stamp(declaration(self.weights))

    def rotate(self) -> None:
        """The next head is another key's."""
        key_change.ask_rotation(self.signer.path)
        self._change_key()

    def retire(self, key_id: str, since: int) -> None:
        key_change.ask_retirement(self.signer.path, key_id, since)
        self._change_key()

    def _change_key(self) -> None:
        end = self._log.signed_to(self._epoch)
        self.signer = key_change.begun(self.signer, *end, self.clock()).done()

    def sign(self) -> Head:
        head = self._log.sign_head(self._epoch, self.signer, self.clock())
        assert head is not None
        return head


class Past(NamedTuple):
    """What was made, and how it is read."""

    maker: LogMaker
    database: Place

    @contextlib.asynccontextmanager
    async def reading(self) -> AsyncGenerator[tuple[History, StreamFacts], None]:
        with History.of(self.database) as history:
            async with StreamFacts.on(self.maker.bus, history) as facts:
                yield history, facts


def _entry_without_header(record: Record) -> Entry:
    return Entry(about_before_bounds(record.data, str(record.stream)), record.data)


async def small_past(past: Past) -> None:
    """Four nodes, measured twice; a plan; two pods answered before it and two after. Signed."""
    made = past.maker
    await made.declare()
    await made.facts(*(node_seen(name) for name in NAMES), *(hardware(name) for name in NAMES))
    await made.facts(*(power(name, 100 + 90 * at) for at, name in enumerate(NAMES)))
    await made.answer(ask("early-1"))
    await made.answer(ask("early-2", performance=True, cores=8))
    await made.plan()
    await made.facts(*(power(name, 120 + 80 * at) for at, name in enumerate(NAMES)), after_s=20)
    await made.answer(ask("late-1", cores=4))
    made.sign()
    await made.answer(ask("late-2", performance=True))
    made.sign()


@contextlib.asynccontextmanager
async def small_past_in(
    place: Place, keys: Path, *, headers: bool = True
) -> AsyncGenerator[Past, None]:
    """The same in a database of one's own."""
    engine = database.writer(place)
    try:
        signer = Signer.of(keys / "head.key")
        maker = LogMaker(Store(engine), DecisionLog(engine), signer, headers=headers)
        past = Past(maker, place)
        await small_past(past)
        yield past
    finally:
        engine.dispose()


def restored(archive: Path, file: Path) -> Restored:
    """A database of its own from an archive."""
    made = database.migrator(file)
    joulie_migrations.upgrade(made)
    made.dispose()
    engine = database.writer(file)
    try:
        store = Store(engine)
        held = store.acquire("restore", 2**62, 0, "restored", lambda _: True)
        assert held is not None
        return restore(Archive.of(archive), store, DecisionLog(engine), held)
    finally:
        engine.dispose()


class Since:
    """Facts of which the older ones have aged out: who asks for one all the same fails."""

    def __init__(self, facts: Facts, position: int) -> None:
        self._facts, self._position = facts, position

    async def of(
        self, manifest: Manifest, streams: frozenset[Stream] = frozenset(MERGE_ORDER)
    ) -> list[Record]:
        assert manifest.p_from > self._position, f"{manifest.p_from} was asked for"
        return await self._facts.of(manifest, streams)


class Gone:
    """Facts that have aged out of every stream: who asks for one all the same fails."""

    async def of(
        self, manifest: Manifest, streams: frozenset[Stream] = frozenset(MERGE_ORDER)
    ) -> list[Record]:
        raise AssertionError(f"{len(streams)} streams were asked for {manifest.p_from}")
