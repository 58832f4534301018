"""URLs of PostgreSQL, in the forms that libpq accepts."""

from pathlib import Path

import pytest
from sqlalchemy import create_engine

from bus_kit import until
from joulie_bus.errors import DatabaseUrlRefused
from joulie_migrations.cuts import TRIMMER
from joulie_projections.history.trimming import TrimStore
from joulie_projections.store import database
from joulie_projections.store.database import Place
from joulie_projections.store.postgres import parsed, standbys_of
from projections_kit import Postgres

pytestmark = pytest.mark.anyio

SEVERAL = [
    "postgresql://u:p%40w@one:5432,two:5433/db",
    "postgres://u:p%40w@one:5432,two:5433/db",
    "postgresql+psycopg://u:p%40w@one:5432,two:5433/db",
    "postgresql://u:p%40w@one:5432,two:5433/db?target_session_attrs=read-write",
    "postgresql://u:p%40w@one:5432,two:5433/db?target_session_attrs=primary",
    "postgresql://u:p%40w@one:5432,two:5433/db?target_session_attrs=any",
    "postgresql://u:p%40w@/db?host=one,two&port=5432,5433",
    "postgresql://u:p%40w@/db?host=one:5432&host=two:5433",
]


def parameters(url: str) -> dict[str, str]:
    """What the driver is called with."""
    found = parsed(url)
    _, given = create_engine(found).dialect.create_connect_args(found)
    return {name: str(value) for name, value in given.items() if name != "context"}


@pytest.mark.parametrize("url", SEVERAL)
def test_of_several_servers_the_primary_is_used_in_every_spelling(url: str) -> None:
    assert database.checked_url(url) == url
    assert parameters(url) == {
        "user": "u",
        "password": "p@w",
        "host": "one,two",
        "port": "5432,5433",
        "dbname": "db",
        "target_session_attrs": "primary",
    }
    assert "p%40w" not in database.without_password(url)


@pytest.mark.parametrize(
    ("url", "host", "port"),
    [
        ("postgresql://u@one,two/db", "one,two", ","),
        ("postgresql://u@[::1]:5432,[::2]/db", "::1,::2", "5432,"),
        ("postgresql://%2Fvar%2Frun/db", "/var/run", None),
        ("postgresql://u@one:5433/db?target_session_attrs=read-write", "one", "5433"),
    ],
)
def test_hosts_and_ports_that_are_left_out(url: str, host: str, port: str | None) -> None:
    given = parameters(url)
    assert (given["host"], given.get("port")) == (host, port)


@pytest.mark.parametrize("attrs", ["standby", "prefer-standby", "read-only"])
def test_a_url_that_may_choose_a_standby_is_refused_by_name(attrs: str) -> None:
    url = f"postgresql://u@one,two/db?target_session_attrs={attrs}"

    with pytest.raises(ValueError, match=f"target_session_attrs={attrs} may choose a standby"):
        database.checked_url(url)
    with pytest.raises(DatabaseUrlRefused, match="Nothing was changed"):
        database.reader(url)


def test_a_url_that_libpq_refuses_is_refused_with_its_reason() -> None:
    with pytest.raises(ValueError, match="invalid URI query parameter"):
        database.checked_url("postgresql://u@one,two/db?nonsense=1")


# --- standbys ---------------------------------------------------------------------------------


def lag_of(place: Place) -> float | None:
    engine = database.trimmer(place)
    try:
        return TrimStore(engine).standby_lag_s()
    finally:
        engine.dispose()


def test_a_database_without_standbys_has_none_that_is_behind(
    database_file: Path, postgres: Postgres
) -> None:
    assert lag_of(database_file) == 0.0
    assert lag_of(postgres.migrated()) == 0.0


async def test_how_far_a_standby_is_behind_is_known_while_it_is_there_and_may_be_seen() -> None:
    with Postgres.running() as primary, primary.standby():
        url = primary.migrated()
        await until(lambda: standbys_in(url) == 1)
        assert lag_of(url) is None  # the trimmer may not see it

        primary.execute("postgres", f"GRANT pg_read_all_stats TO {TRIMMER}")
        await until(lambda: (lag := lag_of(url)) is not None and lag < 60)

        primary.execute("postgres", "SELECT pg_create_physical_replication_slot('away', true)")
        assert lag_of(url) is None


def standbys_in(url: str) -> int:
    engine = database.reader(url)
    found = standbys_of(engine)
    engine.dispose()
    assert found is not None
    return found.connected
