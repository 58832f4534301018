"""A bucket with the API of S3: objects that are written once, read and listed.

It follows no redirect, so that a signed request goes to the endpoint of the settings alone.
"""

import html
import http.client
import io
import re
import ssl
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple
from urllib.parse import urlsplit

from joulie_bus.errors import BucketFailed
from joulie_bus.runtime.http_deadline import within
from joulie_bus.runtime.settings import setting, text
from joulie_bus.s3.signature import Credentials, Request, signed_headers

TIMEOUT_S = 10.0  # without a byte of an answer, and for each block that is sent
ANSWER_S = 60.0  # of a whole answer; a large one has more time
SLOWEST = 1 << 20  # bytes a second
BLOCK_BYTES = 1 << 18
LARGEST = 16 << 20
LISTED_AT_ONCE = 1000
MOST_LISTED = 10_000_000  # heads of ten years are 3,000,000
_NAME = re.compile(r"[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]")  # of a bucket
_PREFIX = re.compile(r"(?:[A-Za-z0-9_-][A-Za-z0-9._-]*/)*")
_KEY = re.compile(r"<Key>([^<]*)</Key>")
_MORE = re.compile(r"<NextContinuationToken>([^<]*)</NextContinuationToken>")
_CODE, _MESSAGE = re.compile(r"<Code>([^<]*)</Code>"), re.compile(r"<Message>([^<]*)</Message>")
_FOUND, _EXISTS = frozenset({200, 204}), 412
_LOOPBACK = frozenset({"127.0.0.1", "::1", "localhost"})


class BucketPlace(NamedTuple):
    """Where the objects are: URL of the server, name of the bucket, prefix of all keys."""

    scheme: str
    host: str  # with the port, if it is not that of the scheme
    bucket: str
    prefix: str  # empty, or ends with a slash

    def __str__(self) -> str:
        return f"{self.scheme}://{self.host}/{self.bucket}/{self.prefix}"


def bucket_place(url: str) -> BucketPlace:
    """https://HOST[:PORT]/BUCKET[/PREFIX]"""
    parsed = urlsplit(url)
    bucket, _, prefix = parsed.path.removeprefix("/").partition("/")
    prefix = prefix.rstrip("/") + "/" if prefix.strip("/") else ""
    is_plain = not (parsed.username or parsed.query or parsed.fragment)
    if not (parsed.hostname and is_plain and _NAME.fullmatch(bucket) and _PREFIX.fullmatch(prefix)):
        raise ValueError("not https://HOST/BUCKET or https://HOST/BUCKET/PREFIX")
    if parsed.scheme != "https" and not (parsed.scheme == "http" and parsed.hostname in _LOOPBACK):
        raise ValueError("not an address with https, which is needed beyond this machine")
    port = parsed.port  # raises ValueError for one that is none
    is_default = port in (None, 443 if parsed.scheme == "https" else 80)
    host = f"[{parsed.hostname}]" if ":" in parsed.hostname else parsed.hostname
    return BucketPlace(parsed.scheme, host if is_default else f"{host}:{port}", bucket, prefix)


@dataclass(frozen=True, kw_only=True)
class BucketSettings:
    region: str = setting(text, "S3_REGION", "us-east-1", "Region of the S3 bucket")
    access_key: str = setting(text, "S3_ACCESS_KEY", "", "Access key of the S3 bucket", secret=True)
    secret_key: str = setting(text, "S3_SECRET_KEY", "", "Secret key of the S3 bucket", secret=True)
    ca_file: str = setting(
        text, "S3_CA_FILE", "", "Authority of the S3 server's certificate, if the system has it not"
    )


class Bucket:
    """Each call is one connection: calls are seconds apart, and any thread may make one."""

    def __init__(self, place: BucketPlace, settings: BucketSettings) -> None:
        self.place = place
        self._ca_file = settings.ca_file
        self._credentials = Credentials(settings.access_key, settings.secret_key, settings.region)

    def put_new(self, name: str, body: bytes) -> bool:
        """False if an object of the name exists: it is never overwritten."""
        headers = {"if-none-match": "*", "content-length": str(len(body))}
        status, answer = self._asked("PUT", name, headers=headers, body=body)
        if status == _EXISTS:
            return False
        self._require(status, answer)
        return True

    def get(self, name: str, largest: int = LARGEST) -> bytes | None:
        """None if there is no object of the name. Raises BucketFailed for one that is larger."""
        status, answer = self._asked("GET", name, largest=largest)
        if status == 404 and _first(_CODE, answer) == "NoSuchKey":
            return None
        self._require(status, answer)
        return answer

    def names(self) -> Iterator[str]:
        """The names of all objects, in order; each page is asked for when it is needed."""
        prefix = self.place.prefix
        query = {"list-type": "2", "prefix": prefix, "max-keys": str(LISTED_AT_ONCE)}
        more = ""
        for _ in range(MOST_LISTED // LISTED_AT_ONCE):
            asked = query | ({"continuation-token": more} if more else {})
            status, answer = self._asked("GET", None, query=asked)
            self._require(status, answer)
            listed = answer.decode("utf-8", "replace")
            for key in _KEY.findall(listed):
                yield html.unescape(key).removeprefix(prefix)
            found = _MORE.search(listed)
            if found is None:
                return
            more = html.unescape(found[1])
        raise BucketFailed(str(self.place), f"a list of more than {MOST_LISTED} objects")

    def _asked(
        self,
        method: str,
        name: str | None,
        *,
        query: Mapping[str, str] | None = None,
        headers: Mapping[str, str] | None = None,
        body: bytes = b"",
        largest: int = LARGEST,
    ) -> tuple[int, bytes]:
        place = self.place
        path = f"/{place.bucket}" + ("" if name is None else f"/{place.prefix}{name}")
        request = Request(method, place.host, path, query or {}, headers or {}, body)
        sent = signed_headers(request, self._credentials, time.time())
        connection = self._connection()
        try:
            # As a file it is sent in blocks: one `sendall` of it all would have one time-out.
            connection.request(method, request.target, io.BytesIO(body) if body else None, sent)
            with within(connection, ANSWER_S + largest / SLOWEST):
                reply = connection.getresponse()
                answer = reply.read(largest + 1)
        except (OSError, http.client.HTTPException) as error:
            raise BucketFailed(str(place), str(error) or type(error).__name__) from error
        finally:
            connection.close()
        if len(answer) > largest:
            raise BucketFailed(str(place), f"an answer of more than {largest} bytes")
        return reply.status, answer

    def _connection(self) -> http.client.HTTPConnection:
        if self.place.scheme == "http":
            return http.client.HTTPConnection(
                self.place.host, timeout=TIMEOUT_S, blocksize=BLOCK_BYTES
            )
        try:
            context = ssl.create_default_context(cafile=self._ca_file or None)
        except OSError as error:
            why = f"S3_CA_FILE={self._ca_file!r} cannot be used: {error.strerror or error}"
            raise BucketFailed(str(self.place), why) from error
        return http.client.HTTPSConnection(
            self.place.host, timeout=TIMEOUT_S, context=context, blocksize=BLOCK_BYTES
        )

    def _require(self, status: int, answer: bytes) -> None:
        if status not in _FOUND:
            named = " ".join(filter(None, (_first(_CODE, answer), _first(_MESSAGE, answer))))
            raise BucketFailed(str(self.place), f"the server answered {status} {named}".rstrip())


def _first(pattern: re.Pattern[str], answer: bytes) -> str:
    found = pattern.search(answer[:4096].decode("utf-8", "replace"))
    return html.unescape(found[1]) if found else ""
