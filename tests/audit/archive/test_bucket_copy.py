"""An archive is copied to a bucket of a real S3 server once, and fetched from there where it is
missing.
"""

import itertools
import re
import shutil
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any

import pytest

from audit_kit import RecordedLog, written_archive
from bus_kit import ask, power
from joulie_audit.archive.bucket_copy import PUBLIC_KEYS, BucketCopy
from joulie_audit.archive.parts import Archive
from joulie_audit.verify.verify_archive import verify_archive
from joulie_bus.errors import ArchiveBroken, BucketFailed
from joulie_bus.s3.bucket import Bucket
from s3_server import S3Server, serving_s3

pytestmark = [pytest.mark.anyio, pytest.mark.slow]
NO_LIMIT = 2**62


class Killed(Exception):
    pass


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Generator[S3Server]:
    with serving_s3(tmp_path_factory.mktemp("s3")) as serving:
        yield serving


@pytest.fixture
def bucket(server: S3Server, request: pytest.FixtureRequest) -> Bucket:
    return server.bucket("-".join(re.findall(r"[a-z.]+", request.node.name)))


async def archived(recorded: RecordedLog, to: Path) -> None:
    await written_archive(recorded, to)
    recorded.builder.signer.publish(to / PUBLIC_KEYS)


async def grow(recorded: RecordedLog) -> None:
    await recorded.builder.facts(power("n1", 99))
    await recorded.builder.answer(ask("new"))
    recorded.builder.sign()


async def require_whole(recorded: RecordedLog, to: Path) -> None:
    async with recorded.reading() as (history, _):
        found = verify_archive(Archive.of(to), recorded.builder.signer.public, history)
    assert found.flaw is None
    assert found.facts == recorded.builder.position


def content(path: Path) -> dict[str, bytes]:
    files = [file for file in path.rglob("*") if file.is_file()]
    return {str(file.relative_to(path)): file.read_bytes() for file in files}


async def test_a_fetched_archive_is_the_one_that_was_put(
    small_log: RecordedLog, tmp_path: Path, bucket: Bucket
) -> None:
    await archived(small_log, tmp_path / "a")

    assert BucketCopy(bucket, tmp_path / "a").put() == 2
    assert BucketCopy(bucket, tmp_path / "b").fetch() == 2

    assert content(tmp_path / "b") == content(tmp_path / "a")
    assert (tmp_path / "b").stat().st_mode & 0o077 == 0
    await require_whole(small_log, tmp_path / "b")


async def test_an_archive_whose_directory_was_lost_continues(
    small_log: RecordedLog, tmp_path: Path, bucket: Bucket
) -> None:
    await archived(small_log, tmp_path / "a")
    BucketCopy(bucket, tmp_path / "a").put()
    shutil.rmtree(tmp_path / "a")
    await grow(small_log)

    copy = BucketCopy(bucket, tmp_path / "a")
    copy.fetch()
    await archived(small_log, tmp_path / "a")

    assert copy.put() == 2
    BucketCopy(bucket, tmp_path / "b").fetch()
    await require_whole(small_log, tmp_path / "b")


async def test_what_is_in_the_bucket_is_not_sent_again(
    small_log: RecordedLog, tmp_path: Path, bucket: Bucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    await archived(small_log, tmp_path / "a")
    BucketCopy(bucket, tmp_path / "a").put()
    sent: list[str] = []

    def put_new(name: str, _: bytes) -> bool:
        sent.append(name)
        return True

    monkeypatch.setattr(bucket, "put_new", put_new)

    copy = BucketCopy(bucket, tmp_path / "a")
    assert copy.fetch() == 0
    assert (copy.put(), copy.put()) == (0, 0)

    assert [name.partition("/")[0] for name in sent] == ["keys"]


async def test_a_process_that_is_killed_at_any_request_leaves_whole_parts_and_the_next_continues(
    small_log: RecordedLog, tmp_path: Path, bucket: Bucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    await archived(small_log, tmp_path / "a")
    asked, requests = bucket._asked, 0

    def dying_at(number: int) -> Callable[..., Any]:
        left = itertools.count(number, -1)

        def ask_once(*args: Any, **options: Any) -> tuple[int, bytes]:
            if next(left) == 0:
                raise Killed
            return asked(*args, **options)

        return ask_once

    for number in itertools.count():
        monkeypatch.setattr(bucket, "_asked", dying_at(number))
        copy = BucketCopy(bucket, tmp_path / "a")
        try:
            copy.fetch()
            copy.put()
            BucketCopy(bucket, tmp_path / "b").fetch()
            break
        except Killed:
            requests += 1
            if (tmp_path / "b").exists():
                assert Archive(tmp_path / "b").facts is not None

    assert requests > 10
    await require_whole(small_log, tmp_path / "b")


async def test_the_bucket_of_another_log_is_refused_and_nothing_changes(
    small_log: RecordedLog, tmp_path: Path, bucket: Bucket
) -> None:
    await archived(small_log, tmp_path / "a")
    BucketCopy(bucket, tmp_path / "a").put()
    await grow(small_log)
    await archived(small_log, tmp_path / "other")
    before = content(tmp_path / "other")

    for act in (BucketCopy.fetch, BucketCopy.put):
        with pytest.raises(BucketFailed, match="is of another archive"):
            act(BucketCopy(bucket, tmp_path / "other"))

    assert content(tmp_path / "other") == before


@pytest.mark.parametrize("damaged", ["/messages.seg", "/manifest.json"])
async def test_an_object_that_was_exchanged_is_not_fetched(
    small_log: RecordedLog, tmp_path: Path, bucket: Bucket, server: S3Server, damaged: str
) -> None:
    await archived(small_log, tmp_path / "a")
    BucketCopy(bucket, tmp_path / "a").put()
    [name] = [
        name for name in bucket.names() if name.startswith("facts") and name.endswith(damaged)
    ]
    body = bucket.get(name)
    assert body is not None
    server.remove(bucket, name)
    bucket.put_new(name, body.replace(b"1", b"2", 1))

    with pytest.raises(ArchiveBroken):
        BucketCopy(bucket, tmp_path / "b").fetch()

    assert not Archive(tmp_path / "b").facts


async def test_a_part_that_was_removed_is_named(
    small_log: RecordedLog, tmp_path: Path, bucket: Bucket, server: S3Server
) -> None:
    await archived(small_log, tmp_path / "a")
    await grow(small_log)
    await archived(small_log, tmp_path / "a")
    BucketCopy(bucket, tmp_path / "a").put()
    first = min(name for name in bucket.names() if name.endswith("manifest.json"))
    server.remove(bucket, first)

    with pytest.raises(BucketFailed, match="does not follow the part before it"):
        BucketCopy(bucket, tmp_path / "b").fetch()


def test_objects_that_are_no_parts_are_left_alone(tmp_path: Path, bucket: Bucket) -> None:
    for name in ("facts/../../x/manifest.json", "facts/a/b/c/manifest.json", "other"):
        bucket.put_new(name, b"{}")

    assert BucketCopy(bucket, tmp_path / "b").fetch() == 0
    assert content(tmp_path) == {}
