"""The steps of docs/move-to-postgresql.md: a log continues in another database."""

from pathlib import Path

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


def continued(data: Path, url: str) -> None:
    with demo(data, *SMALL, DATABASE_URL=url) as started:
        started.await_decisions(started.counts().answers + 20)
        started.end()


def test_a_log_continues_in_postgresql_with_the_same_positions_and_signatures(
    sqlite_log: Path, tmp_path: Path, postgres: Postgres
) -> None:
    url, archive = postgres.empty(), tmp_path / "move"
    _, before = told_by("verify", "--data", sqlite_log)

    assert joulie("archive", "--to", archive, "--now", "--data", sqlite_log).returncode == 0
    moved = joulie("archive", "restore", "--to", archive, "--data", sqlite_log, DATABASE_URL=url)
    assert moved.returncode == 0, moved.stderr
    (sqlite_log / "joulie.db").rename(tmp_path / "joulie.db")
    continued(sqlite_log, url)

    verified, after = told_by("verify", "--data", sqlite_log, DATABASE_URL=url)
    replayed, report = told_by("replay", "--data", sqlite_log, DATABASE_URL=url)
    assert (verified, replayed) == (0, 0), (after, report)
    assert after["entries"] > before["entries"] > 20
