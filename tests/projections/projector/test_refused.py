"""Values that the database refuses: their messages are quarantined, all others are folded."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from typing import NamedTuple

import pytest
from sqlalchemy import Engine, text

from bus_kit import decided, node_seen, power, producer, until
from joulie_bus.jetstream.log import JetStreamLog
from joulie_projections.history.history import History
from joulie_projections.projector.rebuild import rebuild
from joulie_projections.store import database
from joulie_projections.store.database import Place
from joulie_projections.view.view import View

pytestmark = pytest.mark.anyio

Projecting = Callable[..., AbstractAsyncContextManager[asyncio.Task[None]]]
Viewing = Callable[[], AbstractAsyncContextManager[View]]
Publish = Callable[..., Awaitable[None]]
# psycopg raises DataError for the first, and OperationalError for the second, although both are
# permanent.
DIVISION_BY_ZERO, PROGRAM_LIMIT = "22012", "54000"


@pytest.fixture(params=[DIVISION_BY_ZERO, PROGRAM_LIMIT])
def state(request: pytest.FixtureRequest) -> str:
    found: str = request.param
    return found


def refuse_rows(place: Place, table: str, when: str, state: str) -> None:
    """Adds a trigger that refuses some rows of a table."""
    owner = database.migrator(place)
    with owner.begin() as db:
        for statement in _trigger(owner.dialect.name, table, when, state):
            db.execute(text(statement))
    owner.dispose()


def _trigger(dialect: str, table: str, when: str, state: str) -> list[str]:
    if dialect == "sqlite":  # "string or blob too big", its only error about values
        refuse = "SELECT length(zeroblob(3000000000))"
        return [f"CREATE TRIGGER refuse BEFORE INSERT ON {table} WHEN {when} BEGIN {refuse}; END"]
    return [
        "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS "
        f"$$ BEGIN RAISE EXCEPTION 'never' USING ERRCODE = '{state}'; END $$",
        f"CREATE TRIGGER refuse BEFORE INSERT ON {table} FOR EACH ROW WHEN ({when}) "
        "EXECUTE FUNCTION refuse()",
    ]


def body_contains(place: Place, word: str) -> str:
    """A SQL condition: the body of the entry contains the word."""
    if database.sqlite_file(place) is not None:
        return f"instr(NEW.body, CAST('{word}' AS BLOB))"
    return f"position('{word}'::bytea IN NEW.body) > 0"


class Running(NamedTuple):
    projecting: Projecting
    viewing: Viewing
    publish: Publish
    bus: JetStreamLog


@pytest.fixture
def running(
    projecting: Projecting, viewing: Viewing, publish: Publish, bus: JetStreamLog
) -> Running:
    return Running(projecting, viewing, publish, bus)


@pytest.mark.parametrize("batch", [7, 1000], ids=["small commits", "a large one"])
async def test_facts_with_refused_rows_are_quarantined_and_all_others_are_folded(
    running: Running, place: Place, writer: Engine, state: str, batch: int
) -> None:
    projecting, viewing, publish, bus = running
    refuse_rows(place, "node_twin", "NEW.key = 'evil'", state)
    names = [f"n{number}" for number in range(400)]
    names[5], names[311] = "evil", "evil"
    await publish(*(node_seen(name) for name in names), *(power(f"n{n}", 9) for n in range(300)))

    async with projecting(batch=batch) as task, viewing() as view:
        await view.wait_for(700, 60)
        await publish(node_seen("after"))
        await view.wait_for(701, 60)
        assert not task.done()
        assert sorted(view.cluster_state.nodes) == sorted(
            {*names, "n5", "after"} - {"evil", "n311"}
        )

    with History.of(place) as history:
        aside, held = history.quarantined(), history.checkpoint()
        assert held is not None
        assert history.digests() == held.digests
    assert len(aside) == 2
    assert all("the database refused its rows: " in found.why for found in aside)
    assert all(b"evil" in found.body for found in aside)
    done = await rebuild(bus, writer, "rebuild")
    assert (done.events, done.differs_at) == (701, 0)


@pytest.mark.parametrize(
    ("refused", "is_kept"), [("team/evil", True), ("evil", False)], ids=["its name", "its bytes"]
)
async def test_an_answer_that_is_refused_is_an_unreadable_entry(
    running: Running, place: Place, state: str, refused: str, is_kept: bool
) -> None:
    refuse_rows(place, "decision", body_contains(place, refused), state)
    sender = producer("extender")
    messages = [sender.stamp(decided(f"p{number}")) for number in range(20)]
    messages[11] = sender.stamp(decided("evil"))
    await running.bus.publish(messages)

    def written() -> bool:
        with History.of(place) as history:
            return history.tip() == 20

    async with running.projecting() as task:
        await until(written)
        assert not task.done()

    with History.of(place) as history:
        entries = list(history.entries())
    assert [entry.kind for entry in entries].count("unreadable") == 1
    assert entries[11].kind == "unreadable"
    assert (entries[11].message == messages[11].data) == is_kept
    assert is_kept or b"bytes that are not kept, sha256 " in entries[11].message
