"""Compares the schema of the database with the migrations, and its indexes with their tables.

Readers find entries by indexes. An index of another definition, or one that was built while its
table had another definition, hides entries that are in the table.
"""

from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor

from sqlalchemy import Connection, Engine, Table, inspect, text
from sqlalchemy.exc import DBAPIError

from joulie_migrations import NEWEST, current, postgres_guards
from joulie_migrations.definitions import Definitions, migrated, stored_in
from joulie_migrations.postgres_guards import Guards
from joulie_projections.store.postgres import BACKEND
from joulie_projections.store.tables import metadata

_DISABLED = (
    "SELECT c.relname, t.tgname FROM pg_trigger t JOIN pg_class c ON c.oid = t.tgrelid "
    "WHERE NOT t.tgisinternal AND t.tgenabled = 'D' ORDER BY 1, 2"
)
_INVALID = (
    "SELECT c.relname FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid "
    "WHERE NOT (i.indisvalid AND i.indisready AND i.indislive) ORDER BY 1"
)


def schema_flaw(db: Connection) -> str:
    """The first definition that no migration made, or that is missing; empty if there is none."""
    found = _flaws_on_postgres(db) if db.dialect.name == BACKEND else _flaws_on_sqlite(db)
    return next(found, "")


def _flaws_on_sqlite(db: Connection) -> Iterator[str]:
    stored, wanted = stored_in(db), migrated()
    if current(db.engine) > NEWEST:  # a later step may have added columns, tables and triggers
        wanted = {key: sql for key, sql in wanted.items() if key[0] == "index"}
        stored = {key: sql for key, sql in stored.items() if key in wanted}
    yield from _differences(stored, wanted)


def _differences(stored: Definitions, wanted: Definitions) -> Iterator[str]:
    for (kind, name), sql in wanted.items():
        if (kind, name) not in stored:
            yield f"the {kind} {name} is missing"
        elif stored[kind, name] != sql:
            yield f"the {kind} {name} has another definition than the migrations gave it"
    for kind, name in stored.keys() - wanted.keys():
        yield f"no migration made the {kind} {name}"


def _flaws_on_postgres(db: Connection) -> Iterator[str]:
    for table in metadata.tables.values():
        yield from _index_flaws(db, table)
    for (name,) in db.execute(text(_INVALID)):
        yield f"the index {name} is not valid"
    for table, name in db.execute(text(_DISABLED)):
        yield f"the trigger {name} of the table {table} is disabled"
    for place, name in postgres_guards.rules_in(db):
        yield f"no migration made the rule {name} of the table {place}"
    if current(db.engine) <= NEWEST:  # a later step may have added or changed guards
        yield from _guard_flaws(postgres_guards.stored_in(db), postgres_guards.migrated())


def _guard_flaws(stored: Guards, wanted: Guards) -> Iterator[str]:
    for name, source in wanted.functions.items():
        if stored.functions.get(name) != source:
            other = "is missing, or has another source than the migrations gave it"
            yield f"the function {name} {other}"
    for kind, there, made in (
        ("trigger", stored.triggers, wanted.triggers),
        ("check", stored.checks, wanted.checks),
    ):
        for table, name in made.keys() | there.keys():
            if made.get((table, name)) != there.get((table, name)):
                yield f"the {kind} {name} of the table {table} is not what the migrations made"


def _index_flaws(db: Connection, table: Table) -> Iterator[str]:
    stored = {found["name"]: found for found in inspect(db).get_indexes(table.name)}
    for index in table.indexes:
        name, found = str(index.name), stored.get(str(index.name))
        if found is None:
            yield f"the index {name} is missing"
            continue
        is_partial = bool(found.get("dialect_options", {}).get("postgresql_where"))
        columns = [column.name for column in index.columns]
        if is_partial or "expressions" in found or found["column_names"] != columns:
            yield f"the index {name} has another definition than the migrations gave it"


# --- the indexes of SQLite against their tables ---------------------------------------------------


class IntegrityCheck:
    """The check of SQLite itself, on a connection of its own: it reads the whole file.

    It runs beside other reads: SQLite holds no lock of Python while it works. PostgreSQL offers no
    such check to a role that only reads.
    """

    def __init__(self, engine: Engine) -> None:
        self._found: Future[str] | None = None
        if engine.dialect.name != BACKEND:
            thread = ThreadPoolExecutor(1, "integrity-check")
            self._found = thread.submit(_first_error, engine)
            thread.shutdown(wait=False)

    def flaw(self) -> str:
        """Waits until the check has ended; empty if it found nothing."""
        return "" if self._found is None else self._found.result()


def _first_error(engine: Engine) -> str:
    try:
        with engine.connect() as db:
            found: list[str] = list(db.scalars(text("PRAGMA integrity_check(1)")))
    except DBAPIError as error:
        return str(error.orig)
    return "" if found == ["ok"] else " ".join(found)
