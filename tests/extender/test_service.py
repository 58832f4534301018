"""The running extender over a real broker and a real database, and without either of them."""

import asyncio
import contextlib
import json
import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import pytest
from sqlalchemy import Engine, event
from sqlalchemy.exc import OperationalError

from bus_kit import CLUSTER, eco, hardware, performance, power, producer, until
from extender_kit import PATIENCE_S, Received, get, post
from joulie_bus.broker.embedded import Embedded
from joulie_bus.errors import SettingsError
from joulie_bus.events import (
    AnyEvent,
    FallbackAnswered,
    PrioritizeDecided,
    Promise,
    PromiseKey,
    SettingsDeclared,
    codec,
)
from joulie_bus.http.exchange import Reply, Request
from joulie_bus.jetstream.log import JetStreamLog
from joulie_bus.log.producer import Producer
from joulie_bus.runtime.settings import Source
from joulie_bus.runtime.tasks import background, wait_and_clear
from joulie_bus.streams.subjects import Stream
from joulie_extender.catalogue.weights import Weights
from joulie_extender.decision_log.shipping import Shipper
from joulie_extender.decision_log.spool import Spool
from joulie_extender.service import Service, serving
from joulie_extender.settings import ScoringSettings, ServerSettings
from joulie_projections.decision_log.heads import Signer
from joulie_projections.projector.projector import Projector, ProjectorSettings
from joulie_projections.store import database
from joulie_projections.view.view import View
from kube_scheduler import a_pod

pytestmark = pytest.mark.anyio
FACTS: list[AnyEvent] = [
    hardware("a"),
    performance("a"),
    power("a", 300),
    hardware("b"),
    eco("b"),
    power("b", 100),
]
NAMES = ["a", "b"]
FAST = {"Pod": a_pod("p", workload="performance"), "Nodes": None, "NodeNames": NAMES}
BODY = json.dumps(FAST, separators=(",", ":")).encode()
FRESH_S = 5.0
ACTIVE = {"EXTENDER_DEADLINE": "20s", "EXTENDER_ADDR": "127.0.0.1:0"}


class Site(NamedTuple):
    """Everything that an extender lives among."""

    broker: Embedded
    bus: JetStreamLog
    writer: Engine
    directory: Path

    async def tell(self, *events: AnyEvent) -> None:
        says = producer(boot=str(len(events)))
        await self.bus.publish([says.stamp(each) for each in events])

    @contextlib.asynccontextmanager
    async def projecting(self) -> AsyncGenerator[None, None]:
        signer = Signer.of(self.directory / "signing.key")
        projector = Projector(self.bus, CLUSTER, self.writer, signer, ProjectorSettings())
        async with background(projector.run(), "projector"):
            yield

    @contextlib.asynccontextmanager
    async def serving(self, **values: str) -> AsyncGenerator[Service, None]:
        source = Source.of(**(ACTIVE | values))
        server = replace(source.load(ServerSettings), drain_s=0)
        scoring = source.load(ScoringSettings)
        source.finish()
        async with serving(CLUSTER, self.directory / "spool", server, scoring.weights()) as service:
            yield service

    @contextlib.asynccontextmanager
    async def working(self, service: Service, reader: Engine) -> AsyncGenerator[View, None]:
        async with (
            View.open(self.bus, reader, CLUSTER) as view,
            background(service.work(self.bus, view), "work"),
        ):
            await view.wait_ready(PATIENCE_S)
            await until(service.extender.is_ready, PATIENCE_S)
            yield view


@pytest.fixture
def site(broker: Embedded, bus: JetStreamLog, writer: Engine, tmp_path: Path) -> Site:
    return Site(broker, bus, writer, tmp_path)


class Life(NamedTuple):
    service: Service
    view: View
    reader: Engine

    @property
    def port(self) -> int:
        assert self.service.http_server is not None
        return self.service.http_server.port


@contextlib.asynccontextmanager
async def living(site: Site, database_file: Path, **values: str) -> AsyncGenerator[Life, None]:
    """All of it, with two nodes that have been seen."""
    reader = database.reader(database_file)
    await site.tell(*FACTS)
    async with (
        site.projecting(),
        site.serving(**values) as service,
        site.working(service, reader) as view,
    ):
        await view.wait_for(len(FACTS), PATIENCE_S)
        life = Life(service, view, reader)
        await looked_at(life.port, len(FACTS))
        await until(lambda: view.age_s < FRESH_S, PATIENCE_S)  # it is known that nothing is missing
        yield life
    reader.dispose()


def position(reply: Received) -> int:
    return int(reply.head.partition(b"Joulie-View: ")[2].partition(b"\r\n")[0])


def age_ms(reply: Received) -> int:
    return int(reply.head.partition(b"Joulie-View-Age-Ms: ")[2].partition(b"\r\n")[0])


def said_by(reply: Received) -> list[int]:
    found: Any = reply.json()
    return [each["Score"] for each in found]


async def eventually(port: int, is_so: Callable[[Received], bool]) -> Received:
    """Asks until the reply is as wanted."""
    async with asyncio.timeout(PATIENCE_S):
        while True:
            reply = await post(port, "/prioritize", BODY)
            if is_so(reply):
                return reply
            await asyncio.sleep(0.02)


async def looked_at(port: int, position: int) -> None:
    """Answers follow the view, and not at once. To look is not to ask: no decision is made."""
    async with asyncio.timeout(PATIENCE_S):
        while msgspec.json.decode((await get(port, "/debug/scoring")).body)["position"] < position:
            await asyncio.sleep(0.005)


async def entries(bus: JetStreamLog) -> list[AnyEvent]:
    """The stream of decisions, as far as it goes now, without what signs them."""
    last, wakeup, found = (await bus.state(Stream.DEC)).last, asyncio.Event(), list[AnyEvent]()
    async with asyncio.timeout(PATIENCE_S), bus.reading(Stream.DEC, 0, wakeup=wakeup) as reader:
        while len(found) < last:
            await wait_and_clear(wakeup, 0.5)
            envelopes = [codec.open_envelope(each.data, "here") for each in reader.take(1000)]
            found += [codec.read(each, "here") for each in envelopes]
    return [each for each in found if not isinstance(each, Promise | PromiseKey)]


# --- a cold start -----------------------------------------------------------------------------


async def test_before_there_is_a_view_it_is_open_neutral_and_not_ready(site: Site) -> None:
    async with site.serving() as service:
        assert service.http_server is not None
        port = service.http_server.port
        readiness, liveness = await get(port, "/readyz"), await get(port, "/healthz")
        filtered = json.loads((await post(port, "/filter", BODY)).body)
        scored = await post(port, "/prioritize", BODY)

    assert (readiness.status, liveness.status) == (503, 200)
    assert (filtered["NodeNames"], said_by(scored), position(scored)) == (NAMES, [50, 50], 0)


async def test_set_to_refuse_it_refuses_until_there_is_a_view(
    site: Site, database_file: Path
) -> None:
    reader = database.reader(database_file)
    async with site.projecting(), site.serving(EXTENDER_FAILS="closed") as service:
        assert service.http_server is not None
        before = json.loads((await post(service.http_server.port, "/filter", BODY)).body)
        async with site.working(service, reader):
            after = json.loads((await post(service.http_server.port, "/filter", BODY)).body)
    reader.dispose()

    assert (before["NodeNames"], bool(before["Error"])) == (None, True)
    assert (after["NodeNames"], after["Error"]) == (NAMES, "")


async def test_with_a_view_it_is_ready_and_answers_from_it(site: Site, database_file: Path) -> None:
    async with living(site, database_file) as life:
        readiness = await get(life.port, "/readyz")
        filtered = json.loads((await post(life.port, "/filter", BODY)).body)
        scored = await post(life.port, "/prioritize", BODY)

    assert (readiness.status, filtered["NodeNames"]) == (200, ["a"])
    assert position(scored) == len(FACTS)
    assert 50 not in said_by(scored)


# --- faults -----------------------------------------------------------------------------------


async def no_broker(site: Site, _: Life) -> None:
    site.broker.kill()
    await site.broker.wait()


async def no_database(_: Site, life: Life) -> None:
    def refuse(_: object) -> None:
        raise OperationalError("BEGIN", None, OSError("disk I/O error"))

    event.listen(life.reader, "begin", refuse)


async def neither(site: Site, life: Life) -> None:
    await no_database(site, life)
    await no_broker(site, life)


Fault = Callable[[Site, Life], Awaitable[None]]
FAULTS = [no_broker, no_database, neither]


@pytest.mark.parametrize("fault", FAULTS)
async def test_with_something_down_it_goes_on_answering_from_what_it_has(
    site: Site, database_file: Path, fault: Fault
) -> None:
    async with living(site, database_file) as life:
        before = await post(life.port, "/prioritize", BODY)
        await fault(site, life)
        after = await post(life.port, "/prioritize", BODY)
        readiness = await get(life.port, "/readyz")
        await site.broker.start() if fault is not no_database else None

    assert (said_by(after), position(after)) == (said_by(before), position(before))
    assert readiness.status == 200


async def test_with_all_down_its_age_grows_and_past_the_bound_it_is_neutral(
    site: Site, database_file: Path
) -> None:
    async with living(site, database_file, TWIN_STALENESS_THRESHOLD="1s") as life:
        await neither(site, life)
        aged = await eventually(life.port, lambda reply: said_by(reply) == [50, 50])
        filtered = json.loads((await post(life.port, "/filter", BODY)).body)
        await site.broker.start()

    assert age_ms(aged) > 0
    assert filtered["NodeNames"] == NAMES


async def test_stale_twins_become_neutral_in_a_current_view(
    site: Site, database_file: Path
) -> None:
    async with living(site, database_file, TWIN_STALENESS_THRESHOLD="1s") as life:
        stale = await eventually(life.port, lambda reply: said_by(reply) == [50, 50])

    assert age_ms(stale) < 1000


async def test_with_the_database_gone_news_still_come_by_the_bus(
    site: Site, database_file: Path
) -> None:
    async with living(site, database_file) as life:
        before = said_by(await post(life.port, "/prioritize", BODY))
        await no_database(site, life)
        await site.tell(power("a", 700))
        reply = await eventually(life.port, lambda reply: said_by(reply) != before)

    assert said_by(reply)[0] < before[0]


async def test_with_the_broker_back_news_come_again(site: Site, database_file: Path) -> None:
    async with living(site, database_file) as life:
        await no_broker(site, life)
        before = said_by(await post(life.port, "/prioritize", BODY))
        await site.broker.start()
        await site.tell(power("a", 700))
        reply = await eventually(life.port, lambda reply: said_by(reply) != before)

    assert said_by(reply)[0] < before[0]


# --- durability -------------------------------------------------------------------------------


async def test_every_answer_is_in_the_log_at_the_end(site: Site, database_file: Path) -> None:
    async with living(site, database_file) as life:
        for verb in ("filter", "prioritize", "filter"):
            await post(life.port, f"/{verb}", BODY)

    kinds = [entry.TYPE for entry in await entries(site.bus)]
    assert kinds == [
        "decision.settings-declared",
        *("decision.filter", "decision.prioritize", "decision.filter"),
    ]


@pytest.mark.parametrize("durability", ["ack", "strict"])
async def test_an_answer_may_wait_for_the_broker(
    site: Site, database_file: Path, durability: str
) -> None:
    async with living(site, database_file, DECISION_DURABILITY=durability) as life:
        filtered = json.loads((await post(life.port, "/filter", BODY)).body)
        stored = [entry.TYPE for entry in await entries(site.bus)]

    assert filtered["NodeNames"] == ["a"]
    assert stored == ["decision.settings-declared", "decision.filter"]


async def test_without_a_broker_ack_answers_at_its_deadline_all_the_same(
    site: Site, database_file: Path
) -> None:
    values = {"DECISION_DURABILITY": "ack", "EXTENDER_DEADLINE": "1s"}
    async with living(site, database_file, **values) as life:
        await no_broker(site, life)
        filtered = json.loads((await post(life.port, "/filter", BODY)).body)
        await site.broker.start()

    assert filtered["NodeNames"] == ["a"]


async def test_without_a_broker_strict_gives_no_answer_and_logs_it(
    site: Site, database_file: Path
) -> None:
    values = {"DECISION_DURABILITY": "strict", "EXTENDER_DEADLINE": "1s"}
    async with living(site, database_file, **values) as life:
        await no_broker(site, life)
        filtered = json.loads((await post(life.port, "/filter", BODY)).body)
        scored = await post(life.port, "/prioritize", BODY)
        await site.broker.start()

    assert (filtered["NodeNames"], bool(filtered["Error"])) == (None, True)
    assert said_by(scored) == [50, 50]
    told = [each for each in await entries(site.bus) if isinstance(each, FallbackAnswered)]
    assert [(each.verb, each.why, each.answer) for each in told] == [
        ("filter", "unrecorded", "closed"),
        ("prioritize", "unrecorded", "closed"),
    ]


@pytest.mark.parametrize(
    ("durability", "fails", "passes"),
    [("ack", "open", True), ("ack", "closed", False), ("strict", "open", False)],
)
async def test_a_fallback_waits_for_the_broker_as_an_answer_does(
    tmp_path: Path, durability: str, fails: str, passes: bool
) -> None:
    """Without a broker, until the deadline; then no reply is kept waiting."""
    settings = Source.of(
        DECISION_DURABILITY=durability, EXTENDER_FAILS=fails, EXTENDER_DEADLINE="50ms"
    ).load(ServerSettings)
    now = time.monotonic()
    with contextlib.closing(Spool(tmp_path)) as spool:
        shipper = Shipper(Producer("r", CLUSTER, time.time_ns), spool, settings.durability())
        extender = Service(shipper, Weights(), settings, CLUSTER).extender
        asked = [Request("POST", "/filter", BODY, begun) for begun in (now - 10, now) * 100]
        replies = [extender.filter(request) for request in asked]
        answers = [each if isinstance(each, Reply) else await each for each in replies]
        await asyncio.sleep(0)  # done callbacks are called by the loop

        assert shipper.waiting == 0
    assert {json.loads(reply.body)["Error"] == "" for reply in answers} == {passes}


async def test_its_settings_are_in_the_log_before_its_first_answer(
    site: Site, database_file: Path
) -> None:
    async with living(site, database_file, filter_stale="twin") as life:
        await post(life.port, "/filter", BODY)

    first, *_ = await entries(site.bus)
    assert isinstance(first, SettingsDeclared)
    assert first.values["filter_stale"] == "twin"


def test_no_replica_is_called_as_the_projector_is() -> None:
    """Its decisions would be taken for outcomes, and be unreadable."""
    source = Source.of(EXTENDER_REPLICA="projector")
    source.load(ServerSettings)
    with pytest.raises(SettingsError, match="the projector writes outcomes under this name"):
        source.finish()


# --- a wrong clock ----------------------------------------------------------------------------


@pytest.mark.parametrize("wrong_s", [-3600, -120, 120, 3600])
async def test_a_wrong_clock_of_this_machine_changes_no_score_and_no_recorded_time(
    site: Site, database_file: Path, monkeypatch: pytest.MonkeyPatch, wrong_s: int
) -> None:
    right = time.time_ns
    async with living(site, database_file, TWIN_STALENESS_THRESHOLD="90s") as life:
        before = said_by(await post(life.port, "/prioritize", BODY))
        monkeypatch.setattr(time, "time_ns", lambda: right() + wrong_s * 10**9)
        await site.tell(power("a", 300), power("b", 100))
        await looked_at(life.port, len(FACTS) + 2)
        after = said_by(await post(life.port, "/prioritize", BODY))
        now = life.view.now_ns()
        error_s = abs(now - right()) / 1e9
        async with asyncio.timeout(PATIENCE_S):
            while sum(isinstance(each, PrioritizeDecided) for each in await entries(site.bus)) < 2:
                await asyncio.sleep(0.02)
        recorded = [
            each.basis.now
            for each in await entries(site.bus)
            if isinstance(each, PrioritizeDecided)
        ]

    assert after == before
    assert 50 not in after
    assert error_s < 1
    assert all(abs(each - right()) < 60 * 10**9 for each in recorded)
