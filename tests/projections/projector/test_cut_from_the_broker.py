"""A projector that is cut off from the broker gives way to one that reaches it."""

import asyncio
import contextlib
from collections.abc import AsyncGenerator
from pathlib import Path

import pytest
from sqlalchemy import Engine

from bus_kit import CLUSTER, VirtualClock, power, producer
from bus_kit.memory_broker import MemoryBroker, MemoryLog, MemoryReader
from bus_kit.waiting import until
from joulie_bus.errors import Unreachable
from joulie_bus.runtime.tasks import background
from joulie_bus.streams.records import Record, StreamTip
from joulie_bus.streams.subjects import Stream
from joulie_projections.decision_log.heads import Signer
from joulie_projections.projector import lag
from joulie_projections.projector.projector import Projector, ProjectorSettings
from joulie_projections.store import database
from joulie_projections.store.database import Place
from joulie_projections.view.view import View

pytestmark = pytest.mark.anyio
LEASE_S = 0.6


class Cut:
    """Whether a link is cut."""

    def __init__(self) -> None:
        self.is_on = False


class CutReader(MemoryReader):
    cut: Cut

    def __len__(self) -> int:
        return 0 if self.cut.is_on else super().__len__()

    def take(self, limit: int) -> list[Record]:
        return [] if self.cut.is_on else super().take(limit)


class CutLog(MemoryLog):
    """A client whose link to the broker can be cut: nothing arrives, in either direction."""

    def __init__(self, broker: MemoryBroker) -> None:
        super().__init__(broker)
        self.cut = Cut()
        self.unconfirmed_s = 0.0  # since a majority confirmed the server that answers

    async def tip(self, stream: Stream) -> StreamTip:
        if self.cut.is_on:
            raise Unreachable("the broker", "cut")
        found = await super().tip(stream)
        return found._replace(unconfirmed_ns=int(self.unconfirmed_s * 1e9))

    async def send_live(self, subject: str, data: bytes) -> None:
        if not self.cut.is_on:
            await super().send_live(subject, data)

    @contextlib.asynccontextmanager
    async def reading(
        self,
        stream: Stream,
        after: int,
        created: str = "",
        wakeup: asyncio.Event | None = None,
        digest: bytes = b"",
    ) -> AsyncGenerator[MemoryReader, None]:
        async with super().reading(stream, after, created, wakeup, digest) as reader:
            reader.__class__ = CutReader
            reader.cut = self.cut  # type: ignore[attr-defined]
            yield reader


class Site:
    """Two projectors of one database, each with its own link to one broker."""

    def __init__(self, writer: Engine, key: Path) -> None:
        broker = MemoryBroker(CLUSTER, VirtualClock())
        self.links = CutLog(broker), CutLog(broker)
        self.bus = MemoryLog(broker)
        settings = ProjectorSettings(lease_s=LEASE_S)
        self.projectors = [
            Projector(link, CLUSTER, writer, Signer.of(key), settings) for link in self.links
        ]


@pytest.fixture
def site(writer: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Site:
    monkeypatch.setattr(lag, "CONFIRMED_S", 1.0)
    return Site(writer, tmp_path / "key")


@contextlib.asynccontextmanager
async def viewing(site: Site, place: Place) -> AsyncGenerator[View, None]:
    engine = database.reader(place)
    async with View.open(site.bus, engine, CLUSTER) as view:
        yield view
    engine.dispose()


async def test_a_standby_that_reaches_the_broker_takes_over_from_a_projector_that_does_not(
    site: Site, place: Place
) -> None:
    sender, (first, second) = producer(), site.projectors
    async with viewing(site, place) as view, background(first.run(), "first"):
        await site.bus.publish([sender.stamp(power("n", 1))])
        await view.wait_for(1, 60)
        async with background(second.run(), "second"):
            site.links[0].cut.is_on = True
            await site.bus.publish([sender.stamp(power("n", 2))])
            await view.wait_for(2, 60)

            assert (first.position, second.position) == (1, 2)


async def test_a_standby_that_does_not_reach_the_broker_does_not_take_over(
    site: Site, place: Place
) -> None:
    sender, (first, second) = producer(), site.projectors
    site.links[1].cut.is_on = True
    async with background(second.run(), "second"), viewing(site, place) as view:
        await until(lambda: second.liveness.ready() == "waiting for the broker")
        async with background(first.run(), "first"):
            await site.bus.publish([sender.stamp(power("n", 1))])
            await view.wait_for(1, 60)

            assert (first.position, second.position) == (1, 0)


async def test_an_answer_that_no_majority_confirmed_lately_is_not_enough_to_take_over(
    site: Site, place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else it would lead for a moment, lose the lease, and keep others from it meanwhile."""
    monkeypatch.setattr(lag, "CONFIRMED_S", 60.0)  # enough for a projector that leads
    sender, second = producer(), site.projectors[1]
    site.links[1].unconfirmed_s = 3.0
    async with background(second.run(), "second"), viewing(site, place) as view:
        await until(lambda: second.liveness.ready() == "waiting for the broker")
        await site.bus.publish([sender.stamp(power("n", 1))])
        await asyncio.sleep(2 * LEASE_S)
        assert second.position == 0
        site.links[1].unconfirmed_s = 1.5
        await view.wait_for(1, 60)

        assert second.position == 1


async def test_without_a_standby_a_projector_that_was_cut_off_goes_on_in_its_epoch(
    site: Site, place: Place
) -> None:
    sender, first = producer(), site.projectors[0]
    async with viewing(site, place) as view, background(first.run(), "first") as running:
        await site.bus.publish([sender.stamp(power("n", 1))])
        await view.wait_for(1, 60)
        site.links[0].cut.is_on = True
        await until(lambda: "no answer of a majority" in first.liveness.ready())
        site.links[0].cut.is_on = False
        await site.bus.publish([sender.stamp(power("n", 2))])
        await view.wait_for(2, 60)

        assert not running.done()
        assert view.last_beat is not None
        assert view.last_beat.epoch == 1
        await until(lambda: first.liveness.ready() == "")
