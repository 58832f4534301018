"""`joulie dead`: messages kept in full, and messages kept only by their position."""

import json
from pathlib import Path

import pytest

import joulie_migrations
from joulie_cli.main import main
from joulie_projections.component.data_directory import DataDirectory
from joulie_projections.fold.commit import Poison
from joulie_projections.fold.quarantine_quota import BODIES_PER_SUBJECT, within_quota
from joulie_projections.store import database
from joulie_projections.store.statements import InsertRows, apply_change
from joulie_projections.store.store import Store
from joulie_projections.store.tables import quarantine

COUNT = BODIES_PER_SUBJECT + 40
SHORT = BODIES_PER_SUBJECT + 1  # the first position that is kept without its body


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """With many messages of one subject in quarantine."""
    directory = DataDirectory(tmp_path / "data")
    directory.create()
    owner = database.migrator(directory.database)
    joulie_migrations.upgrade(owner)
    Store(owner).acquire("me", 0, "i", lambda _: True)
    poison = [
        Poison(at, "JOULIE_OBS", at, f"why {at}", b"\xc1", "joulie.obs.c.pod.p")
        for at in range(1, COUNT + 1)
    ]
    with owner.begin() as db:
        apply_change(db, InsertRows(quarantine.name, Poison._fields, within_quota(poison)))
    owner.dispose()
    return directory.path


def test_both_are_listed(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["dead", "list", "--data", str(data)]) == 1
    head, *whole, short, more = capsys.readouterr().out.splitlines()
    assert main(["dead", "list", "-o", "json", "--data", str(data)]) == 1
    listed = json.loads(capsys.readouterr().out)

    assert head.split() == ["position", "message", "why"]
    assert len(whole) == BODIES_PER_SUBJECT
    assert short.split() == [str(SHORT), "JOULIE_OBS", f"#{SHORT}", "why", str(SHORT)]
    assert more.strip() == (
        f"and 39 more of joulie.obs.c.pod.p up to {COUNT}, without their bodies"
    )
    assert (listed[-1]["messages"], listed[-1]["last"], listed[-1]["bytes"]) == (40, COUNT, 0)


def test_one_of_many_is_shown_without_its_body_and_cannot_be_retried(
    data: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["dead", "show", str(COUNT), "--data", str(data)]) == 0
    assert json.loads(capsys.readouterr().out)["body"] is None
    assert main(["dead", "show", "1", "--data", str(data)]) == 0
    assert json.loads(capsys.readouterr().out)["body"] == {"bytes": "c1"}

    assert main(["dead", "retry", str(COUNT), "--data", str(data)]) == 2
    assert "its body was not kept. Nothing was sent." in capsys.readouterr().err
