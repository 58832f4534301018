"""One query in DuckDB, which may read the given files and nothing else."""

import contextlib
import re
import threading
from collections.abc import Collection, Generator, Iterable, Mapping, Sequence
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

from joulie_audit.sql.rows import Rows
from joulie_audit.sql.views import STORED, VIEWS, empty, needed
from joulie_bus.errors import QueryNotRun, one_line

_MISSING = (
    "DuckDB is not installed.",
    "Install the extra: pip install 'joulie[sql]'.",
)
_ONE_QUERY = "Give one SELECT; other statements are refused, as nothing here can be changed."
# Nothing is fetched, and nothing that a user has installed is loaded.
_CONFIG: Mapping[str, Any] = {
    "autoinstall_known_extensions": False,
    "autoload_known_extensions": False,
    "allow_community_extensions": False,
    "python_enable_replacements": False,  # a variable of this process is no table
}


class Limits(NamedTuple):
    rows: int  # of the answer
    memory_mib: int
    seconds: float


def tables_of(query: str) -> frozenset[str]:
    """The stored tables that it needs. Raises QueryNotRun before anything is read: for what is no
    single SELECT, and for unknown tables and columns."""
    with _connected({}) as db, _refusing():
        statements = db.extract_statements(query)
        kinds = [statement.type for statement in statements]
        if kinds not in ([_duckdb().StatementType.SELECT], [_duckdb().StatementType.EXPLAIN]):
            raise QueryNotRun("It is not one SELECT.", _ONE_QUERY)
        _prepare(db, {})
        _lock(db, ())
        if kinds == [_duckdb().StatementType.SELECT]:
            db.execute(f"EXPLAIN {query}")
        try:
            return needed(db.get_table_names(query))
        except _duckdb().BinderException:  # of an ASOF join, which it does not know there
            return needed(re.findall(r"\w+", query.lower()))


def answered(query: str, files: Mapping[str, Sequence[Path]], place: Path, limits: Limits) -> Rows:
    """`place` is a directory for what does not fit in memory."""
    spill = {"temp_directory": str(place), "memory_limit": f"{limits.memory_mib}MiB"}
    with _connected(spill) as db:
        _prepare(db, files)
        _lock(db, [file for each in files.values() for file in each])
        with _interrupted_after(db, limits.seconds), _refusing():
            found = db.execute(query)
            rows = found.fetchmany(limits.rows + 1)
        columns = [column[0] for column in found.description]
        return Rows(columns, rows[: limits.rows], len(rows) > limits.rows)


def _prepare(db: Any, files: Mapping[str, Sequence[Path]]) -> None:
    for table in STORED:
        if read := files.get(table.name):
            db.execute(f"CREATE VIEW {table.name} AS FROM read_parquet({_listed(read)})")
        else:
            db.execute(empty(table))
    for view in VIEWS:
        db.execute(f"CREATE VIEW {view.name} AS {view.query}")


def _lock(db: Any, files: Collection[Path]) -> None:
    """From here on, no other file is read, no file is written, and no setting changes."""
    db.execute(f"SET allowed_paths = {_listed(files)}")
    db.execute("SET enable_external_access = false")
    db.execute("SET lock_configuration = true")


def _listed(files: Iterable[Path]) -> str:
    quoted = (str(file).replace("'", "''") for file in files)
    return "[" + ", ".join(f"'{file}'" for file in quoted) + "]"


@contextlib.contextmanager
def _connected(config: Mapping[str, Any]) -> Generator[Any]:
    db = _duckdb().connect(config={**_CONFIG, **config})
    try:
        db.execute("SET TimeZone = 'UTC'")
        yield db
    finally:
        db.close()


@contextlib.contextmanager
def _interrupted_after(db: Any, seconds: float) -> Generator[None]:
    timer = threading.Timer(seconds, db.interrupt)
    timer.daemon = True
    timer.start()
    try:
        yield
    except _duckdb().InterruptException as error:
        raise QueryNotRun(
            f"It took longer than {seconds:g} s.", "Ask for less, or give --timeout."
        ) from error
    finally:
        timer.cancel()


@contextlib.contextmanager
def _refusing() -> Generator[None]:
    try:
        yield
    except _duckdb().InterruptException:
        raise
    except _duckdb().Error as error:
        raise QueryNotRun(one_line(str(error)), "`joulie sql` lists the tables.") from error


def _duckdb() -> Any:
    if find_spec("duckdb") is None:
        raise QueryNotRun(*_MISSING)
    return import_module("duckdb")
