"""The schema, one step at a time. Run by `joulie migrate`; never by a process that serves.

A step is `pre` or `post`. Pre steps only add, so that code of the last version works on beside
them: they run before the new code is rolled out. Post steps take away, when none but the new code
is left; each raises the floor: code that wants an older schema is refused from then on. One that
the new code cannot do without is taken in between, while neither works.
"""

from collections.abc import Iterator
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from sqlalchemy import Connection, Engine, inspect, text

from joulie_bus.errors import SchemaMismatch

if TYPE_CHECKING:
    from alembic.config import Config
    from alembic.script import ScriptDirectory

OLDEST = "0005"  # the schema that this code needs at least
NEWEST = "0005"  # the last one that it knows
PHASES = ("pre", "post")
_HERE = Path(str(files(__name__)))
_VERSIONS = "alembic_version"


class Steps(NamedTuple):
    """A sequence of steps, and what the code beside it can work with."""

    folders: tuple[Path, ...]
    oldest: str
    newest: str


RELEASED = Steps((_HERE / "versions",), OLDEST, NEWEST)


def current(engine: Engine) -> str:
    """The schema that the database has; empty for none."""
    with engine.connect() as connection:
        if not inspect(connection).has_table(_VERSIONS):
            return ""
        return connection.scalar(text(f"SELECT version_num FROM {_VERSIONS}")) or ""


def require(engine: Engine, steps: Steps = RELEASED) -> None:
    """Refuses to work on a schema that this code was not written for, older or newer."""
    found = current(engine)
    if found < steps.oldest:
        raise SchemaMismatch(found or "none", steps.oldest)
    _require_young_enough(engine, found, steps)


def upgrade(engine: Engine, phase: str = "", steps: Steps = RELEASED) -> str:
    """Takes the steps of a phase, or all. Returns the schema that the database is at then."""
    # Alembic takes most of a second to import, and only a migration needs it.
    from alembic import command

    found = current(engine)
    if found:
        _require_young_enough(engine, found, steps)
    if found > steps.newest:
        return found  # a newer version has added to it, and asks nobody to take that away
    config, scripts = _alembic(steps)
    wanted = _goal(scripts, found, phase, steps)
    if wanted == found:
        return found
    with engine.begin() as connection:
        config.attributes["connection"] = connection
        command.upgrade(config, wanted)
        _raise_floor(connection, scripts, wanted)
    return wanted


def _goal(scripts: "ScriptDirectory", found: str, phase: str, steps: Steps) -> str:
    """How far to go. Before the roll-out: up to the first step that takes something away."""
    if phase != "pre" or not found:  # nobody works yet on a database that is empty
        return steps.newest
    goal = found
    for revision, kind in _in_order(scripts):
        if revision <= found:
            continue
        if kind == "post":
            break
        goal = revision
    if goal < steps.oldest:
        told = (
            f"Steps after {goal} take away what the code that runs now may need. Stop it, then "
            f"run `joulie migrate` without a phase."
        )
        raise SchemaMismatch(found, steps.oldest, told)
    return goal


def _raise_floor(connection: Connection, scripts: "ScriptDirectory", reached: str) -> None:
    posts = [step for step, kind in _in_order(scripts) if kind == "post" and step <= reached]
    if posts:
        connection.execute(text("DELETE FROM schema_floor"))
        connection.execute(
            text("INSERT INTO schema_floor (oldest) VALUES (:oldest)"), {"oldest": max(posts)}
        )


def _require_young_enough(engine: Engine, found: str, steps: Steps) -> None:
    """Steps that we do not know are no harm as long as none of them took something away."""
    with engine.connect() as connection:
        floor = connection.scalar(text("SELECT max(oldest) FROM schema_floor")) or ""
    if floor > steps.newest:
        told = "This code is older than the database: use the version of joulie that migrated it."
        raise SchemaMismatch(found, steps.newest, told)


def _alembic(steps: Steps) -> tuple["Config", "ScriptDirectory"]:
    from alembic.config import Config
    from alembic.script import ScriptDirectory

    config = Config()
    config.set_main_option("script_location", str(_HERE))
    config.set_main_option("path_separator", "newline")
    config.set_main_option("version_locations", "\n".join(str(place) for place in steps.folders))
    return config, ScriptDirectory.from_config(config)


def _in_order(scripts: "ScriptDirectory") -> Iterator[tuple[str, str]]:
    """Every step with its phase, oldest first. Numbers sort as they follow one another."""
    for script in sorted(scripts.walk_revisions(), key=lambda script: script.revision):
        yield script.revision, script.module.phase
