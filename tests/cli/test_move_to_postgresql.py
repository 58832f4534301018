"""The steps of docs/move-to-postgresql.md: a trimmed log continues in another database."""

from pathlib import Path
from typing import Any

import pytest

from joulie_demo import demo, joulie, told_by
from joulie_projections.testing import Postgres

SMALL = ("--nodes", "20", "--seed", "3")


@pytest.fixture
def sqlite_log(tmp_path: Path) -> Path:
    """A data directory with decisions, in which nothing runs."""
    data = tmp_path / "data"
    with demo(data, *SMALL) as started:
        started.await_decisions(20)
        started.end()
    return data


def continued(data: Path, **settings: str) -> None:
    with demo(data, *SMALL, **settings) as started:
        started.await_decisions(started.counts().answers + 10)
        started.end()


def trimmed(data: Path, archive: Path) -> None:
    words = ("archive", "--to", archive, "--now", "--trim", "--keep", "1ms", "--data", data)
    done = joulie(*words)
    assert done.returncode == 0, done.stderr


def require_whole(data: Path, archive: Path, before: dict[str, Any], **settings: str) -> None:
    verified, after = told_by("verify", "--data", data, **settings)
    replayed, report = told_by("replay", "--data", data, "--archive", archive, **settings)
    assert (verified, replayed) == (0, 0), (after, report)
    assert after["entries"] > before["entries"] > 20


def move(source: str, target: str) -> None:
    moved = joulie("migrate", "--from", source, "--to", target)
    assert moved.returncode == 0, moved.stderr


def test_a_trimmed_log_continues_in_postgresql(
    sqlite_log: Path, tmp_path: Path, postgres: Postgres
) -> None:
    url, archive, old = postgres.empty(), tmp_path / "archive", tmp_path / "joulie.db"
    trimmed(sqlite_log, archive)
    _, before = told_by("verify", "--data", sqlite_log)
    (sqlite_log / "joulie.db").rename(old)

    move(f"sqlite:///{old}", url)

    continued(sqlite_log, DATABASE_URL=url)
    require_whole(sqlite_log, archive, before, DATABASE_URL=url)


def test_a_trimmed_log_continues_in_sqlite_after_it_was_in_postgresql(
    sqlite_log: Path, tmp_path: Path, postgres: Postgres
) -> None:
    url, archive, old = postgres.empty(), tmp_path / "archive", tmp_path / "joulie.db"
    trimmed(sqlite_log, archive)
    _, before = told_by("verify", "--data", sqlite_log)
    (sqlite_log / "joulie.db").rename(old)

    move(f"sqlite:///{old}", url)
    move(url, f"sqlite:///{sqlite_log / 'joulie.db'}")

    continued(sqlite_log)
    require_whole(sqlite_log, archive, before)


def test_a_trimmed_log_is_restored_from_its_archive_with_the_position_in_its_stream(
    sqlite_log: Path, tmp_path: Path
) -> None:
    archive = tmp_path / "archive"
    trimmed(sqlite_log, archive)
    _, before = told_by("verify", "--data", sqlite_log)
    (sqlite_log / "joulie.db").rename(tmp_path / "joulie.db")

    restored = joulie("archive", "restore", "--to", archive, "--data", sqlite_log)
    assert restored.returncode == 0, restored.stderr

    continued(sqlite_log)
    require_whole(sqlite_log, archive, before)


def test_a_log_moves_into_an_empty_database_only(sqlite_log: Path) -> None:
    url = f"sqlite:///{sqlite_log / 'joulie.db'}"

    refused = joulie("migrate", "--from", url, "--to", url)

    assert refused.returncode == 2
    assert "moves to an empty database" in refused.stderr
