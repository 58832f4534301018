"""Test kit: builds a recorded log in memory and in a real database."""

import contextlib
import struct
from collections.abc import AsyncGenerator, Callable, Generator, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

from msgspec.structs import replace

from bus_kit import CLUSTER, VirtualClock, ask, hardware, node_seen, power
from bus_kit.memory_broker import MemoryBroker, MemoryLog
from joulie_answers.views.decision_text import considers
from joulie_audit.archive.archived_facts import ArchivedFacts
from joulie_audit.archive.archiver import Archiver, ArchiveResult
from joulie_audit.archive.columnar import Format, Parquet, Segment
from joulie_audit.archive.fact_source import FactSource, StreamFacts
from joulie_audit.archive.parts import FACTS, LOG, Archive, Part
from joulie_audit.archive.restore import ALL, Restored, RestoreOptions, restore_at
from joulie_audit.columns.tables import KINDS, Columns, Kind
from joulie_audit.questions.explain import read
from joulie_bus.events import AnyEvent, Fact, PodAsk
from joulie_bus.log.producer import Producer
from joulie_bus.streams.records import Message, Record
from joulie_bus.streams.subjects import MERGE_ORDER, Stream
from joulie_extender.catalogue.declaration import declaration
from joulie_extender.catalogue.weights import Weights
from joulie_extender.decide.decide import DecisionContext, decide_filter, decide_prioritize
from joulie_operator.planning.reconcile import PlanBasis, plan
from joulie_operator.planning.rules import Rules
from joulie_operator.plugins import load_policy
from joulie_projections.chain.entry import Entry, entry_of
from joulie_projections.chain.head import Head
from joulie_projections.chain.keyring import Ring
from joulie_projections.chain.log_end import chained
from joulie_projections.decision_log import key_change
from joulie_projections.decision_log.heads import Signer
from joulie_projections.decision_log.log import DecisionLog, Signature
from joulie_projections.fold.commit import Poison
from joulie_projections.fold.manifest import CODE_VERSION, Manifest, rechained
from joulie_projections.fold.quarantine_quota import within_quota
from joulie_projections.fold.sequence import FoldCursor, input_after, sequence
from joulie_projections.fold.snapshots import frozen_state_of, pack
from joulie_projections.history.history import History, StoredEntry
from joulie_projections.state.state import ClusterState
from joulie_projections.state.state_changes import Draft
from joulie_projections.store import database
from joulie_projections.store.database import Place
from joulie_projections.store.store import Store
from joulie_projections.twin.columns import TwinColumns
from signed_heads import begun

RULES = Rules(caps_settle_s=0.0, equal_nodes="by-name")  # n1 and n2 supply performance
NAMES = ("n1", "n2", "n3", "n4")
Evolve = Callable[[Draft, Fact, int], None]


class LogBuilder:
    """Writes facts, plans and decisions as the projector, the operator and the extender do."""

    def __init__(self, store: Store, decision_log: DecisionLog, signer: Signer) -> None:
        self.fold_version = CODE_VERSION
        self.clock = VirtualClock()
        self.broker = MemoryBroker(CLUSTER, self.clock)
        self.bus = MemoryLog(self.broker)
        self.signer = signer
        self.cluster_state = ClusterState()
        self.weights = Weights()
        self._store, self._decision_log = store, decision_log
        lease = self._store.acquire("test", 1e9, "inc", lambda _: True)
        assert lease is not None
        self._epoch = lease.epoch
        self._cursor = FoldCursor(0, {}, lease.digests, b"")
        self._facts = Producer("facts", CLUSTER, self.clock, "b1")
        self._producer = Producer("extender-0", CLUSTER, self.clock, "b1")
        self._read = dict.fromkeys(Stream, 0)
        begun(decision_log, signer.public, self._epoch)

    @property
    def position(self) -> int:
        return self._cursor.position

    async def facts(self, *events: Fact, after_s: float = 1.0) -> None:
        """Publishes and commits one batch."""
        self.clock.advance(after_s)
        await self.publish_facts(*events)
        await self._commit(await self._new_facts())

    async def publish_facts(self, *events: Fact) -> None:
        await self.bus.publish([self._facts.stamp(event) for event in events])

    async def quarantined_facts(self, *events: Fact) -> None:
        """Commits a batch as quarantined, as if older code could not read it."""
        await self.publish_facts(*events)
        records, first = await self._new_facts(), self.position + 1
        poison = [
            Poison(position, str(record.stream), record.sequence, "unknown then", record.data)
            for position, record in enumerate(records, first)
        ]
        await self._commit(records, poison)

    def read_on(self, stream: Stream, messages: int) -> None:
        """Passes over messages of a stream, or reads some again, as a projector with a fault."""
        self._read[stream] += messages

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
        done = sequence(self.cluster_state, self._cursor, records, created, self.clock(), aside)
        manifest = rechained(done.commit.manifest._replace(fold_version=self.fold_version))
        commit = done.commit._replace(manifest=manifest, poison=within_quota(poison))
        self._store.commit(self._epoch, commit)
        done.draft.commit()
        self._cursor = done.cursor._replace(head=manifest.head)

    @contextlib.contextmanager
    def folded_by(self, version: str, evolve: Evolve) -> Generator[None, None, None]:
        """Commits as code with another version of the folds does."""
        before, self.fold_version = self.fold_version, version
        with mock.patch("joulie_projections.fold.sequence.evolve", evolve):
            yield
        self.fold_version = before

    async def plan(self, rules: Rules = RULES, beside: Sequence[Fact] = ()) -> None:
        """Publishes a plan, in one batch with the facts `beside`."""
        moment = PlanBasis(self.position, self.clock())
        made = plan(self.cluster_state, load_policy(rules.policy), rules, moment)
        await self.facts(*beside, made.made, *made.events)

    async def declare(self) -> None:
        await self.publish(declaration(self.weights))

    async def answer(self, pod: PodAsk, names: Sequence[str] = NAMES) -> None:
        """Filters and scores a pod, as kube-scheduler requests it."""
        twin_columns = TwinColumns.of_state(self.cluster_state)
        moment = DecisionContext(twin_columns, self.position, 3, self.clock())
        filtered = decide_filter(pod, names, moment, self.weights)
        left = [name for name, code in zip(names, filtered.verdicts, strict=True) if code == 0]
        await self.publish(filtered, decide_prioritize(pod, left, moment, self.weights))

    async def publish(self, *entries: AnyEvent) -> None:
        messages = [self._producer.stamp(entry) for entry in entries]
        await self.write(messages, entry_of)

    async def write(self, messages: Sequence[Message], to_entry: Callable[[Record], Entry]) -> None:
        """Publishes messages, and writes the entry that `to_entry` makes of each."""
        await self.bus.publish(messages)
        async with self.bus.reading(Stream.DEC, self._read[Stream.DEC]) as reader:
            records = reader.take(10_000)
        self._read[Stream.DEC] += len(records)
        log, created = self._decision_log, (await self.bus.state(Stream.DEC)).created
        if not records:
            return
        if to_entry is entry_of:
            log.append(self._epoch, records, created)
            return
        added = [to_entry(record) for record in records]
        log.write(self._epoch, chained(log.end, added, input_after(created, records[-1])))

    async def leave_out(self, kept: Sequence[Record], last: Record) -> None:
        """Writes entries of some messages, as if it had read all of the stream up to `last`."""
        created = (await self.bus.state(Stream.DEC)).created
        log, added = self._decision_log, [entry_of(record) for record in kept]
        log.write(self._epoch, chained(log.end, added, input_after(created, last)))

    def snapshot(self) -> int:
        """Keeps a snapshot as the projector does; returns its position."""
        made = pack(frozen_state_of(self.cluster_state, self._cursor), self.clock())
        made = made._replace(fold_version=self.fold_version)
        self._store.save_snapshot(self._epoch, made, 100)
        return made.position

    def skip_number(self) -> None:
        """Uses a sequence number without publishing an entry."""
        self._producer.stamp(declaration(self.weights))

    def rotate(self) -> None:
        """Changes the key that signs the next head."""
        key_change.request_rotation(self.signer.path)
        self._change_key()

    def retire(self, key_id: str, since: int) -> None:
        key_change.request_retirement(self.signer.path, key_id, since)
        self._change_key()

    def _change_key(self) -> None:
        end = self._decision_log.signed_to(self._epoch)
        self.signer = key_change.prepare(self.signer, *end, self.clock()).complete()

    def sign(self) -> Head:
        cursor = self._cursor
        facts = cursor.position, cursor.head, cursor.inputs
        beside = Signature("inc", *facts, self.clock())
        head = self._decision_log.sign(self._epoch, self.signer, beside)
        assert head is not None
        return head


class RecordedLog(NamedTuple):
    """A log builder and the database that it writes to."""

    builder: LogBuilder
    database: Place

    @contextlib.asynccontextmanager
    async def reading(self) -> AsyncGenerator[tuple[History, StreamFacts], None]:
        with History.of(self.database) as history:
            async with StreamFacts.on(self.builder.bus, history) as facts:
                yield history, facts


async def record_small_log(recorded: RecordedLog) -> None:
    """Four nodes, measured twice; a plan; two pods decided before it and two after; signed."""
    made = recorded.builder
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
async def small_log_in(place: Place, keys: Path) -> AsyncGenerator[RecordedLog, None]:
    """Records the small log in a database of its own."""
    engine = database.writer(place)
    try:
        signer = Signer.of(keys / "head.key")
        builder = LogBuilder(Store(engine), DecisionLog(engine), signer)
        recorded = RecordedLog(builder, place)
        await record_small_log(recorded)
        yield recorded
    finally:
        engine.dispose()


def restore_into(archive: Path, file: Path, options: RestoreOptions = ALL) -> Restored:
    """Restores an archive into a new database file."""
    return restore_at(file, Archive.of(archive), options)


async def written_archive(
    recorded: RecordedLog, to: Path, form: Format | None = None, before: int = 2**62
) -> ArchiveResult:
    """Everything up to a time, as the archiver writes it."""
    ring = recorded.builder.signer.public
    async with recorded.reading() as (history, facts):
        return await Archiver(to, form or Segment(), before, ring).run(history, facts)


def write_again(archive: Archive, to: Path, ring: Ring) -> Path:
    """The same parts in Parquet."""
    archiver = Archiver(to, Parquet(), 0, ring)
    for kind, found_in in ((FACTS, archive.read_facts), (LOG, archive.read_log)):
        before = Part.before_the_first(kind)
        for place, part in archive.parts(kind):
            blank = replace(part, files=[], prev=before.seal, seal="")
            before = archiver.written(
                to / place.relative_to(archive.path), blank, found_in(place, part)
            )
    return to


def typed_columns(file: Path) -> Columns:
    """Of a typed table in Parquet, as it is written: times in milliseconds, lists in bytes."""
    parquet = import_module("pyarrow.parquet")
    columns: dict[str, list[Any]] = parquet.read_table(file).to_pydict()
    return {name: list(map(_as_written(KINDS[file.stem][name]), columns[name])) for name in columns}


def _as_written(kind: Kind) -> Callable[[Any], Any]:
    def written(value: Any) -> Any:
        if value is None:
            return None
        if kind is Kind.TIME:
            return round(value.timestamp() * 1000)
        return struct.pack(f"<{len(value)}{LETTERS[kind]}", *value) if kind.width else value

    return written


LETTERS = {Kind.INT32S: "i", Kind.INT16S: "h", Kind.BYTES: "B"}


class FactsAfter:
    """Facts up to a position have aged out: a request for one of them fails."""

    def __init__(self, facts: FactSource, position: int) -> None:
        self._facts, self._after = facts, position

    async def of(
        self, manifest: Manifest, streams: frozenset[Stream] = frozenset(MERGE_ORDER)
    ) -> list[Record]:
        assert manifest.p_from > self._after, f"{manifest.p_from} was requested"
        return await self._facts.of(manifest, streams)


class NoFacts:
    """Facts that have aged out of every stream: every request fails."""

    async def of(
        self, manifest: Manifest, streams: frozenset[Stream] = frozenset(MERGE_ORDER)
    ) -> list[Record]:
        raise AssertionError(f"{len(streams)} streams were requested at {manifest.p_from}")


@dataclass(frozen=True)
class ArchiveOpener:
    """Opens archived facts. Worker processes unpickle it."""

    path: Path

    def __call__(self, history: History) -> contextlib.AbstractAsyncContextManager[FactSource]:
        return contextlib.nullcontext(ArchivedFacts(Archive.of(self.path), NoFacts()))


def about_node(history: History, node: str) -> Callable[[StoredEntry], bool]:
    """Whether an entry considered the node."""
    spans = history.row_names().spans_of(node)
    return lambda entry: considers(read(entry), node, spans)
