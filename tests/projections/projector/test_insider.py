"""A program with the projector's right to the database writes beside it, and the projector is
killed, replaced or its log trimmed: each answer becomes one entry, and each fact is folded."""

import asyncio
import contextlib
import itertools
import signal
from collections.abc import Awaitable, Callable, Generator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from sqlalchemy import insert, select, text
from sqlalchemy.exc import DatabaseError

from bus_kit import CLUSTER, Senders, decided, node_seen
from joulie_audit.archive.archiver import Archiver
from joulie_audit.archive.columnar import Segment
from joulie_audit.archive.combined_history import Sources
from joulie_audit.archive.fact_source import StreamFacts
from joulie_audit.archive.parts import Archive
from joulie_audit.retention.cut_points import CutOptions
from joulie_audit.verify.stream_messages import Compared, compare_messages
from joulie_audit.verify.verify import verify
from joulie_bus.broker.embedded import Embedded
from joulie_bus.events import AnyEvent, StateSetBack
from joulie_bus.jetstream.log import JetStreamLog
from joulie_bus.streams.records import Message
from joulie_bus.streams.roles import Role
from joulie_bus.streams.subjects import Stream
from joulie_projections.decision_log.heads import Signer
from joulie_projections.fold.commit import Inputs
from joulie_projections.fold.manifest import Range, rechained
from joulie_projections.history.history import History
from joulie_projections.history.trimming import TrimStore
from joulie_projections.projector.projector import ProjectorSettings
from joulie_projections.projector.trim_streams import anchored_heads
from joulie_projections.store import database
from joulie_projections.store.database import Place
from joulie_projections.store.tables import batch, checkpoint
from planted_rows import forged, plant
from projections_kit import EXIT_FENCED, ProjectorProcess, tamper
from trim_kit import ArchiveTrim, Trim

pytestmark = [pytest.mark.anyio, pytest.mark.slow]
SETTINGS = ProjectorSettings(batch=20, lease_s=0.4, snapshot_every=2)


class Site:
    """Projectors in processes of their own, on one database and one broker."""

    def __init__(self, broker: Embedded, bus: JetStreamLog, place: Place, directory: Path) -> None:
        self.place, self.bus, self.archive = place, bus, directory / "archive"
        self.ids: list[str] = []  # of the answers
        self._broker, self._key = broker, directory / "signing.key"
        self._senders, self._facts = Senders(), 0
        self.processes: list[ProjectorProcess] = []

    @property
    def signer(self) -> Signer:
        return Signer.of(self._key)

    def start(self) -> ProjectorProcess:
        address = self._broker.address_of(Role.PROJECTOR)
        made = ProjectorProcess(address, CLUSTER, self.place, self._key, SETTINGS)
        self.processes.append(made)
        return made

    async def publish(self, *uids: str) -> None:
        """An answer about each pod, and a node of the same name."""
        answers = [self._stamp(decided(uid)) for uid in uids]
        self.ids += [message.id for message in answers]
        await self.bus.publish([*answers, *(self._stamp(node_seen(uid)) for uid in uids)])
        self._facts += len(uids)

    def _stamp(self, event: AnyEvent) -> Message:
        return self._senders.stamp(event)

    async def caught_up(self) -> None:
        async with asyncio.timeout(60):
            while await asyncio.to_thread(self._reached) != (len(self.ids), self._facts):
                await asyncio.sleep(0.05)

    def _reached(self) -> tuple[int, int]:
        with History.of(self.place) as history:
            held = history.checkpoint()
            answers = history.tip() - len(list(history.set_backs()))
            return answers, held.position if held else 0

    async def trim(self) -> Trim:
        sources, ring = Sources(self.place), self.signer.public
        with sources.reading() as history:
            async with StreamFacts.on(self.bus, history) as facts:
                await Archiver(self.archive, Segment(), 2**62, ring).run(history, facts)
        engine = database.trimmer(self.place)
        try:
            trimmer = ArchiveTrim(
                Archive.of(self.archive), TrimStore(engine), sources.reading, ring
            )
            anchored = await anchored_heads(self.bus, 1000)
            return await trimmer.run(self.bus, anchored, CutOptions(2**62, "test"), 1)
        finally:
            engine.dispose()


@pytest.fixture
def site(
    broker: Embedded, bus: JetStreamLog, place: Place, tmp_path: Path
) -> Generator[Site, None, None]:
    made = Site(broker, bus, place, tmp_path)
    yield made
    for process in made.processes:
        process.end()


Attack = Callable[[Site], None]
End = Callable[[Site, Attack], Awaitable[None]]


# --- what the program writes ----------------------------------------------------------------------


def nothing(_: Site) -> None: ...


def the_next_id(site: Site) -> None:
    """Ids are counted: replica, boot, number."""
    boot, _, number = site.ids[-1].rpartition(":")
    plant(site.place, forged("forged", f"{boot}:{int(number) + 1}"))


def a_copied_row(site: Site) -> None:
    """The content of an answer under another id, as the id of a row is unique."""
    plant(site.place, forged("a", "extender:other:1"))


def a_later_end(site: Site) -> None:
    """The record of the end, forward over messages that no process has read."""
    plant(site.place, forged("forged", "extender:other:2"))
    tamper(site.place, "UPDATE checkpoint SET position = position + 1 WHERE name = 'decisions'")
    _read_forward(site, "decisions")


def facts_forward(site: Site) -> None:
    _read_forward(site, "projector")


def a_later_position(site: Site) -> None:
    tamper(site.place, "UPDATE checkpoint SET position = position + 4 WHERE name = 'projector'")


def _read_forward(site: Site, name: str) -> None:
    with History.of(site.place) as history:
        query = text("SELECT inputs FROM checkpoint WHERE name = :name")
        packed = history.connection.scalar(query, {"name": name})
    read = msgspec.msgpack.decode(packed, type=Inputs)
    later = {
        stream: msgspec.structs.replace(at, sequence=at.sequence + 1, digest=b"")
        for stream, at in read.items()
    }
    changed = "UPDATE checkpoint SET inputs = ? WHERE name = ?"
    tamper(site.place, changed, msgspec.msgpack.encode(later), name)


def no_record(site: Site) -> None:
    tamper(site.place, "UPDATE checkpoint SET inputs = ?, head = ?", b"\xc1", b"")


def a_manifest(site: Site) -> None:
    """Which says that the next two messages were read, and has the place of the next commit."""
    with History.of(site.place) as history:
        [last] = itertools.islice(history.manifests_back(), 1)
        held = history.checkpoint()
    assert held is not None
    read = held.inputs[Stream.OBS].sequence
    forged = last._replace(
        p_from=last.p_to + 1,
        p_to=last.p_to + 2,
        ranges=(Range(Stream.OBS, read + 1, read + 2),),
        prev=last.head,
    )
    packed = rechained(forged)._asdict() | {"ranges": msgspec.msgpack.encode(forged.ranges)}
    engine = database.writer(site.place)
    with engine.begin() as db:
        db.execute(insert(batch).values(**packed))
    engine.dispose()


def a_deleted_tail(site: Site) -> None:
    """The entries behind the newest head."""
    tamper(site.place, "DELETE FROM decision WHERE pos > (SELECT max(pos) FROM head)")


def a_deleted_tail_with_its_head(site: Site) -> None:
    tamper(site.place, "DELETE FROM decision WHERE pos > 2")
    tamper(site.place, "DELETE FROM head")


ATTACKS: list[Attack] = [
    nothing,
    the_next_id,
    a_copied_row,
    a_later_end,
    facts_forward,
    a_later_position,
    no_record,
    a_manifest,
    a_deleted_tail,
    a_deleted_tail_with_its_head,
]


# --- how the projector ends -----------------------------------------------------------------------


async def killed(site: Site, attack: Attack) -> None:
    site.processes[-1].end()
    attack(site)
    await site.publish("e", "f")
    site.start()


async def attacked_before_it_is_killed(site: Site, attack: Attack) -> None:
    """Between the commit of the last entries and their signature."""
    attack(site)
    site.processes[-1].end()
    await site.publish("e", "f")
    site.start()


async def replaced(site: Site, attack: Attack) -> None:
    """A frozen projector loses its lease, and continues once the other one has written."""
    frozen = site.processes[-1]
    await frozen_between_commits(site, frozen)
    attack(site)
    await site.publish("e", "f")
    site.start()
    await site.caught_up()
    frozen.signal(signal.SIGCONT)
    async with asyncio.timeout(60):
        while frozen.exit_code is None:
            await asyncio.sleep(0.01)
    assert frozen.exit_code == EXIT_FENCED


async def killed_and_trimmed(site: Site, attack: Attack) -> None:
    site.processes[-1].end()
    trimmed = await site.trim()
    assert trimmed.cut is not None
    await killed(site, attack)


async def frozen_between_commits(site: Site, process: ProjectorProcess) -> None:
    """One that is frozen within a transaction would keep the database locked."""
    engine = database.writer(site.place)
    try:
        while True:
            process.signal(signal.SIGSTOP)
            with contextlib.suppress(DatabaseError), engine.begin() as db:
                db.execute(select(checkpoint).with_for_update(nowait=True)).all()
                return
            process.signal(signal.SIGCONT)
            await asyncio.sleep(0.05)
    finally:
        engine.dispose()


ENDS: list[End] = [
    killed,
    attacked_before_it_is_killed,
    replaced,
    killed_and_trimmed,
]
QUICK = (the_next_id, a_later_end, facts_forward)
BEFORE_EACH_END = (nothing, a_later_end)
UNTRIMMED = (a_deleted_tail_with_its_head,)  # the archive alone has the entries before a cut


def pair(place: str, end: End, attack: Attack) -> Any:
    """Every pair is tried on SQLite. On PostgreSQL each attack and each end is; drills try all."""
    marks = [] if end is killed and attack in QUICK else [pytest.mark.long]
    if place == "postgres" and end is not killed and attack not in BEFORE_EACH_END:
        marks = [pytest.mark.drill]
    name = place.removesuffix("_file").replace("database", "sqlite")
    return pytest.param(
        place, end, attack, marks=marks, id=f"{name}-{end.__name__}, {attack.__name__}"
    )


@pytest.mark.parametrize(
    ("place", "end", "attack"),
    [
        pair(place, end, attack)
        for place in ("database_file", "postgres")
        for end in ENDS
        for attack in ATTACKS
        if not (end is killed_and_trimmed and attack in UNTRIMMED)
    ],
    indirect=["place"],
)
async def test_no_answer_and_no_fact_is_lost_or_replaced(
    site: Site, end: End, attack: Attack
) -> None:
    first = site.start()
    await site.publish("a", "b", "c")
    await site.caught_up()
    await ended(first)  # signs the end of the log
    site.start()
    await site.publish("d")
    await site.caught_up()

    await end(site, attack)
    await site.caught_up()
    await site.publish("g")
    await site.caught_up()
    await ended(site.processes[-1])

    heads = await anchored_heads(site.bus, 1000)
    with History.of(site.place) as history:
        answers = [each for each in history.entries() if each.kind != StateSetBack.TYPE]
        logged = [(entry.event_id, entry.pod_uid) for entry in answers]
        last = history.tip()
        nodes = set(history.cluster_state().nodes)
        report = verify(history, site.signer.public, heads)
        compared = await compare_messages(site.bus, history, site.signer.public, heads)
    assert (report.flaw, compared, heads[-1].pos) == (None, Compared(), last)
    cut = report.cut.pos if report.cut else 1
    assert logged == list(zip(site.ids, "abcdefg", strict=True))[cut - 1 :]
    assert nodes == set("abcdefg")


async def test_a_manifest_in_the_place_of_the_next_one_does_not_end_the_projector(
    site: Site,
) -> None:
    process = site.start()
    await site.publish("a")
    await site.caught_up()

    a_manifest(site)
    await site.publish("b", "c")
    await site.caught_up()

    assert process.exit_code is None
    with History.of(site.place) as history:
        report = verify(history, site.signer.public, ())
        moved = [each.table for each in report.others.rows]
    assert (report.flaw, moved) == (None, ["batch"])


async def ended(process: ProjectorProcess) -> None:
    process.signal(signal.SIGTERM)
    async with asyncio.timeout(60):
        while process.exit_code is None:
            await asyncio.sleep(0.01)
