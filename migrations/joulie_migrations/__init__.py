"""The schema, one step at a time. Run by `joulie migrate`; never by a process that serves."""

from importlib.resources import files
from pathlib import Path

from sqlalchemy import Engine, inspect, text

from joulie_bus.errors import SchemaMismatch

NEWEST = "0001"  # the schema that this code wants
_VERSIONS = "alembic_version"


def current(engine: Engine) -> str:
    """The schema that the database has; empty for none."""
    with engine.connect() as connection:
        if not inspect(connection).has_table(_VERSIONS):
            return ""
        return connection.scalar(text(f"SELECT version_num FROM {_VERSIONS}")) or ""


def require(engine: Engine) -> None:
    """Refuses to work on a schema that this code was not written for."""
    found = current(engine)
    if found != NEWEST:
        raise SchemaMismatch(found or "none", NEWEST)


def upgrade(engine: Engine) -> str:
    """Brings the database up to this code. Returns the schema it is at then."""
    # Alembic takes most of a second to import, and only a migration needs it.
    from alembic import command
    from alembic.config import Config
    from alembic.script import ScriptDirectory

    config = Config()
    config.set_main_option("script_location", str(Path(str(files(__name__)))))
    known = {step.revision for step in ScriptDirectory.from_config(config).walk_revisions()}
    found = current(engine)
    if found and found not in known:
        raise SchemaMismatch(found, NEWEST)
    with engine.begin() as connection:
        config.attributes["connection"] = connection
        command.upgrade(config, "head")
    return NEWEST
