"""The steps of docs/backup.md: a backup of the archive and the streams continues the log."""

import shutil
from pathlib import Path

import pytest

from joulie_demo import PATIENCE_S, demo, joulie, running, told_by

SMALL = ("--nodes", "20", "--seed", "3")


@pytest.fixture(scope="module")
def backup(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with the archive, the streams, the credentials and the keys of a stopped log."""
    folder = tmp_path_factory.mktemp("backup")
    data, backup = folder / "data", folder / "backup"
    with demo(data, *SMALL) as started:
        started.await_decisions(20)
        started.end()
    assert joulie("archive", "--to", backup / "archive", "--now", "--data", data).returncode == 0
    for copied in ("nats", "credentials"):
        shutil.copytree(data / copied, backup / copied)
    for file in ("head.key", "head.pub"):
        shutil.copy(data / file, backup / file)
    shutil.rmtree(data)
    return backup


def restored(backup: Path, new: Path) -> Path:
    done = joulie("archive", "restore", "--to", backup / "archive", "--data", new)
    assert done.returncode == 0, done.stderr
    for file in ("head.key", "head.pub"):
        shutil.copy(backup / file, new / file)
    return new


def test_a_restored_backup_continues_the_log_with_its_streams(backup: Path, tmp_path: Path) -> None:
    new = restored(backup, tmp_path / "new")
    for folder in ("nats", "credentials"):
        shutil.copytree(backup / folder, new / folder)
    _, before = told_by("verify", "--data", new)

    with running("demo", new, "--headless", "--json", *SMALL, "--for", "5s") as started:
        _, err = started.process.communicate(timeout=PATIENCE_S)
    assert started.process.returncode == 0, err

    (verified, after), (replayed, report) = (
        told_by(check, "--data", new) for check in ("verify", "replay")
    )
    assert (verified, replayed) == (0, 0), (after, report)
    assert after["entries"] > before["entries"] > 20


def test_the_archive_alone_answers_questions_about_the_past(backup: Path, tmp_path: Path) -> None:
    history = restored(backup, tmp_path / "history")
    with_archive = ("--data", history, "--archive", backup / "archive")
    verified, log = told_by("verify", "--heads", "none", "--data", history)
    replayed, report = told_by("replay", *with_archive)
    assert (verified, replayed) == (0, 0), (log, report)
    assert joulie("decisions", "--limit", "1", *with_archive).returncode == 0
