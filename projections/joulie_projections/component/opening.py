"""Opens the history in the database, which has this version's schema."""

import contextlib
import time
from collections.abc import Generator

from sqlalchemy.exc import DBAPIError

import joulie_migrations
from joulie_bus.errors import DataDirectoryError, StoreError
from joulie_bus.runtime.logging import get_logger
from joulie_projections.component.data_directory import DataDirectory
from joulie_projections.component.wiring import PlaceSettings, Wiring
from joulie_projections.history.history import History
from joulie_projections.store import database

PAUSE_S = 0.5
log = get_logger("database")


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


def await_migration(wires: Wiring) -> None:
    """Returns once the database is migrated, or after MIGRATION_TIMEOUT: what opens it then reports
    why it cannot.
    """
    timeout_s = wires.source.load(PlaceSettings).migration_timeout_s
    until, logged = time.monotonic() + timeout_s, ""
    while time.monotonic() < until and (why := _why_not_readable(wires.data)):
        if why != logged:
            log.info("waits_for_migration", why=why, at_most_s=timeout_s)
        logged = why
        time.sleep(PAUSE_S)


def _why_not_readable(data: DataDirectory) -> str:
    """Empty if it is readable."""
    try:
        require_readable(data)
    except (DataDirectoryError, StoreError) as error:
        return str(error)
    except DBAPIError as error:  # such as a file that its writer has not opened yet
        return str(error.orig)
    return ""
