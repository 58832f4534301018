"""Typed tables of an archive, read by DuckDB, Polars and pandas as docs/sql.md shows."""

import contextlib
import random
import re
from collections.abc import Callable, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, Literal

import duckdb
import msgspec
import pytest
from msgspec.structs import replace

from audit_kit import typed_columns, write_again
from joulie_audit.access.kept_heads import public_key_in
from joulie_audit.archive.columnar import Parquet
from joulie_audit.archive.parquet_pages import chunks_in, is_by_value, values_in
from joulie_audit.archive.parts import FACTS, LOG, MANIFEST, Archive, File, Part, sealed
from joulie_audit.archive.untrusted_files import checksum, reading
from joulie_audit.columns.tables import KINDS, OF_FACTS, OF_LOG, Columns, Kind, Table
from joulie_audit.verify.verify_archive import verify_archive
from joulie_bus.errors import ArchiveBroken
from joulie_bus.events import (
    AnyEvent,
    FilterDecided,
    OutcomeSeen,
    PodBound,
    PrioritizeDecided,
    codec,
)
from joulie_projections.chain.keyring import Ring

GOLDEN = Path(__file__).parents[1] / "golden"
PAGE = Path(__file__).parents[3] / "docs" / "sql.md"
BLOCKS = re.findall(r"```(sql|python)\n(.*?)```", PAGE.read_text(), re.DOTALL)
[VIEWS] = [text for _, text in BLOCKS if "CREATE VIEW" in text]
PROGRAMS = [text for language, text in BLOCKS if language == "python"]


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The golden log in Parquet."""
    place = tmp_path_factory.mktemp("parquet") / "archive"
    write_again(Archive.of(GOLDEN), place, public())
    return place


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


@pytest.mark.parametrize("program", PROGRAMS, ids=["polars", "pandas"])
def test_the_programs_of_the_page_find_what_duckdb_finds(archive: Path, program: str) -> None:
    found: dict[str, Any] = {}
    exec(program.replace("ARCHIVE", str(archive)), found)
    db = connected(archive)
    nodes = db.execute("SELECT count(DISTINCT node) FROM readings").fetchone()
    rows = db.execute(
        "SELECT count(DISTINCT row) FROM (SELECT unnest(candidate_rows) AS row FROM decisions "
        "WHERE kind = 'prioritize')"
    ).fetchone()

    assert nodes == (len(found["watts"]),)
    assert rows == (len(found["scores"]),)


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


def test_all_candidates_of_an_answer_have_their_scores_and_verdicts(archive: Path) -> None:
    db = connected(archive)
    scored, filtered = events(archive, PrioritizeDecided), events(archive, FilterDecided)

    assert db.execute(
        "SELECT candidate_rows, scores FROM decisions WHERE kind = 'prioritize' ORDER BY entry"
    ).fetchall() == [
        (unpacked("i", each.candidates.ordinals), unpacked("h", each.scores)) for each in scored
    ]
    assert db.execute(
        "SELECT candidate_rows, verdicts FROM decisions WHERE kind = 'filter' ORDER BY entry"
    ).fetchall() == [
        (unpacked("i", each.candidates.ordinals), list(each.verdicts)) for each in filtered
    ]
    assert db.execute(
        "SELECT count(*) FROM decisions WHERE list_max(scores) <> score AND kind = 'prioritize'"
    ).fetchone() == (0,)


def unpacked(letter: Literal["i", "h"], packed: bytes) -> list[int]:
    return memoryview(packed).cast(letter).tolist()


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
    place, _ = Archive.of(archive).parts(kind)[0]
    file = place / f"{table}.parquet"
    Parquet().write(file, change(typed_columns(file)), KINDS[table])
    return verified_again(place)


def verified_again(place: Path) -> str:
    """With the checksums of the files that lie there now."""
    part = msgspec.json.decode((place / MANIFEST).read_bytes(), type=Part)
    files = [with_checksum(place, each) for each in part.files]
    (place / MANIFEST).write_bytes(msgspec.json.encode(sealed(replace(part, files=files))))
    return verify_archive(Archive.of(place.parents[3]), public()).flaw or ""


def with_checksum(place: Path, file: File) -> File:
    return replace(file, sha256=checksum(place / file.name))


def with_first(column: str, value: object) -> Callable[[Columns], Columns]:
    def change(columns: Columns) -> Columns:
        rows: Sequence[Any] = columns[column]
        return {**columns, column: [value, *rows[1:]]}

    return change


def test_the_golden_log_in_parquet_verifies(tmp_path: Path) -> None:
    write_again(Archive.of(GOLDEN), tmp_path / "a", public())

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
        (LOG, "decisions", "candidate_rows", b"\7\0\0\0"),
        (LOG, "decisions", "scores", b"\1\0"),
        (LOG, "decisions", "verdicts", b""),
    ],
)
def test_one_changed_cell_is_a_flaw(
    tmp_path: Path, kind: str, table: str, column: str, value: object
) -> None:
    write_again(Archive.of(GOLDEN), tmp_path / "a", public())

    flaw = forged(tmp_path / "a", kind, table, with_first(column, value))

    assert f"the table {table} is not that of its messages" in flaw


@pytest.mark.parametrize("more", [-1, 1])
def test_a_row_more_or_less_is_a_flaw(tmp_path: Path, more: int) -> None:
    write_again(Archive.of(GOLDEN), tmp_path / "a", public())

    def change(columns: Columns) -> Columns:
        return {
            name: [*rows, rows[-1]] if more > 0 else rows[:-1] for name, rows in columns.items()
        }

    flaw = forged(tmp_path / "a", LOG, "decisions", change)

    assert "the table decisions is not that of its messages" in flaw


def test_a_plain_reading_among_the_other_messages_is_a_flaw(tmp_path: Path) -> None:
    """A ledger would fold it from its columns, and once more from its message."""
    write_again(Archive.of(GOLDEN), tmp_path / "a", public())
    place, _ = Archive.of(tmp_path / "a").facts[0]
    files = [place / f"{name}.parquet" for name in ("messages", "reading_messages")]
    others, readings = (Parquet().read(file.read_bytes()) for file in files)
    moved = {name: [*others[name], readings[name][0]] for name in others}
    rest = {name: rows[1:] for name, rows in readings.items()}
    Parquet().write(files[0], moved, {})
    Parquet().write(files[1], rest, {})

    assert "reading_messages are not those" in verified_again(place)


def test_lists_with_more_values_than_they_should_have_are_not_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A few bytes of a page stand for any number of equal values."""
    file, kinds = tmp_path / "lists", {"rows": Kind.INT32S}
    Parquet().write(file, {"rows": [bytes(4 << 22)]}, kinds)
    read: list[Any] = []
    monkeypatch.setattr(Parquet, "_are", lambda *given: read.append(given))

    assert not Parquet().holds(file.read_bytes(), {"rows": [bytes(4 << 10)]}, kinds)
    assert (file.stat().st_size < 2000, read) == (True, [])


@pytest.mark.parametrize("version", ["1.0", "2.0"])
def test_the_headers_of_pages_tell_how_many_values_a_column_has(
    tmp_path: Path, version: str
) -> None:
    arrow, parquet = import_module("pyarrow"), import_module("pyarrow.parquet")
    file, lists = tmp_path / "file", [[1, 2, 3], None, [], [4] * 100_000]
    parquet.write_table(
        arrow.table({"n": [1, 2, 3, 4], "lists": lists}), file, data_page_version=version
    )
    content = file.read_bytes()

    found = {chunk.path: values_in(content, chunk) for chunk in chunks_in(content)}

    assert found == {"n": 4, "lists.list.element": 3 + 1 + 1 + 100_000}


@pytest.mark.parametrize("version", ["1.0", "2.0"])
@pytest.mark.parametrize("encoding", ["dictionary", "DELTA_BYTE_ARRAY", "PLAIN"])
def test_a_few_bytes_stand_for_many_values_in_some_encodings_only(
    tmp_path: Path, encoding: str, version: str
) -> None:
    arrow, parquet = import_module("pyarrow"), import_module("pyarrow.parquet")
    file = tmp_path / "file"
    parquet.write_table(
        arrow.table({"body": [b"the same"] * 10}),
        file,
        data_page_version=version,
        use_dictionary=encoding == "dictionary",
        column_encoding=None if encoding == "dictionary" else {"body": encoding},
    )
    content = file.read_bytes()

    [chunk] = chunks_in(content)

    assert is_by_value(content, chunk) == (encoding == "PLAIN")


def test_a_table_of_lists_with_any_bytes_changed_is_read_or_a_flaw(tmp_path: Path) -> None:
    """pyarrow ends the process at some footers."""
    file, kinds = tmp_path / "lists", {"rows": Kind.INT32S}
    Parquet().write(file, {"rows": [bytes(16), None, bytes(8)]}, kinds)
    content, chance = file.read_bytes(), random.Random(3)
    for _ in range(600):
        changed = bytearray(content)
        for _ in range(chance.randint(1, 8)):
            changed[chance.randrange(len(changed))] = chance.choice((0, 0x7F, 0xFF, 0x80))
        with contextlib.suppress(ArchiveBroken), reading(file):
            Parquet().holds(bytes(changed), {"rows": [bytes(16), None, bytes(8)]}, kinds)


@pytest.mark.parametrize("name", ["000-evil/readings.parquet", "readings.parquet"])
def test_a_file_that_no_part_lists_is_a_flaw(tmp_path: Path, name: str) -> None:
    write_again(Archive.of(GOLDEN), tmp_path / "a", public())
    place, _ = Archive.of(tmp_path / "a").facts[0]
    beside = place.parent / name
    beside.parent.mkdir(exist_ok=True)
    beside.write_bytes(b"forged")

    assert f"{beside} is not what was archived: no part of the archive lists it" in (
        verify_archive(Archive.of(tmp_path / "a"), public()).flaw or ""
    )


def test_an_unfinished_part_is_left_out(tmp_path: Path) -> None:
    write_again(Archive.of(GOLDEN), tmp_path / "a", public())
    place, _ = Archive.of(tmp_path / "a").facts[0]
    draft = place.with_name(f".{place.name}.new")
    draft.mkdir()
    (draft / "readings.parquet").write_bytes(b"half of it")

    assert verify_archive(Archive.of(tmp_path / "a"), public()).flaw is None
    assert connected(tmp_path / "a").execute("SELECT count(*) > 0 FROM readings").fetchone() == (
        True,
    )
