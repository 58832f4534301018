"""Typed tables of an archive, read by DuckDB, Polars and pandas as docs/archive-tables.md shows."""

import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import duckdb
import msgspec
import pytest
from msgspec.structs import replace

from audit_kit import typed_columns
from joulie_audit.access.kept_heads import public_key_in
from joulie_audit.archive.archiver import Archiver
from joulie_audit.archive.columnar import Parquet
from joulie_audit.archive.part_tables import FactPart, LogPart
from joulie_audit.archive.parts import FACTS, LOG, MANIFEST, Archive, File, Part, sealed
from joulie_audit.archive.untrusted_files import checksum
from joulie_audit.columns.tables import KINDS, OF_FACTS, OF_LOG, Columns, Table
from joulie_audit.verify.verify_archive import verify_archive
from joulie_bus.events import AnyEvent, OutcomeSeen, PodBound, PrioritizeDecided, codec
from joulie_projections.chain.keyring import Ring

GOLDEN = Path(__file__).parents[1] / "golden"
PAGE = Path(__file__).parents[3] / "docs" / "archive-tables.md"
BLOCKS = re.findall(r"```(sql|python)\n(.*?)```", PAGE.read_text(), re.DOTALL)
[VIEWS, *QUERIES] = [text for language, text in BLOCKS if language == "sql"]
PROGRAMS = [text for language, text in BLOCKS if language == "python"]
# The golden log has no pod that waited for another node than the best.
MAY_BE_EMPTY = ("rank > 1", "card_readings")


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The golden log in Parquet."""
    place = tmp_path_factory.mktemp("parquet") / "archive"
    write_again(Archive.of(GOLDEN), place)
    return place


def write_again(golden: Archive, to: Path) -> None:
    archiver = Archiver(to, Parquet(), 0, public())
    for kind in (FACTS, LOG):
        before = Part.before_the_first(kind)
        for place, part in golden.parts(kind):
            blank = replace(part, files=[], prev=before.seal, seal="")
            found = read(golden, place, part)
            before = archiver.written(to / place.relative_to(golden.path), blank, found)


def read(archive: Archive, place: Path, part: Part) -> FactPart | LogPart:
    return (archive.read_facts if part.kind == FACTS else archive.read_log)(place, part)


def public() -> Ring:
    return public_key_in(GOLDEN / "head.pub")


def connected(archive: Path) -> duckdb.DuckDBPyConnection:
    db = duckdb.connect()
    db.execute(VIEWS.replace("ARCHIVE", str(archive)))
    return db


def events(archive: Path, kind: type[AnyEvent]) -> list[Any]:
    golden = Archive.of(archive)
    bodies = [
        *(record.data for each in golden.facts for record in golden.read_facts(*each).records),
        *(entry.message for each in golden.log for entry in golden.read_log(*each).entries),
    ]
    decoded = (codec.decoded(body, "it") for body in bodies)
    return [event for event in decoded if isinstance(event, kind)]


@pytest.mark.parametrize("query", QUERIES)
def test_each_query_of_the_page_has_rows(archive: Path, query: str) -> None:
    rows = connected(archive).execute(query).fetchall()

    assert rows or any(words in query for words in MAY_BE_EMPTY)


@pytest.mark.parametrize("program", PROGRAMS, ids=["polars", "pandas"])
def test_the_programs_of_the_page_find_what_duckdb_finds(archive: Path, program: str) -> None:
    found: dict[str, Any] = {}
    exec(program.replace("ARCHIVE", str(archive)), found)
    nodes = connected(archive).execute("SELECT count(DISTINCT node) FROM readings").fetchone()

    assert nodes == (len(found["watts"]),)


def test_the_rows_are_those_of_the_messages(archive: Path) -> None:
    db = connected(archive)
    bound = events(archive, PodBound)
    outcomes = events(archive, OutcomeSeen)
    scored = events(archive, PrioritizeDecided)

    assert db.execute(
        "SELECT pod_uid, node, cpu_milli FROM pods WHERE event = 'bound' ORDER BY position"
    ).fetchall() == [(each.pod.uid, each.node, each.pod.cpu_milli) for each in bound]
    assert db.execute(
        "SELECT pod, node, rank FROM decisions WHERE kind = 'outcome' ORDER BY entry"
    ).fetchall() == [(each.name, each.node, each.rank) for each in outcomes]
    assert db.execute(
        "SELECT node, value FROM terms WHERE term = 'score' AND place = 1 ORDER BY entry"
    ).fetchall() == [(each.top[0].node, each.top[0].score) for each in scored if each.top]


def test_an_unknown_value_is_null(archive: Path) -> None:
    unknown = connected(archive).execute(
        "SELECT count(energy_uj) FROM readings WHERE counted_from IS NULL"
    )

    assert unknown.fetchone() == (0,)


def test_columns_have_the_same_types_in_parts_without_rows(tmp_path: Path) -> None:
    """An engine reads the files of all parts as one table."""
    for table in OF_FACTS:
        file = tmp_path / table.name
        Parquet().write(file, table.filled(()), table.kinds)
        described = duckdb.execute(f"DESCRIBE FROM read_parquet('{file}')").fetchall()
        types = {name: kind for name, kind, *_ in described}

        assert set(types) == set(table.kinds)
        assert types.get("power_mw", "BIGINT") == "BIGINT"
        assert (types["stored_at"], types["position"]) == ("TIMESTAMP WITH TIME ZONE", "BIGINT")


@pytest.mark.parametrize("table", [*OF_FACTS, *OF_LOG], ids=lambda table: table.name)
def test_each_column_has_a_name_that_needs_no_quotes(archive: Path, table: Table) -> None:
    names = ", ".join(f"{name}" for name in table.kinds)

    connected(archive).execute(f"SELECT {names} FROM {table.name} ORDER BY {names}").fetchall()


# --- forged tables ----------------------------------------------------------------------------


def forged(archive: Path, kind: str, table: str, change: Callable[[Columns], Columns]) -> str:
    """What `verify` finds after a table was changed, with all checksums and the seal."""
    place, part = Archive.of(archive).parts(kind)[0]
    file = place / f"{table}.parquet"
    Parquet().write(file, change(typed_columns(file)), KINDS[table])
    files = [with_checksum(place, each) for each in part.files]
    (place / MANIFEST).write_bytes(msgspec.json.encode(sealed(replace(part, files=files))))
    return verify_archive(Archive.of(archive), public()).flaw or ""


def with_checksum(place: Path, file: File) -> File:
    return replace(file, sha256=checksum(place / file.name))


def with_first(column: str, value: object) -> Callable[[Columns], Columns]:
    def change(columns: Columns) -> Columns:
        rows: Sequence[Any] = columns[column]
        return {**columns, column: [value, *rows[1:]]}

    return change


def test_the_golden_log_in_parquet_verifies(tmp_path: Path) -> None:
    write_again(Archive.of(GOLDEN), tmp_path / "a")

    assert verify_archive(Archive.of(tmp_path / "a"), public()).flaw is None


@pytest.mark.parametrize(
    ("kind", "table", "column", "value"),
    [
        (FACTS, "readings", "power_mw", 1),
        (FACTS, "readings", "plain", False),
        (FACTS, "readings", "mean_mw", 5),
        (FACTS, "pods", "node", "another"),
        (FACTS, "plans", "because", "a reason"),
        (LOG, "decisions", "node", "another"),
        (LOG, "decisions", "decided_at", 0),
        (LOG, "terms", "value", 99.5),
    ],
)
def test_one_changed_cell_is_a_flaw(
    tmp_path: Path, kind: str, table: str, column: str, value: object
) -> None:
    write_again(Archive.of(GOLDEN), tmp_path / "a")

    flaw = forged(tmp_path / "a", kind, table, with_first(column, value))

    assert f"the table {table} is not that of its messages" in flaw


@pytest.mark.parametrize("more", [-1, 1])
def test_a_row_more_or_less_is_a_flaw(tmp_path: Path, more: int) -> None:
    write_again(Archive.of(GOLDEN), tmp_path / "a")

    def change(columns: Columns) -> Columns:
        return {
            name: [*rows, rows[-1]] if more > 0 else rows[:-1] for name, rows in columns.items()
        }

    flaw = forged(tmp_path / "a", LOG, "decisions", change)

    assert "the table decisions is not that of its messages" in flaw


@pytest.mark.parametrize("name", ["000-evil/readings.parquet", "readings.parquet"])
def test_a_file_that_no_part_lists_is_a_flaw(tmp_path: Path, name: str) -> None:
    write_again(Archive.of(GOLDEN), tmp_path / "a")
    place, _ = Archive.of(tmp_path / "a").facts[0]
    beside = place.parent / name
    beside.parent.mkdir(exist_ok=True)
    beside.write_bytes(b"forged")

    assert f"{beside} is not what was archived: no part of the archive lists it" in (
        verify_archive(Archive.of(tmp_path / "a"), public()).flaw or ""
    )


def test_an_unfinished_part_is_left_out(tmp_path: Path) -> None:
    write_again(Archive.of(GOLDEN), tmp_path / "a")
    place, _ = Archive.of(tmp_path / "a").facts[0]
    draft = place.with_name(f".{place.name}.new")
    draft.mkdir()
    (draft / "readings.parquet").write_bytes(b"half of it")

    assert verify_archive(Archive.of(tmp_path / "a"), public()).flaw is None
    assert connected(tmp_path / "a").execute("SELECT count(*) > 0 FROM readings").fetchone() == (
        True,
    )
