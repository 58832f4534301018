"""The client of one BMC with Redfish (DSP0266), for readings and for switching.

What a BMC sends is bounded, its certificate is verified, redirects are not followed and only paths
of its own are called: a link could send the credentials to another host.
"""

import asyncio
from base64 import b64encode
from functools import lru_cache
from pathlib import Path
from ssl import SSLContext, create_default_context
from typing import Any

import aiohttp
import msgspec

from joulie_bus.core.undecodable import UNDECODABLE
from joulie_operator.controllers.controller_file import RedfishEntry
from joulie_operator.controllers.failure import ControllerFailed
from joulie_operator.controllers.kept_secrets import kept_secret

MOST_BYTES = 1 << 20  # of a document, or of what ipmitool prints


class RedfishService:
    """Raises ControllerFailed, and TimeoutError where the block around a call has a time-out."""

    def __init__(self, session: aiohttp.ClientSession, entry: RedfishEntry) -> None:
        """Reads the secrets, which may have been rotated."""
        self._session = session
        self._address = entry.address.rstrip("/")
        login = b64encode(
            f"{kept_secret(entry.user_file)}:{kept_secret(entry.password_file)}".encode()
        )
        headers = {"Authorization": f"Basic {login.decode()}"}
        tls = _trusting(entry.ca_file)
        self._asking: dict[str, Any] = {"headers": headers, "ssl": tls, "allow_redirects": False}

    async def read(self, path: str) -> dict[str, Any]:
        try:
            return msgspec.json.decode(await self._call("GET", path), type=dict[str, Any])
        except UNDECODABLE as error:
            raise ControllerFailed(f"{self._address}{path} is no JSON object") from error

    async def post(self, path: str, body: object) -> None:
        await self._call("POST", path, body)

    async def _call(self, method: str, path: str, body: object = None) -> bytes:
        """`path` is one of `redfish_paths`: with it the URL stays one of this host."""
        url = f"{self._address}{path}"
        try:
            async with self._session.request(method, url, json=body, **self._asking) as response:
                if not 200 <= response.status < 300:
                    raise ControllerFailed(f"{url} answered {response.status}")
                return await bounded(response.content, url)
        except TimeoutError:
            raise
        except (aiohttp.ClientError, OSError, ValueError) as error:
            raise ControllerFailed(f"{url}: {error or type(error).__name__}") from error


def own_session() -> aiohttp.ClientSession:
    """With one connection, which ends with the block."""
    connector = aiohttp.TCPConnector(limit_per_host=1)
    jar = aiohttp.DummyCookieJar()
    plain: dict[str, Any] = {"auto_decompress": False, "headers": {"Accept-Encoding": "identity"}}
    return aiohttp.ClientSession(connector=connector, cookie_jar=jar, **plain)


async def bounded(content: aiohttp.StreamReader | asyncio.StreamReader, what: str) -> bytes:
    """Raises ControllerFailed for more than MOST_BYTES."""
    body = bytearray()
    while part := await content.read(65536):
        body += part
        if len(body) > MOST_BYTES:
            raise ControllerFailed(f"{what}: more than {MOST_BYTES} bytes")
    return bytes(body)


def _trusting(ca_file: str) -> SSLContext:
    """Kept until the file changes, for thousands of readings."""
    try:
        return _context(ca_file, Path(ca_file).stat().st_mtime_ns if ca_file else 0)
    except OSError as error:
        raise ControllerFailed(f"{ca_file} is no authority") from error


@lru_cache(maxsize=16)
def _context(ca_file: str, _changed_ns: int) -> SSLContext:
    return create_default_context(cafile=ca_file or None)
