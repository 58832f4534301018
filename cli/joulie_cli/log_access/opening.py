"""Opens the history in the database, and loads nothing that only an archive or the facts need."""

import contextlib
from collections.abc import Generator
from pathlib import Path

import joulie_migrations
from joulie_cli.supervisor.data_directory import DataDirectory
from joulie_projections.history.history import History
from joulie_projections.store import database


@contextlib.contextmanager
def history_in(data: DataDirectory, archive: Path | None = None) -> Generator[History, None, None]:
    """A snapshot of a database with this version's schema; `archive` holds its trimmed parts."""
    require_readable(data)
    if archive is None:
        with History.of(data.database) as history:
            yield history
        return
    from joulie_audit.archive.combined_history import Sources

    with Sources(data.database, archive).reading() as history:
        yield history


def require_readable(data: DataDirectory) -> None:
    data.require()
    engine = database.reader(data.database)
    try:
        database.require_reachable(engine)
        joulie_migrations.require(engine)
    finally:
        engine.dispose()
