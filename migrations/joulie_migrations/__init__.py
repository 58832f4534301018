"""The migrations of the schema. Run by `joulie migrate`, never by a serving process.

A step is `pre` or `post`. Pre steps only add, so that code of the last version keeps working: they
run before the new code is rolled out. Post steps remove, after the old code is gone; each raises
the floor: code that needs an older schema is refused afterwards. A post step that the new code
requires is run in between, while neither version runs.
"""

from collections.abc import Iterator
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from sqlalchemy import Connection, Engine, inspect, text
from sqlalchemy.exc import ProgrammingError

from joulie_bus.core.formats import in_force
from joulie_bus.errors import MigrationDenied, SchemaMismatch
from joulie_migrations.cuts import TRIMMER
from joulie_migrations.guards import READER, WRITER
from joulie_migrations.ledger_tables import LEDGER

if TYPE_CHECKING:
    from alembic.config import Config
    from alembic.script import ScriptDirectory

OLDEST = "0011"  # the oldest schema that this code works with
NEWEST = in_force("schema")  # the newest schema that it knows
FIRST = "0011"  # the first schema; logs of lower numbers are not continued
PHASES = ("pre", "post")
_HERE = Path(str(files(__name__)))
_VERSIONS = "alembic_version"
_NO_RIGHT = "42501"  # PostgreSQL's insufficient_privilege


class Steps(NamedTuple):
    """A sequence of steps, and the range of schemas that the code works with."""

    folders: tuple[Path, ...]
    oldest: str
    newest: str


RELEASED = Steps((_HERE / "versions",), OLDEST, NEWEST)


def current(engine: Engine) -> str:
    """The schema of the database; empty if there is none."""
    with engine.connect() as connection:
        if not inspect(connection).has_table(_VERSIONS):
            return ""
        return connection.scalar(text(f"SELECT version_num FROM {_VERSIONS}")) or ""


def require(engine: Engine, steps: Steps = RELEASED) -> None:
    """Raises SchemaMismatch if this code does not work with the schema."""
    found = current(engine)
    _require_first_format(found)
    if found < steps.oldest:
        raise SchemaMismatch(found or "none", steps.oldest)
    _require_young_enough(engine, found, steps)


def upgrade(engine: Engine, phase: str = "", steps: Steps = RELEASED) -> str:
    """Runs the steps of a phase, or all, and returns the schema that the database has then.

    Raises MigrationDenied, without a change, if the role of the database lacks a right.
    """
    # Importing Alembic takes most of a second, and only a migration needs it.
    from alembic import command

    found = current(engine)
    _require_first_format(found)
    if found:
        _require_young_enough(engine, found, steps)
    if found > steps.newest:
        return found  # additions of a newer version stay
    config, scripts = _alembic(steps)
    wanted = _goal(scripts, found, phase, steps)
    if wanted == found:
        return found
    try:
        with engine.begin() as connection:
            config.attributes["connection"] = connection
            command.upgrade(config, wanted)
            _raise_floor(connection, scripts, wanted)
            if connection.dialect.name == "postgresql":
                _let_the_owner_take_roles(connection)
    except ProgrammingError as error:
        if getattr(error.orig, "sqlstate", "") != _NO_RIGHT:
            raise
        raise MigrationDenied(str(error.orig).splitlines()[0]) from error
    return wanted


def _let_the_owner_take_roles(connection: Connection) -> None:
    """A single user for all processes takes their roles. The creator of a role may grant it, and
    is no member of it until then, except as a superuser.
    """
    may_grant = "SELECT rolcreaterole FROM pg_roles WHERE rolname = CURRENT_USER"
    if not connection.scalar(text(may_grant)):
        return  # each process has a user of its own
    for role in (WRITER, READER, TRIMMER, LEDGER):
        connection.execute(text(f"GRANT {role} TO CURRENT_USER"))


def _goal(scripts: "ScriptDirectory", found: str, phase: str, steps: Steps) -> str:
    """The revision to upgrade to; in the phase `pre`, the one before the first post step."""
    if phase != "pre" or not found:  # no code uses an empty database yet
        return steps.newest
    goal = found
    for revision, kind in _in_order(scripts):
        if revision <= found:
            continue
        if kind == "post":
            break
        goal = revision
    if goal < steps.oldest:
        hint = (
            f"Steps after {goal} remove what the running code may need. Stop it, then "
            f"run `joulie migrate` without a phase."
        )
        raise SchemaMismatch(found, steps.oldest, hint)
    return goal


def _raise_floor(connection: Connection, scripts: "ScriptDirectory", reached: str) -> None:
    posts = [step for step, kind in _in_order(scripts) if kind == "post" and step <= reached]
    if posts:
        connection.execute(text("DELETE FROM schema_floor"))
        connection.execute(
            text("INSERT INTO schema_floor (oldest) VALUES (:oldest)"), {"oldest": max(posts)}
        )


def _require_first_format(found: str) -> None:
    if found and found < FIRST:
        hint = (
            "Its log is of a version up to 0.2.0, which this one does not continue: read it with "
            "the version that wrote it, and start this one with an empty database and streams."
        )
        raise SchemaMismatch(found, FIRST, hint)


def _require_young_enough(engine: Engine, found: str, steps: Steps) -> None:
    """Raises SchemaMismatch if an unknown post step was run; unknown pre steps are harmless."""
    with engine.connect() as connection:
        floor = connection.scalar(text("SELECT max(oldest) FROM schema_floor")) or ""
    if floor > steps.newest:
        hint = "This code is older than the database: use the version of joulie that migrated it."
        raise SchemaMismatch(found, steps.newest, hint)


def _alembic(steps: Steps) -> tuple["Config", "ScriptDirectory"]:
    from alembic.config import Config
    from alembic.script import ScriptDirectory

    config = Config()
    config.set_main_option("script_location", str(_HERE))
    config.set_main_option("path_separator", "newline")
    config.set_main_option("version_locations", "\n".join(str(place) for place in steps.folders))
    return config, ScriptDirectory.from_config(config)


def _in_order(scripts: "ScriptDirectory") -> Iterator[tuple[str, str]]:
    """Every step with its phase, oldest first; revisions sort in their order."""
    for script in sorted(scripts.walk_revisions(), key=lambda script: script.revision):
        yield script.revision, script.module.phase
