"""What another user has planted is not believed."""

import os
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path

import pytest

from joulie_bus.errors import DataDirectoryError
from joulie_bus.runtime.own_files import open_regular, read_own, require_own
from joulie_bus.runtime.secret_files import keep_private, make_private, private, write_private

NOBODY = 65534
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files to others")


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    made = tmp_path / "data"
    made.mkdir(mode=0o700)
    return made


def of_another(path: Path) -> None:
    os.chown(path, NOBODY, NOBODY)


def test_a_directory_and_a_file_of_ones_own_are_read(directory: Path) -> None:
    write_private(directory / "head.key", "secret")
    (directory / "link").symlink_to("head.key")

    require_own(directory)
    assert read_own(directory / "head.key") == b"secret"


@pytest.mark.parametrize("mode", [0o777, 0o702, 0o770, 0o1777])
def test_a_directory_that_others_may_write_to_is_refused(directory: Path, mode: int) -> None:
    directory.chmod(mode)

    with pytest.raises(DataDirectoryError, match="others may write to it") as caught:
        require_own(directory)
    assert str(directory) in str(caught.value)


@needs_root
def test_a_directory_of_another_user_is_refused(directory: Path) -> None:
    of_another(directory)

    with pytest.raises(DataDirectoryError, match="belongs to the user with number 65534"):
        require_own(directory)


@needs_root
def test_what_another_user_put_into_the_directory_is_refused(directory: Path) -> None:
    link = directory / "joulie.db"
    link.symlink_to("/etc/passwd")
    os.chown(link, NOBODY, NOBODY, follow_symlinks=False)

    with pytest.raises(DataDirectoryError, match=r"joulie\.db is not trusted"):
        require_own(directory)


@needs_root
def test_a_file_that_is_renamed_while_the_directory_is_read_does_not_matter(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (directory / ".run.json.1").write_text("")
    scan = os.scandir

    def and_rename(path: Path) -> AbstractContextManager[list[os.DirEntry[str]]]:
        with scan(path) as entries:
            found = list(entries)
        (directory / ".run.json.1").rename(directory / "run.json")
        return nullcontext(found)

    monkeypatch.setattr(os, "scandir", and_rename)

    require_own(directory)

    assert (directory / "run.json").exists()


def test_a_file_of_another_user_is_refused(directory: Path) -> None:
    file = directory / "head.key"
    write_private(file, "known to its maker")
    of_another(file)

    with pytest.raises(DataDirectoryError, match="belongs to the user with number 65534"):
        read_own(file)


def test_a_file_that_all_may_write_to_is_refused(directory: Path) -> None:
    file = directory / "head.key"
    write_private(file, "secret")
    file.chmod(0o606)

    with pytest.raises(DataDirectoryError, match="others may write to it"):
        read_own(file)


def as_link(file: Path) -> None:
    elsewhere = file.with_name("elsewhere")
    elsewhere.write_text("known")
    file.symlink_to(elsewhere)


def as_device(file: Path) -> None:
    file.symlink_to("/dev/zero")


def as_pipe(file: Path) -> None:
    os.mkfifo(file)


@pytest.mark.parametrize("plant", [as_link, as_device, as_pipe, Path.mkdir])
def test_a_link_a_pipe_and_a_device_are_no_file(
    directory: Path, plant: Callable[[Path], None]
) -> None:
    file = directory / "head.key"
    plant(file)

    with pytest.raises(DataDirectoryError, match="is not trusted"):
        read_own(file)
    with pytest.raises(OSError, match=r".+"):
        open_regular(file)


def test_nothing_is_written_through_a_link(directory: Path, tmp_path: Path) -> None:
    outside, link = tmp_path / "outside", directory / "link"
    outside.write_text("as it was")
    link.symlink_to(outside)

    with pytest.raises(OSError, match="symbolic link"):
        make_private(link)
    with pytest.raises(OSError, match="symbolic link"):
        private(str(link), os.O_WRONLY)
    keep_private(link, "new")
    assert outside.read_text() == "as it was"
    write_private(link, "new")
    assert (outside.read_text(), link.read_text(), link.is_symlink()) == ("as it was", "new", False)


def test_what_is_written_once_is_synced_with_its_name(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced = list[int]()

    def fsync(file: int, *, really: Callable[[int], None] = os.fsync) -> None:
        synced.append(os.fstat(file).st_ino)
        really(file)

    monkeypatch.setattr(os, "fsync", fsync)
    for name, write in (("head.key", keep_private), ("run.json", write_private)):
        synced.clear()
        write(directory / name, "content")
        assert synced == [(directory / name).stat().st_ino, directory.stat().st_ino]
