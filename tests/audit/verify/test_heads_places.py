"""Signed heads in a file and in a bucket: kept once, compared, and a rollback is named."""

import contextlib
import os
from collections.abc import AsyncGenerator, Callable, Generator
from pathlib import Path
from typing import NamedTuple

import pytest

from audit_kit import RecordedLog
from joulie_bus.errors import HeadsNotKept
from joulie_bus.runtime.metrics import HEADS_KEPT
from joulie_bus.s3 import bucket as s3_bucket
from joulie_projections.chain.head import decode
from joulie_projections.chain.keyring import Ring
from joulie_projections.history.history import History
from joulie_projections.witness import head_keepers
from joulie_projections.witness.head_keepers import BucketKeeper, FileKeeper, HeadKeeper
from joulie_projections.witness.keeping import HeadKeeping
from recorded_data import copied, grow, recorded_in, replaced, verify
from s3_server import S3Server, serving_s3

pytestmark = pytest.mark.anyio


class Site(NamedTuple):
    data: Path
    recorded: RecordedLog
    named: str  # the place, as --heads names it
    keeper: Callable[[], HeadKeeper]  # as after a start of the projector
    remove: Callable[[int], None]  # the head of an entry, as an administrator of the place can

    def keep(self) -> None:
        HeadKeeping(self.data / "joulie.db", self.keeper(), self.named, self.ring).keep()

    def ring(self) -> Ring:
        return self.recorded.builder.signer.public

    def entries(self) -> list[int]:
        return [decode(line).pos for line in self.keeper().kept()]

    async def verify(self) -> int:
        return await verify("--data", str(self.data), "--heads", self.named)


def is_kept(place: str) -> bool:
    [metric] = HEADS_KEPT.collect()
    [value] = [each.value for each in metric.samples if each.labels == {"place": place}]
    return value == 1


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Generator[S3Server]:
    with serving_s3(tmp_path_factory.mktemp("s3")) as serving:
        yield serving


@pytest.fixture(params=["file", pytest.param("bucket", marks=pytest.mark.slow)])
async def site(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncGenerator[Site, None]:
    async with recorded_in(tmp_path / "data", tmp_path) as recorded:
        recorded.builder.signer.publish(tmp_path / "data" / "head.pub")
        if request.param == "file":
            file = tmp_path / "kept.jsonl"

            def remove(pos: int) -> None:
                lines = file.read_bytes().splitlines(keepends=True)
                file.write_bytes(b"".join(line for line in lines if decode(line).pos != pos))

            yield Site(
                tmp_path / "data", recorded, f"file:{file}", lambda: FileKeeper(file), remove
            )
            return
        server: S3Server = request.getfixturevalue("server")
        for name, value in server.environ(tmp_path).items():
            monkeypatch.setenv(name, value)
        yield in_bucket(tmp_path, recorded, server)


def in_bucket(directory: Path, recorded: RecordedLog, server: S3Server) -> Site:
    bucket = server.bucket(directory.name.replace("[", "-").replace("]", ""))

    def remove(pos: int) -> None:
        server.remove(bucket, head_keepers._name(pos))

    named = f"s3:{bucket.place}"
    return Site(directory / "data", recorded, named, lambda: BucketKeeper(bucket), remove)


async def test_each_head_is_kept_once_and_the_log_is_valid(
    site: Site, capsys: pytest.CaptureFixture[str]
) -> None:
    site.keep()
    await grow(site.recorded, "later")
    for _ in range(3):
        site.keep()  # each time as after a start

    assert site.entries() == [7, 9, 11]
    assert is_kept(site.named)
    assert await site.verify() == 0
    assert "ends at entry" not in capsys.readouterr().out


async def test_a_log_that_was_set_back_is_named_by_verify_and_by_the_projector(
    site: Site, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    copy = copied(site.recorded, tmp_path / "copy.db")
    await grow(site.recorded, "later")
    site.keep()
    replaced(site.data, copy)
    site.keep()

    assert not is_kept(site.named)
    assert await site.verify() == 1
    assert "a signed head covers entry 11, but the log ends at 9" in capsys.readouterr().out
    assert site.entries() == [7, 9, 11]


async def test_a_head_that_is_missing_in_a_bucket_is_named(
    site: Site, capsys: pytest.CaptureFixture[str]
) -> None:
    await grow(site.recorded, "later")
    site.keep()
    site.remove(9)

    code, said = await site.verify(), capsys.readouterr().out
    if site.named.startswith("s3:"):
        assert code == 1
        assert f"1 signed head is missing from {site.named}: at entry 9" in said
    else:
        assert code == 0  # a file may hold some of the heads


async def test_a_place_that_lacks_the_newest_heads_is_noted(
    site: Site, capsys: pytest.CaptureFixture[str]
) -> None:
    site.keep()
    await grow(site.recorded, "later")

    assert await site.verify() == 0
    note = "ends at entry 9, and the newest signed head of the log at 11"
    assert (note in capsys.readouterr().out) == site.named.startswith("s3:")


async def test_an_empty_place_proves_nothing(
    site: Site, capsys: pytest.CaptureFixture[str]
) -> None:
    assert await site.verify() == 2
    assert "holds no heads" in capsys.readouterr().err


# --- attacks on a file --------------------------------------------------------------------------


@pytest.fixture
async def recorded(tmp_path: Path) -> AsyncGenerator[RecordedLog, None]:
    async with recorded_in(tmp_path / "data", tmp_path) as recorded:
        yield recorded


def keeping_in(file: Path, recorded: RecordedLog) -> HeadKeeping:
    ring = recorded.builder.signer.public
    return HeadKeeping(recorded.database, FileKeeper(file), "file", lambda: ring)


async def test_nothing_is_written_through_a_link_or_to_a_device(
    recorded: RecordedLog, tmp_path: Path
) -> None:
    target, file = tmp_path / "other", tmp_path / "kept.jsonl"
    target.write_bytes(b"of others")
    for to in (target, Path("/dev/zero"), Path("/dev/null")):
        file.symlink_to(to)
        keeping_in(file, recorded).keep()
        assert not is_kept("file")
        file.unlink()
    os.mkfifo(file)
    keeping_in(file, recorded).keep()

    assert not is_kept("file")
    assert target.read_bytes() == b"of others"


async def test_a_line_that_a_full_disk_cut_off_is_written_again(
    recorded: RecordedLog, tmp_path: Path
) -> None:
    file = tmp_path / "kept.jsonl"
    keeping = keeping_in(file, recorded)
    keeping.keep()
    whole = file.read_bytes()
    for cut in (1, 40, len(whole.splitlines()[-1]) + 1, len(whole) - 1, len(whole)):
        os.truncate(file, len(whole) - cut)
        keeping.keep()
        assert file.read_bytes() == whole, cut


# --- attacks on a bucket ------------------------------------------------------------------------


@pytest.mark.slow
async def test_another_head_in_the_place_of_one_is_not_overwritten_and_named(
    recorded: RecordedLog, tmp_path: Path, server: S3Server
) -> None:
    site = in_bucket(tmp_path, recorded, server)
    bucket, name = server.bucket(tmp_path.name), head_keepers._name(7)
    with History.of(site.data / "joulie.db") as history:
        heads = history.heads()
    assert bucket.put_new(name, b'{"pos":7}')

    with pytest.raises(HeadsNotKept, match="it holds another head of this entry"):
        site.keeper().append(heads)
    assert bucket.get(name) == b'{"pos":7}'


@pytest.mark.slow
async def test_an_object_that_is_no_head_stops_nothing_but_is_named(
    recorded: RecordedLog, tmp_path: Path, server: S3Server, capsys: pytest.CaptureFixture[str]
) -> None:
    site = in_bucket(tmp_path, recorded, server)
    recorded.builder.signer.publish(site.data / "head.pub")
    site.keep()
    assert server.bucket(tmp_path.name).put_new("9-planted.json", b"no head")

    with contextlib.ExitStack() as stack:
        patch = stack.enter_context(pytest.MonkeyPatch.context())
        for key, value in server.environ(tmp_path).items():
            patch.setenv(key, value)
        assert await site.verify() == 0
    assert "ignored 1 message of s3:" in capsys.readouterr().out
    assert site.keeper().newest() == 9


@pytest.mark.slow
async def test_a_server_that_overwrites_is_refused(
    recorded: RecordedLog, tmp_path: Path, server: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An older server ignores the condition; without the header this one does, too."""
    site = in_bucket(tmp_path, recorded, server)
    asked = s3_bucket.Bucket._asked

    def unconditional(*args: object, **named: object) -> object:
        return asked(*args, **{**named, "headers": {}})  # type: ignore[arg-type]

    monkeypatch.setattr(s3_bucket.Bucket, "_asked", unconditional)
    site.keep()

    assert not is_kept(site.named)
