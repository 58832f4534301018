"""The steps of a move to another database or broker, while extenders keep answering."""

import asyncio
import contextlib
import shutil
from collections.abc import AsyncGenerator
from pathlib import Path

import pytest

from cluster_load import cluster, kubeconfigs_of
from joulie_bus.jetstream.log import JetStreamLog
from joulie_bus.streams.roles import Role
from joulie_bus.streams.subjects import Stream
from joulie_projections.decision_log.log import DecisionLog
from joulie_projections.store import database
from joulie_projections.store.store import Store
from nats_snapshot import connected, restore, snapshot_of
from own_installation import EXTENDERS, Site
from programs import kept
from projections_kit import Postgres
from site_under_load import PATIENCE_S, SiteUnderLoad

pytestmark = [pytest.mark.anyio, pytest.mark.drill]


class Move(SiteUnderLoad):
    """Extenders run all the time."""

    @property
    def others(self) -> list[str]:
        return [part for part in self.site.components if part not in EXTENDERS]

    async def stop_others(self, step: str) -> None:
        self.standstill.step = step
        await asyncio.gather(*(self.site.components[each].stop() for each in self.others))

    def start_others(self) -> None:
        for each in self.others:
            self.site.start(each)

    async def change_database(self, to: str | Path) -> None:
        await self.stop_others(f"move to {_url(to).split(':')[0]}")
        source, target = map(_url, (self.site.database, to))
        await self.site.run("migrate", "--from-url", source, "--to-url", target)
        self.site.database = to
        self.start_others()
        await self.replace(*EXTENDERS)

    async def read_to_the_end(self) -> None:
        """By a projector, of streams that nothing is written to."""
        self.site.start("projector")
        async with (
            asyncio.timeout(PATIENCE_S),
            JetStreamLog.open(self.site.address_of(Role.ADMIN), "test") as bus,
        ):
            while await self._unread(bus):
                await asyncio.sleep(0.1)
        await self.site.components["projector"].stop()

    async def _unread(self, bus: JetStreamLog) -> bool:
        engine = database.reader(self.site.database)
        try:
            held, answers = Store(engine).checkpoint(), DecisionLog(engine).input()
        finally:
            engine.dispose()
        assert held is not None
        read = {stream: each.sequence for stream, each in held.inputs.items()}
        read[Stream.DEC] = answers.sequence
        ends = {each: (await bus.state(each)).last for each in Stream if each != Stream.HEADS}
        return any(end > read.get(stream, 0) for stream, end in ends.items())


def _url(place: str | Path) -> str:
    return place if isinstance(place, str) else f"sqlite:///{place}"


@contextlib.asynccontextmanager
async def no_cluster() -> AsyncGenerator[None, None]:
    yield


@pytest.fixture(params=[False, True], ids=["reported", "bound"])
async def move(tmp_path: Path, request: pytest.FixtureRequest) -> AsyncGenerator[Move, None]:
    """Pods are reported as bound, or extenders bind them in a real API server."""
    async with cluster(tmp_path / "cluster") if request.param else no_cluster() as server:
        site = Site(tmp_path, kubeconfigs=kubeconfigs_of(server))
        await site.with_accounts()
        async with kept([site.broker]):
            await site.until_broker_answers()
            await site.run("migrate")
            async with kept([*site.components.values()]):
                yield Move(site, server)


async def test_a_trimmed_log_moves_to_postgresql_and_back(
    move: Move, tmp_path: Path, postgres: Postgres
) -> None:
    archive = tmp_path / "archive"
    async with move.under_load():
        pass
    await move.trim(archive)

    async with move.under_load():
        await move.change_database(postgres.empty())
        await move.answers_of("postgresql")
        old = move.site.data / "joulie.db"
        old.rename(tmp_path / "old.db")
        await move.change_database(old)
        await move.answers_of("sqlite again")

    await move.require_whole("--archive", str(archive))


async def test_a_log_continues_with_streams_that_a_snapshot_brought_back(move: Move) -> None:
    async with move.under_load():
        await move.stop_others("adopt")
        async with move.site.broker_out_of_reach():
            client = await connected(move.site.address_of(Role.ADMIN))
            for each in [await snapshot_of(client, stream) for stream in Stream]:
                await restore(client, each)
            await client.close()
            await move.site.run("migrate", "--adopt")
        move.start_others()
        await move.answers_of("with streams from the snapshot")

    await move.require_whole()


async def test_a_log_continues_beside_a_new_broker(move: Move, tmp_path: Path) -> None:
    archive = tmp_path / "archive"
    async with move.under_load():
        await move.stop_others("new broker")
        async with move.site.broker_out_of_reach():
            await move.read_to_the_end()
            await move.site.run("archive", "--dir", str(archive), "--now")
            await move.site.broker.stop()
            shutil.rmtree(move.site.place / "store")
            await move.site.start_broker()
            await move.site.run("migrate", "--new-broker")
        move.start_others()
        await move.answers_of("with the new broker")

    await move.require_whole("--archive", str(archive))
