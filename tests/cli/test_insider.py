"""The credentials of all components but the projector, in hostile hands beside a running demo.

JOULIE_DRILL_SECONDS sets for how long the insider acts in the drill (600).
"""

import asyncio
import functools
import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from sqlalchemy.engine import make_url

from insider import BrokerUser, FileWriter, Insider, LedgerUser, Trimmer, acting
from joulie_bus.streams.roles import Role
from joulie_bus.streams.subjects import Subjects
from joulie_demo import Running, demo, joulie, told_by
from joulie_projections.component.data_directory import DataDirectory
from joulie_projections.history.history import Counts, History
from joulie_projections.store import database
from joulie_projections.store.database import Place
from one_broker import anyio_backend
from projections_kit import Postgres

__all__ = ["anyio_backend"]  # a fixture
pytestmark = [pytest.mark.anyio, pytest.mark.timeout(1800)]
SECONDS = float(os.environ.get("JOULIE_DRILL_SECONDS", "600"))
SEED = int(os.environ.get("JOULIE_DRILL_SEED", "7"))
NODES = 20
GOES_ON_S = 300.0
EXAMINED_S = 60.0  # until the projector has looked for rows of others


class Places(NamedTuple):
    """The database, as the demo and two of the insiders reach it."""

    log: Place
    archiver: Place
    ledger: Place


# The objects of tenants are facts of the simulator here.
OF_THE_BROKER = (Role.OPERATOR, Role.AGENT, Role.AUDITOR, Role.ARCHIVIST, Role.SIMULATOR)


@pytest.fixture(params=["sqlite", "postgres"])
def places(request: pytest.FixtureRequest, tmp_path: Path) -> Places:
    """With SQLite all have the files. With PostgreSQL each one has the login of its right."""
    if request.param == "sqlite":
        place = tmp_path / "data/joulie.db"
        return Places(place, place, place)
    server: Postgres = request.getfixturevalue("postgres")
    name = make_url(url := server.migrated()).database or ""
    for user, roles in (("archiver", "joulie_reader"), ("ledger", "joulie_ledger, joulie_reader")):
        made = f"CREATE ROLE {user}_{name} LOGIN IN ROLE {roles}"
        server.execute(name, made)
    return Places(url, server.url(name, f"archiver_{name}"), server.url(name, f"ledger_{name}"))


@pytest.mark.long
async def test_an_insider_of_some_seconds_leaves_a_log_that_is_valid_and_goes_on(
    tmp_path: Path, places: Places
) -> None:
    await insiders_hour(tmp_path / "data", places, 8)


@pytest.mark.drill
async def test_an_insider_of_minutes_leaves_a_log_that_is_valid_and_goes_on(
    tmp_path: Path, places: Places
) -> None:
    await insiders_hour(tmp_path / "data", places, SECONDS)


async def insiders_hour(data: Path, places: Places, seconds: float) -> None:
    environ = {"DATABASE_URL": places.log} if isinstance(places.log, str) else {}
    with demo(data, "--nodes", str(NODES), "--seed", "3", **environ) as site:
        await asyncio.to_thread(site.await_decisions, 20)
        writer = FileWriter(places.log, SEED) if isinstance(places.log, Path) else None
        insiders = [*filter(None, [writer]), *insiders_beside(site.data, places)]
        before = site.counts()
        async with acting(insiders):
            await asyncio.sleep(seconds)
        during = site.counts()
        await asyncio.to_thread(site.wait_until, lambda: is_examined(places.log), EXAMINED_S)
        goes_on = functools.partial(has_more, site, during)
        await asyncio.to_thread(site.wait_until, goes_on, GOES_ON_S)
        status = json.loads(joulie("status", "-o", "json", "--data", data, **environ).stdout)
        code, verified = told_by("verify", "--data", data, **environ)
        site.end()
    replayed, report = told_by("replay", "--data", data, **environ)
    show(insiders, status, verified, report)

    assert [part["name"] for part in status["parts"] if part["restarts"]] == []
    assert code == 0, verified
    assert during.answers > before.answers
    assert unnamed(writer, verified.get("foreign")) == (set(), 0)
    assert ghosts(places.log) == []
    # Its plans are those of the operator's credential, and differ from what is computed again.
    assert {each["kind"] for each in report["told"]} <= {"plan-differs"}
    assert replayed == bool(report["told"])


def has_more(site: Running, than: Counts) -> bool:
    """Facts of the insider took nodes away, and made pods wait: decisions come more slowly."""
    now = site.counts()
    return now.answers >= than.answers + 5 and now.entries >= than.entries + 10


def insiders_beside(data: DataDirectory, places: Places) -> list[Insider]:
    nodes = names_of_nodes(places.log)
    users = [
        BrokerUser(data, Subjects("local"), role, nodes, SEED + number)
        for number, role in enumerate(OF_THE_BROKER, 3)
    ]
    trimmer, ledger = database.trimmer(places.archiver), database.ledger(places.ledger)
    return [Trimmer(trimmer, SEED + 1), LedgerUser(ledger, SEED + 2), *users]


def names_of_nodes(place: Place) -> list[str]:
    with History.of(place) as history:
        return sorted(history.cluster_state().nodes)


def is_examined(place: Place) -> bool:
    with History.of(place) as history:
        return history.rows_behind() == 0


def unnamed(writer: FileWriter | None, foreign: dict[str, Any] | None) -> tuple[set[int], int]:
    """Entries that were planted and that `verify` does not name, and how many heads it lacks."""
    if writer is None or foreign is None:
        return (writer.entries, len(writer.heads)) if writer else (set(), len(foreign or ()))
    named = {row["pos"] for row in foreign["rows"] if row["table"] == "decision"}
    moved = sum(row["table"] == "head" for row in foreign["rows"])
    return writer.entries - named, len(writer.heads) - moved - foreign["unsigned_heads"]


def ghosts(place: Place) -> list[str]:
    """Decisions of the log about pods that only the insider names."""
    with History.of(place) as history:
        kinds = ("decision.filter", "decision.prioritize")
        found = (each for each in history.entries() if each.kind in kinds)
        return [each.event_id for each in found if each.pod_uid.startswith("ghost-")]


def show(insiders: Sequence[Insider], *documents: object) -> None:
    for each in insiders:
        made = {name: (count, each.taken[name]) for name, count in sorted(each.attempts.items())}
        print(type(each).__name__, sum(each.attempts.values()), made)
    for document in documents:
        print(json.dumps(document)[:2000])
