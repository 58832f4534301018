"""From version 0.2.0 to this one, back, and forth again, while pods are placed all the time."""

import asyncio
import contextlib
from collections.abc import AsyncGenerator
from pathlib import Path

import pytest

import older_version
from cluster_load import cluster, kubeconfigs_of
from joulie_audit.recompute.answers import STATE
from joulie_bus.broker import older_streams
from joulie_projections.testing import Postgres
from kube_real import Running
from mixed_versions import TODAY, Code, Site
from programs import kept
from site_under_load import PATIENCE_S, SiteUnderLoad

pytestmark = [pytest.mark.anyio, pytest.mark.drill]
CURRENT_S = 5.0  # the age of a ledger that follows


@pytest.fixture(scope="module")
def old(tmp_path_factory: pytest.TempPathFactory) -> Code:
    try:
        place = older_version.extracted(
            tmp_path_factory.mktemp("older"), older_version.RELEASE_0_2_0
        )
    except older_version.OlderVersionMissing as missing:
        pytest.skip(f"requires the history of the repository: {missing}")
    return Code("0.2.0", older_version.import_path(place))


class Drill(SiteUnderLoad):
    def __init__(self, site: Site, old: Code, server: Running | None) -> None:
        super().__init__(site, server)
        self.old = old

    async def roll_back(self) -> None:
        """As docs/upgrade.md has it without the chart: the projector first."""
        site = self.site
        self.standstill.step = "rebuild by 0.2.0"
        await site.components["projector"].stop()
        await site.run(self.old, "rebuild")
        site.start("projector", self.old)
        await self.answers_of("projector back at 0.2.0")
        await self.replace(self.old, *[each for each in site.components if each != "projector"])

    async def give_accounts(self) -> None:
        """To the users of a broker of the operator's own, which is stopped meanwhile."""
        self.standstill.step = "accounts"
        await self.site.broker.stop()
        older_streams.adopt(self.site.place / "store" / "jetstream")
        await self.site.with_accounts()
        self.site.broker.is_held = False
        await self.answers_of("today with accounts")
        async with asyncio.timeout(PATIENCE_S):
            while True:
                with contextlib.suppress(OSError, IndexError):
                    if await self.site.lag_of_ledger() < CURRENT_S:
                        return
                await asyncio.sleep(0.1)


@contextlib.asynccontextmanager
async def drill(
    place: Path, old: Code, url: str = "", server: Running | None = None
) -> AsyncGenerator[Drill, None]:
    site = Site(place, old, url, kubeconfigs_of(server))
    await site.without_accounts(old)
    async with kept([site.broker]):
        await site.until_broker_answers()
        await site.run(old, "migrate")
        async with kept([*site.components.values()]):
            yield Drill(site, old, server)


@pytest.fixture(params=["sqlite", "postgresql"])
async def made(
    request: pytest.FixtureRequest, tmp_path: Path, old: Code
) -> AsyncGenerator[Drill, None]:
    url = "" if request.param == "sqlite" else request.getfixturevalue("postgres").empty()
    async with drill(tmp_path, old, url) as started:
        yield started


@pytest.fixture
async def binding(tmp_path: Path, old: Code, postgres: Postgres) -> AsyncGenerator[Drill, None]:
    """With PostgreSQL and a real API server, in which extenders bind the pods."""
    async with (
        cluster(tmp_path / "cluster") as server,
        drill(tmp_path, old, postgres.empty(), server) as started,
    ):
        yield started


async def test_no_binding_is_lost_and_no_card_given_twice_in_an_upgrade_and_a_rollback(
    binding: Drill,
) -> None:
    site = binding.site
    async with binding.under_load():
        await site.run(TODAY, "migrate", "--phase", "pre")
        await binding.replace(TODAY, *site.components)
        await binding.roll_back()
        await site.run(TODAY, "migrate", "--phase", "pre")
        await binding.replace(TODAY, *reversed(site.components))
    await binding.require_whole(older_folds=STATE)


async def test_an_upgrade_from_0_2_0_and_a_rollback_lose_nothing(made: Drill) -> None:
    site = made.site
    async with made.under_load():
        await site.run(TODAY, "migrate", "--phase", "pre")
        await made.answers_of("0.2.0 on the new schema")
        await made.replace(TODAY, *site.components)

        await made.roll_back()

        await site.run(TODAY, "migrate", "--phase", "pre")
        await made.replace(TODAY, *reversed(site.components))
        await site.run(TODAY, "migrate", "--phase", "post")
        await made.answers_of("today after the second upgrade")
        await made.give_accounts()
    await made.require_whole()
