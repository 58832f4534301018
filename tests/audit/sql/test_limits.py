"""A query reads the files of the log and nothing else, within its memory and its time."""

from pathlib import Path

import pytest

from audit_kit import RecordedLog, written_archive
from joulie_audit.archive.columnar import Parquet, Segment
from joulie_audit.archive.parts import Archive
from joulie_audit.sql import session
from joulie_audit.sql.files import Files
from joulie_audit.sql.rows import Rows
from joulie_audit.sql.session import Limits
from joulie_bus.errors import ArchiveBroken, QueryNotRun

LIMITS = Limits(rows=10, memory_mib=64, seconds=30)
SECRET = "a secret"


def run(query: str, files: Files, place: Path, limits: Limits = LIMITS) -> Rows:
    session.tables_of(query)
    return session.answered(query, files.by_table, place, limits)


@pytest.fixture
def no_files(tmp_path: Path) -> Files:
    return Files((), tmp_path)


@pytest.mark.parametrize(
    "query",
    [
        "COPY decisions TO 'FILE'",
        "COPY (SELECT 1) TO 'FILE'",
        "EXPORT DATABASE 'FILE'",
        "ATTACH 'FILE' AS other",
        "INSTALL httpfs",
        "LOAD httpfs",
        "CREATE TABLE mine AS SELECT 1",
        "DROP VIEW scores",
        "INSERT INTO energy SELECT * FROM energy",
        "UPDATE energy SET node = 'n1'",
        "DELETE FROM decisions",
        "SET enable_external_access = true",
        "PRAGMA disable_progress_bar",
        "CALL pragma_version()",
        "SELECT 1; SELECT 2",
        "SELECT 1; COPY (SELECT 1) TO 'FILE'",
        "",
        "SELECT FROM WHERE",
    ],
)
def test_what_is_no_single_select_is_refused_before_anything_is_read(
    query: str, tmp_path: Path
) -> None:
    with pytest.raises(QueryNotRun, match="The query was not run"):
        session.tables_of(query.replace("FILE", str(tmp_path / "file")))

    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    "query",
    [
        "FROM 'FILE'",
        "FROM read_csv('FILE')",
        "FROM read_text('FILE')",
        "FROM read_blob('FILE')",
        "FROM read_parquet('DIR/*')",
        "FROM glob('DIR/*')",
        "FROM read_csv('/etc/passwd')",
        "FROM read_json('https://example.com/x.json')",
    ],
)
def test_no_other_file_is_read(query: str, no_files: Files, tmp_path: Path) -> None:
    file = tmp_path / "other" / "secret.csv"
    file.parent.mkdir()
    file.write_text(f"word\n{SECRET}\n")
    asked = query.replace("FILE", str(file)).replace("DIR", str(file.parent))

    with pytest.raises(QueryNotRun) as refused:
        run(asked, no_files, tmp_path)

    assert SECRET not in str(refused.value)


def test_a_query_that_takes_too_long_ends(no_files: Files, tmp_path: Path) -> None:
    endless = (
        "SELECT count(*) FROM range(1000000000) a, range(1000000000) b WHERE a.range < b.range"
    )

    with pytest.raises(QueryNotRun, match=r"longer than 0\.2 s"):
        run(endless, no_files, tmp_path, LIMITS._replace(seconds=0.2))


def test_a_query_that_needs_too_much_memory_ends(no_files: Files, tmp_path: Path) -> None:
    with pytest.raises(QueryNotRun, match=r"(?i)memory"):
        run("SELECT list(range) FROM range(100000000)", no_files, tmp_path)


def test_rows_beyond_the_limit_are_said_to_be_there(no_files: Files, tmp_path: Path) -> None:
    assert len(run("FROM range(10)", no_files, tmp_path).rows) == 10
    assert not run("FROM range(10)", no_files, tmp_path).more
    assert run("FROM range(11)", no_files, tmp_path).more


def test_an_unknown_column_is_one_line_that_names_it(no_files: Files, tmp_path: Path) -> None:
    with pytest.raises(QueryNotRun, match="podd") as refused:
        run("SELECT podd FROM decisions", no_files, tmp_path)

    assert "\n" not in str(refused.value)


@pytest.mark.anyio
async def test_a_changed_file_is_named_and_not_read(small_log: RecordedLog, tmp_path: Path) -> None:
    await written_archive(small_log, tmp_path / "archive", Parquet())
    [file] = (tmp_path / "archive").rglob("decisions.parquet")
    file.write_bytes(file.read_bytes()[:-1] + b"x")

    with pytest.raises(ArchiveBroken, match=r"decisions\.parquet"):
        Files(["decisions"], tmp_path).add_archive(Archive.of(tmp_path / "archive"))

    Files(["readings"], tmp_path).add_archive(Archive.of(tmp_path / "archive"))


@pytest.mark.anyio
async def test_plain_segments_are_refused_with_a_way_out(
    small_log: RecordedLog, tmp_path: Path
) -> None:
    await written_archive(small_log, tmp_path / "archive", Segment())

    with pytest.raises(QueryNotRun, match="extra `archive`"):
        Files(["decisions"], tmp_path).add_archive(Archive.of(tmp_path / "archive"))
