"""What only its owner may read is there as a whole, and once."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier

import pytest
from structlog.testing import capture_logs

from joulie_bus.runtime.secret_files import keep_private, tighten, write_private

TOGETHER = 16


def test_concurrent_writers_all_find_the_file_of_the_first_one(
    tmp_path: Path,
) -> None:
    for path in (tmp_path / str(turn) for turn in range(20)):
        gate = Barrier(TOGETHER)

        def keep(mine: int, path: Path = path, gate: Barrier = gate) -> str:
            gate.wait()
            keep_private(path, f"{mine}\n" * 1000)
            return path.read_text()

        with ThreadPoolExecutor(TOGETHER) as pool:
            found = set(pool.map(keep, range(TOGETHER)))

        assert len(found) == 1
        assert len(found.pop().split()) == 1000


def test_what_is_written_takes_the_place_of_what_was_there(tmp_path: Path) -> None:
    write_private(tmp_path / "it", "old and long")
    write_private(tmp_path / "it", "new")

    assert (tmp_path / "it").read_text() == "new"


@pytest.mark.parametrize("put", [keep_private, write_private])
def test_it_is_its_owners_alone_and_leaves_nothing_beside_it(
    tmp_path: Path, put: Callable[[Path, str], None]
) -> None:
    put(tmp_path / "it", "text")

    assert [path.name for path in tmp_path.iterdir()] == ["it"]
    assert (tmp_path / "it").stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("before", [0o644, 0o666, 0o640, 0o600])
def test_what_others_could_read_is_its_owners_alone(tmp_path: Path, before: int) -> None:
    path = tmp_path / "it"
    path.write_text("text")
    path.chmod(before)
    tighten(path, tmp_path / "not there")

    assert (path.stat().st_mode & 0o777, path.read_text()) == (0o600, "text")


def test_a_file_that_cannot_be_made_private_is_logged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError(1, "Operation not permitted")

    (tmp_path / "it").touch(0o644)
    (tmp_path / "it").chmod(0o644)
    monkeypatch.setattr(Path, "chmod", refuse)
    with capture_logs() as lines:
        tighten(tmp_path / "it")

    assert [(line["event"], line["why"]) for line in lines] == [
        ("not_private", "Operation not permitted")
    ]
