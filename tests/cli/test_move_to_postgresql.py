"""The steps of docs/move-to-postgresql.md: a trimmed log continues in another database."""

from pathlib import Path
from typing import Any

import pytest

from joulie_demo import demo, joulie, told_by
from joulie_projections.store.energy_table import EnergyTable
from projections_kit import Postgres

SMALL = ("--nodes", "20", "--seed", "3")


def continued(data: Path, **settings: str) -> None:
    with demo(data, *SMALL, **settings) as started:
        started.await_decisions(started.counts().answers + 10)
        started.end()


def trimmed(data: Path, archive: Path) -> None:
    words = ("archive", "--dir", archive, "--now", "--trim", "--keep", "1ms", "--data", data)
    done = joulie(*words)
    assert done.returncode == 0, done.stderr


def require_whole(data: Path, archive: Path, before: dict[str, Any], **settings: str) -> None:
    verified, after = told_by("verify", "--data", data, **settings)
    replayed, report = told_by("replay", "--data", data, "--archive", archive, **settings)
    assert (verified, replayed) == (0, 0), (after, report)
    assert after["entries"] > before["entries"] > 20


def energy(place: Path | str) -> list[Any]:
    with EnergyTable.readable(place) as table:
        return list(table.between(0, 2**62, ("node", "pod")).intervals)


def move(source: str, target: str) -> None:
    moved = joulie("migrate", "--from-url", source, "--to-url", target)
    assert moved.returncode == 0, moved.stderr


@pytest.mark.postgres
def test_a_trimmed_log_continues_in_postgresql(
    demo_data: Path, tmp_path: Path, postgres: Postgres
) -> None:
    url, archive, old = postgres.empty(), tmp_path / "archive", tmp_path / "joulie.db"
    trimmed(demo_data, archive)
    _, before = told_by("verify", "--data", demo_data)
    for name in ("joulie.db", "joulie-ledger.db"):
        (demo_data / name).rename(tmp_path / name)
    energy_before = energy(tmp_path / "joulie.db")

    move(f"sqlite:///{old}", url)

    assert energy(url) == energy_before != []
    continued(demo_data, DATABASE_URL=url)
    require_whole(demo_data, archive, before, DATABASE_URL=url)


@pytest.mark.postgres
def test_a_trimmed_log_continues_in_sqlite_after_it_was_in_postgresql(
    demo_data: Path, tmp_path: Path, postgres: Postgres
) -> None:
    url, archive, old = postgres.empty(), tmp_path / "archive", tmp_path / "joulie.db"
    trimmed(demo_data, archive)
    _, before = told_by("verify", "--data", demo_data)
    for name in ("joulie.db", "joulie-ledger.db"):
        (demo_data / name).rename(tmp_path / name)
    energy_before = energy(tmp_path / "joulie.db")

    move(f"sqlite:///{old}", url)
    move(url, f"sqlite:///{demo_data / 'joulie.db'}")

    assert energy(demo_data / "joulie.db") == energy_before != []
    continued(demo_data)
    require_whole(demo_data, archive, before)


@pytest.mark.postgres
def test_a_trimmed_log_is_restored_from_its_archive_with_the_position_in_its_stream(
    demo_data: Path, tmp_path: Path
) -> None:
    archive = tmp_path / "archive"
    trimmed(demo_data, archive)
    _, before = told_by("verify", "--data", demo_data)
    (demo_data / "joulie.db").rename(tmp_path / "joulie.db")

    restored = joulie("archive", "restore", "--dir", archive, "--data", demo_data)
    assert restored.returncode == 0, restored.stderr

    continued(demo_data)
    require_whole(demo_data, archive, before)


@pytest.mark.postgres
def test_a_log_moves_into_an_empty_database_only(demo_data: Path) -> None:
    url = f"sqlite:///{demo_data / 'joulie.db'}"

    refused = joulie("migrate", "--from-url", url, "--to-url", url)

    assert refused.returncode == 2
    assert "moves to an empty database" in refused.stderr
