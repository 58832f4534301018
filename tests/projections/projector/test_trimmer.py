"""The projector deletes what the archiver asks for, and nothing that it knows to be needed."""

import contextlib
import time
from collections.abc import AsyncGenerator, Callable
from pathlib import Path

import msgspec
import pytest
from sqlalchemy import func, select

from audit_kit import RecordedLog, small_log_in, written_archive
from bus_kit import CLUSTER
from joulie_audit.archive.parts import Archive
from joulie_audit.retention.cut_points import CutEvidence, CutOptions, asked_cut
from joulie_bus.broker.embedded import Embedded
from joulie_bus.errors import BrokerRefused
from joulie_bus.jetstream.log import JetStreamLog
from joulie_bus.runtime.tasks import background
from joulie_bus.streams.cut_requests import CutAnswer, CutRequest, answer_in, encode
from joulie_bus.streams.records import Message
from joulie_bus.streams.roles import Role
from joulie_projections.decision_log import heads
from joulie_projections.history.history import History
from joulie_projections.history.trimming import TrimStore
from joulie_projections.projector import trimmer as trimming
from joulie_projections.projector.trim_streams import anchored_heads
from joulie_projections.projector.trimmer import TrimTask
from joulie_projections.store import database
from joulie_projections.store.database import Place
from joulie_projections.store.tables import decision

pytestmark = pytest.mark.anyio
ANSWER_S = 30.0
Change = Callable[[CutRequest], CutRequest]


class Site:
    """A recorded log with its archive, and a broker that has its heads."""

    def __init__(self, recorded: RecordedLog, archive: Path, archivist: JetStreamLog) -> None:
        self.recorded = recorded
        self.archive = archive
        self.archivist = archivist

    async def asked(self) -> CutRequest:
        """What an archiver asks for that has all of it."""
        anchored = await anchored_heads(self.archivist, 100)
        public = self.recorded.builder.signer.public
        evidence = CutEvidence(Archive.of(self.archive), anchored, public)
        with History.of(self.recorded.database) as history:
            found = asked_cut(history, evidence, CutOptions(2**62, "host:1"))
        assert found is not None
        return found

    async def answer(self, asked: bytes) -> CutAnswer:
        return answer_in(await self.archivist.ask(CLUSTER.cuts, asked, ANSWER_S))

    def rows(self) -> int:
        engine = database.reader(self.recorded.database)
        try:
            with engine.connect() as db:
                return db.scalar(select(func.count()).select_from(decision)) or 0
        finally:
            engine.dispose()


@pytest.fixture
async def site(place: Place, tmp_path: Path, broker: Embedded) -> AsyncGenerator[Site, None]:
    async with (
        small_log_in(place, tmp_path) as recorded,
        JetStreamLog.open(broker.address_of(Role.ADMIN), "test") as admin,
        JetStreamLog.open(broker.address_of(Role.ARCHIVIST), "test") as archivist,
    ):
        recorded.builder.snapshot()
        await written_archive(recorded, tmp_path / "archive")
        with History.of(place) as history:
            signed = history.heads()
        await admin.publish(
            [Message(CLUSTER.heads, f"head:{each.pos}", heads.encode(each)) for each in signed]
        )
        yield Site(recorded, tmp_path / "archive", archivist)


@contextlib.asynccontextmanager
async def projector_of(site: Site, broker: Embedded) -> AsyncGenerator[None, None]:
    async with JetStreamLog.open(broker.address_of(Role.PROJECTOR), "test") as bus:
        public = site.recorded.builder.signer.public
        task = TrimTask(bus, CLUSTER, site.recorded.database, lambda: public)
        async with background(task.run(), "trim"):
            await is_answering(site)
            yield


async def is_answering(site: Site) -> None:
    end = time.monotonic() + ANSWER_S
    while time.monotonic() < end:
        with contextlib.suppress(BrokerRefused):
            await site.answer(b"")
            return
    raise AssertionError("nobody answers")


async def test_what_is_asked_for_is_cut_and_deleted_once(site: Site, broker: Embedded) -> None:
    asked, before = await site.asked(), site.rows()
    async with projector_of(site, broker):
        first, again = await site.answer(encode(asked)), await site.answer(encode(asked))

    assert (first.is_new, first.is_done, first.refused) == (True, True, "")
    assert (again.is_new, again.is_done, again.rows) == (False, True, 0)
    assert 0 < before - site.rows() <= first.rows
    with History.of(site.recorded.database) as history:
        cut = history.cut()
    assert cut is not None
    assert (cut.pos, cut.p_to, cut.made_by) == (asked.pos, asked.p_to, "host:1")


FORGED: dict[str, tuple[Change, str]] = {
    "another entry": (lambda it: changed(it, hash=bytes(32)), "of the archive is another one"),
    "another batch": (lambda it: changed(it, manifest_head=bytes(32)), "is another one"),
    "an entry that no head signs": (lambda it: changed(it, pos=it.pos - 1), "no anchored head"),
    "an entry to come": (lambda it: changed(it, pos=10**6), "no anchored head signs"),
    "no end of a batch": (lambda it: changed(it, p_to=10**6), "no batch ends"),
}


def changed(asked: CutRequest, **fields: object) -> CutRequest:
    return msgspec.structs.replace(asked, **fields)


@pytest.mark.parametrize(("change", "why"), FORGED.values(), ids=FORGED.keys())
async def test_what_the_projector_knows_to_be_wrong_is_refused_and_deletes_nothing(
    site: Site, broker: Embedded, change: Change, why: str
) -> None:
    asked, before = change(await site.asked()), site.rows()
    async with projector_of(site, broker):
        answer = await site.answer(encode(asked))

    assert why in answer.refused
    assert answer.refused.endswith("Nothing was deleted.")
    assert site.rows() == before
    with History.of(site.recorded.database) as history:
        assert history.cut() is None


@pytest.mark.parametrize("data", [b"", b"\xff\x00", b"{}", b'{"pos":-1}', b"[" * 10_000])
async def test_noise_is_refused_and_the_next_request_is_answered(
    site: Site, broker: Embedded, data: bytes
) -> None:
    asked = await site.asked()
    async with projector_of(site, broker):
        refused = (await site.answer(data)).refused
        answer = await site.answer(encode(asked))

    assert refused.startswith("A request for a cut cannot be decoded: ")
    assert answer.is_done


async def test_without_a_projector_nobody_answers_at_once(site: Site) -> None:
    with pytest.raises(BrokerRefused) as refused:
        await site.answer(encode(await site.asked()))

    assert refused.value.code == 503


async def test_a_projector_that_was_killed_between_two_portions_is_completed_by_the_next(
    site: Site, broker: Embedded
) -> None:
    asked, before = await site.asked(), site.rows()
    engine = database.trimmer(site.recorded.database)
    public = site.recorded.builder.signer.public
    killed = trimming.Trimmer(
        TrimStore(engine), lambda: History.of(site.recorded.database), lambda: public
    )
    assert killed.cut(asked, await anchored_heads(site.archivist, 100), 1)
    engine.dispose()
    assert site.rows() == before

    async with projector_of(site, broker):
        done = await site.answer(encode(asked))

    assert done.is_done
    assert site.rows() < before


@pytest.mark.parametrize(
    ("lag_s", "why", "least_s"),
    [
        (None, "a standby of PostgreSQL is away", 0.0),
        (1e9, "may need what is younger", 1e9 + trimming.STANDBY_MARGIN_S),
    ],
    ids=["unknown", "far-behind"],
)
async def test_what_a_standby_needs_is_not_deleted_to_make_room(
    site: Site,
    broker: Embedded,
    monkeypatch: pytest.MonkeyPatch,
    lag_s: float | None,
    why: str,
    least_s: float,
) -> None:
    monkeypatch.setattr(TrimStore, "standby_lag_s", lambda _: lag_s)
    asked, before = await site.asked(), site.rows()
    async with projector_of(site, broker):
        refused = await site.answer(encode(changed(asked, for_room=True)))
        assert site.rows() == before
        answer = await site.answer(encode(asked))

    assert why in refused.refused
    assert refused.least_keep_s == least_s
    assert answer.is_new, "what is as old as was asked for goes"
