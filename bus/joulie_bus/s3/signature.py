"""Signs requests to an S3 bucket with AWS Signature Version 4.

Only what a request of `bucket` needs: the whole body is signed, and the time is in a header.
"""

import hashlib
import hmac
import time
from collections.abc import Mapping
from typing import NamedTuple
from urllib.parse import quote

ALGORITHM, SERVICE = "AWS4-HMAC-SHA256", "s3"


class Credentials(NamedTuple):
    access_key: str
    secret_key: str
    region: str


class Request(NamedTuple):
    method: str
    host: str  # with the port, as the header names it
    path: str
    query: Mapping[str, str] = {}
    headers: Mapping[str, str] = {}  # names in lower case
    body: bytes = b""

    @property
    def target(self) -> str:
        text = self.query_text
        return quoted(self.path) + (f"?{text}" if text else "")

    @property
    def query_text(self) -> str:
        pairs = sorted((_strict(name), _strict(value)) for name, value in self.query.items())
        return "&".join(f"{name}={value}" for name, value in pairs)


def quoted(path: str) -> str:
    return quote(path, safe="/-_.~")


def _strict(text: str) -> str:
    return quote(text, safe="-_.~")


def signed_headers(request: Request, credentials: Credentials, at_s: float) -> dict[str, str]:
    """The headers of the request with its signature, for a clock at `at_s`."""
    moment = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime(at_s))
    digest = hashlib.sha256(request.body).hexdigest()
    headers = {
        **request.headers,
        "host": request.host,
        "x-amz-content-sha256": digest,
        "x-amz-date": moment,
    }
    names = ";".join(sorted(headers))
    lines = "".join(f"{name}:{headers[name].strip()}\n" for name in sorted(headers))
    canonical = "\n".join(
        (request.method, quoted(request.path), request.query_text, lines, names, digest)
    )
    scope = f"{moment[:8]}/{credentials.region}/{SERVICE}/aws4_request"
    hashed = hashlib.sha256(canonical.encode()).hexdigest()
    text = "\n".join((ALGORITHM, moment, scope, hashed))
    signature = hmac.new(_key(credentials, moment[:8]), text.encode(), "sha256").hexdigest()
    named = f"Credential={credentials.access_key}/{scope}, SignedHeaders={names}"
    return {**headers, "authorization": f"{ALGORITHM} {named}, Signature={signature}"}


def _key(credentials: Credentials, day: str) -> bytes:
    key = f"AWS4{credentials.secret_key}".encode()
    for part in (day, credentials.region, SERVICE, "aws4_request"):
        key = hmac.new(key, part.encode(), "sha256").digest()
    return key
