"""Objects in a bucket, at a real server of S3's API that checks signatures and rights."""

from collections.abc import Generator
from dataclasses import replace
from http.client import HTTPConnection
from pathlib import Path

import pytest

from authority import Authority
from joulie_bus.errors import BucketFailed
from joulie_bus.s3 import bucket as s3_bucket
from joulie_bus.s3.bucket import Bucket, bucket_place
from joulie_bus.s3.signature import Credentials, Request, signed_headers
from s3_server import S3Server, serving_s3

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Generator[S3Server]:
    with serving_s3(tmp_path_factory.mktemp("s3")) as serving:
        yield serving


def test_an_object_is_read_as_it_was_written(server: S3Server) -> None:
    bucket = server.bucket("read/back")

    assert bucket.put_new("1.json", b"\x00 content \xff")
    assert bucket.get("1.json") == b"\x00 content \xff"
    assert bucket.get("2.json") is None


def test_a_large_object_is_sent_in_blocks_of_which_each_has_its_time(
    server: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent: list[int] = []
    send = HTTPConnection.send

    def recorded(connection: HTTPConnection, data: bytes) -> None:
        sent.append(len(data))
        send(connection, data)

    monkeypatch.setattr(HTTPConnection, "send", recorded)
    body = bytes(range(256)) * 12_000

    assert server.bucket("large").put_new("1", body)

    assert max(sent) <= s3_bucket.BLOCK_BYTES < len(body) <= sum(sent)
    assert server.bucket("large").get("1") == body


def test_an_object_is_never_overwritten(server: S3Server) -> None:
    bucket = server.bucket("once")
    assert bucket.put_new("1.json", b"first")

    assert not bucket.put_new("1.json", b"second")
    assert bucket.get("1.json") == b"first"


def test_names_are_listed_in_order_page_by_page(
    server: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(s3_bucket, "LISTED_AT_ONCE", 2)
    bucket, beside = server.bucket("listed"), server.bucket("listed-not")
    names = [f"{number:03d} + ü&<.json" for number in range(5)]
    for name in reversed(names):
        assert bucket.put_new(name, b"x")
    beside.put_new("000.json", b"x")

    assert list(bucket.names()) == names
    assert list(server.bucket("empty").names()) == []


@pytest.mark.parametrize(
    ("wrong", "why"),
    [
        ({"secret_key": "other"}, "SignatureDoesNotMatch"),
        ({"access_key": "AKIAUNKNOWN"}, "InvalidAccessKeyId"),
    ],
)
def test_a_wrong_credential_is_named(server: S3Server, wrong: dict[str, str], why: str) -> None:
    bucket = Bucket(server.bucket().place, replace(server.settings, **wrong))

    with pytest.raises(BucketFailed, match=f"403 {why}") as refused:
        bucket.put_new("1.json", b"x")
    assert server.settings.secret_key not in str(refused.value)
    with pytest.raises(BucketFailed, match=why):
        list(bucket.names())


def test_a_bucket_that_is_missing_is_named(server: S3Server) -> None:
    url = server.url.replace("kept-heads", "none-such")

    with pytest.raises(BucketFailed, match="none-such"):
        Bucket(bucket_place(url), server.settings).get("1.json")


def test_the_certificate_of_the_server_is_checked(tmp_path: Path) -> None:
    known, other = Authority.made(tmp_path, "known"), Authority.made(tmp_path, "other")
    with serving_s3(tmp_path, (*known.issue(tmp_path, "s3"), known.file)) as server:
        bucket = server.bucket()
        stranger = Bucket(bucket.place, replace(server.settings, ca_file=str(other.file)))

        assert bucket.put_new("1.json", b"x")
        assert bucket.get("1.json") == b"x"
        with pytest.raises(BucketFailed, match="certificate verify failed"):
            stranger.get("1.json")


def test_a_server_that_is_away_is_named() -> None:
    with pytest.raises(BucketFailed, match="refused"):
        Bucket(bucket_place("http://127.0.0.1:1/heads"), s3_bucket.BucketSettings()).get("1")


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("https://s3.example.com/heads", "https://s3.example.com/heads/"),
        ("https://s3.example.com:443/heads/a/b/", "https://s3.example.com/heads/a/b/"),
        ("https://s3.example.com:9000/heads/a", "https://s3.example.com:9000/heads/a/"),
        ("http://localhost:9000/heads", "http://localhost:9000/heads/"),
        ("https://[fd00::1]:9000/heads", "https://[fd00::1]:9000/heads/"),
    ],
)
def test_an_address_of_a_bucket_is_read(url: str, shown: str) -> None:
    assert str(bucket_place(url)) == shown


@pytest.mark.parametrize(
    "url",
    [
        "http://s3.example.com/heads",  # others in the network could answer
        "https://user:secret@s3.example.com/heads",
        "https://s3.example.com",
        "https://s3.example.com/Heads",
        "https://s3.example.com/heads/../other",
        "https://s3.example.com/heads/a?x=1",
        "https://s3.example.com:port/heads",
        "ftp://s3.example.com/heads",
        "heads",
    ],
)
def test_what_is_no_address_of_a_bucket_is_refused(url: str) -> None:
    with pytest.raises(ValueError, match=r"not|Port"):
        bucket_place(url)


def test_a_signature_is_that_of_the_example_of_the_specification() -> None:
    """The example "GET Bucket (List Objects)" of its page on the header Authorization."""
    credentials = Credentials(
        "AKIAIOSFODNN7EXAMPLE", "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY", "us-east-1"
    )
    request = Request(
        "GET", "examplebucket.s3.amazonaws.com", "/", {"max-keys": "2", "prefix": "J"}
    )

    made = signed_headers(request, credentials, 1369353600)["authorization"]
    assert made.endswith(
        "Signature=34b48302e7b5fa45bde8084f4b7868a86f0a534bc59db6670ed5711ef69dc6f7"
    )


def test_the_rights_of_the_documentation_remove_nothing(server: S3Server) -> None:
    bucket = server.bucket("kept")
    assert bucket.put_new("1.json", b"x")
    status, _ = bucket._asked("DELETE", "1.json")

    assert status == 403
    assert bucket.get("1.json") == b"x"
