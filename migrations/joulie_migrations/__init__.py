"""The schema, one step at a time. Run by `joulie migrate`; never by a process that serves."""

from importlib.resources import files
from pathlib import Path

from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, Engine

from joulie_bus.errors import SchemaMismatch

HERE = Path(str(files(__name__)))


def _config(connection: Connection | None = None) -> Config:
    config = Config()
    config.set_main_option("script_location", str(HERE))
    config.attributes["connection"] = connection
    return config


def newest() -> str:
    """The schema that this code wants."""
    return ScriptDirectory.from_config(_config()).get_current_head() or ""


def current(engine: Engine) -> str:
    """The schema that the database has; empty for none."""
    with engine.connect() as connection:
        return MigrationContext.configure(connection).get_current_revision() or ""


def upgrade(engine: Engine) -> str:
    """Brings the database up to this code. Returns the schema it is at then."""
    found = current(engine)
    known = {step.revision for step in ScriptDirectory.from_config(_config()).walk_revisions()}
    if found and found not in known:
        raise SchemaMismatch(found, newest())
    with engine.begin() as connection:
        command.upgrade(_config(connection), "head")
    return newest()


def require(engine: Engine) -> None:
    """Refuses to work on a schema that this code was not written for."""
    found, wanted = current(engine), newest()
    if found != wanted:
        raise SchemaMismatch(found or "none", wanted)
