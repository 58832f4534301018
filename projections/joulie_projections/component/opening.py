"""Opens the history in the database, which has this version's schema."""

import contextlib
from collections.abc import Generator

import joulie_migrations
from joulie_projections.component.data_directory import DataDirectory
from joulie_projections.history.history import History
from joulie_projections.store import database


@contextlib.contextmanager
def history_in(data: DataDirectory) -> Generator[History, None, None]:
    """A snapshot of a database with this version's schema."""
    require_readable(data)
    with History.of(data.database) as history:
        yield history


def require_readable(data: DataDirectory) -> None:
    data.require()
    engine = database.reader(data.database)
    try:
        database.require_reachable(engine)
        joulie_migrations.require(engine)
    finally:
        engine.dispose()
