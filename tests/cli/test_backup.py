"""The steps of docs/backup.md: the log continues with its streams, and without them."""

import shutil
from pathlib import Path
from typing import Any

import pytest

from joulie_demo import demo, joulie, told_by
from joulie_projections.component.data_directory import DataDirectory
from joulie_projections.history.history import History
from recorded_demo import RecordedDemo

SMALL = ("--nodes", "20", "--seed", "3")

pytestmark = pytest.mark.long  # a demo runs first


@pytest.fixture(scope="module")
def backup(recorded_demo: RecordedDemo, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with the archive, the streams, the credentials and the keys of a stopped log; and
    its data, which only tests of a lost broker use."""
    folder = tmp_path_factory.mktemp("backup")
    data, backup = folder / "data", folder / "backup"
    backup.mkdir()
    shutil.copytree(recorded_demo.data, data)
    (backup / "moment").write_text(recorded_demo.moment)
    assert joulie("backup", "--dir", backup / "archive", "--data", data).returncode == 0
    for copied in ("nats", "credentials"):
        shutil.copytree(data / copied, backup / copied)
    for file in ("head.key", "head.pub"):
        shutil.copy(data / file, backup / file)
    shutil.move(data, backup / "data")
    return backup


def restored(backup: Path, new: Path) -> Path:
    done = joulie("archive", "restore", "--dir", backup / "archive", "--data", new)
    assert done.returncode == 0, done.stderr
    for file in ("head.key", "head.pub"):
        shutil.copy(backup / file, new / file)
    return new


def continued(data: Path, *archive: str | Path) -> dict[str, Any]:
    """Runs all components until there are new decisions, verifies and replays; the report."""
    with demo(data, *SMALL) as started:
        started.await_decisions(started.counts().answers + 10)
        started.end()
    verified, log = told_by("verify", "--data", data)
    replayed, report = told_by("replay", "--data", data, *archive)
    assert (verified, replayed) == (0, 0), (log, report)
    assert report["mismatches"] == 0
    return log


def test_a_restored_backup_continues_the_log_with_its_streams(backup: Path, tmp_path: Path) -> None:
    new = restored(backup, tmp_path / "new")
    for folder in ("nats", "credentials"):
        shutil.copytree(backup / folder, new / folder)
    _, before = told_by("verify", "--data", new)

    assert continued(new)["entries"] > before["entries"] > 20


def test_the_archive_alone_answers_questions_about_the_past(backup: Path, tmp_path: Path) -> None:
    history = restored(backup, tmp_path / "history")
    with_archive = ("--data", history, "--archive", backup / "archive")
    verified, log = told_by("verify", "--heads", "none", "--data", history)
    replayed, report = told_by("replay", *with_archive)
    assert (verified, replayed) == (0, 0), (log, report)
    assert joulie("decisions", "--limit", "1", *with_archive).returncode == 0


def test_a_restored_log_continues_beside_a_new_broker(backup: Path, tmp_path: Path) -> None:
    new = restored(backup, tmp_path / "new")
    _, before = told_by("verify", "--heads", "none", "--data", new)

    done = joulie("migrate", "--new-broker", "--data", new)

    assert done.returncode == 0, done.stderr
    log = continued(new, "--archive", backup / "archive")
    assert log["entries"] > before["entries"] > 20


def test_a_database_whose_broker_lost_its_disk_continues_only_when_asked(
    backup: Path, tmp_path: Path
) -> None:
    data = tmp_path / "data"
    shutil.copytree(backup / "data", data, ignore=shutil.ignore_patterns("nats", "run.json"))
    _, before = told_by("verify", "--heads", "none", "--data", data)

    refused = joulie("verify", "--data", data)
    done = joulie("migrate", "--new-broker", "--data", data)
    again = joulie("migrate", "--new-broker", "--data", data)

    assert refused.returncode != 0
    assert (done.returncode, again.returncode) == (0, 0), (done.stderr, again.stderr)
    assert continued(data, "--archive", backup / "archive")["entries"] > before["entries"]
    late = joulie("migrate", "--new-broker", "--data", data)
    assert late.returncode == 2
    assert "cannot continue those of the database: JOULIE_OBS: messages" in late.stderr


def test_a_backup_is_restored_as_of_a_chosen_time(backup: Path, tmp_path: Path) -> None:
    at, past = (backup / "moment").read_text(), tmp_path / "past"
    done = joulie("restore", "--dir", backup / "archive", "--at", at, "--data", past)
    assert done.returncode == 0, done.stderr
    shutil.copy(backup / "head.pub", past / "head.pub")

    verified, log = told_by("verify", "--heads", "none", "--data", past)
    replayed, report = told_by("replay", "--data", past, "--archive", backup / "archive")
    assert (verified, replayed, report["mismatches"]) == (0, 0, 0), (log, report)
    with (
        History.of(DataDirectory(past).database) as restored,
        History.of(DataDirectory(backup / "data").database) as whole,
    ):
        kept, all_of_it = restored.checkpoint(), whole.checkpoint()
        assert kept is not None
        assert all_of_it is not None
        assert 0 < kept.position < all_of_it.position
        assert 0 < log["entries"] < whole.counts().entries


def test_a_time_of_which_the_backup_holds_nothing_is_refused_before_anything_is_made(
    backup: Path, tmp_path: Path
) -> None:
    early = ("restore", "--dir", backup / "archive", "--data", tmp_path / "past", "--at")

    before, future = joulie(*early, "2020-01-01"), joulie(*early, "2999-01-01")

    assert (before.returncode, future.returncode) == (2, 2)
    assert "holds nothing of before 2020-01-01" in before.stderr
    assert "is in the future" in future.stderr
    assert not (tmp_path / "past").exists()
