"""Connections to BMCs, which are kept between readings.

Opening one takes two thirds of the processor time of a reading. A BMC has few of them to give,
and it, or a firewall before it, may end an idle one without a word.
"""

import contextlib
from collections.abc import AsyncGenerator, Collection
from typing import Any

import aiohttp

AT_ONCE = 32  # readings
MOST_KEPT = 256  # asyncio takes 0.3 MiB for each connection with TLS
KEPT_S = 75.0  # while idle: longer than a minute, the interval for thousands of BMCs
OWN_NS = 24 * 3600 * 10**9  # after a failure


class Connections:
    """One to each BMC at most. A BMC that failed has a new one for each reading for a day."""

    def __init__(self) -> None:
        self._session: aiohttp.ClientSession | None = None
        self._kept = set[str]()  # addresses
        self._failed: dict[str, int] = {}

    def begin(self, addresses: Collection[str], now_ns: int) -> None:
        """A round of readings: the first MOST_KEPT of these keep their connections."""
        wanted = set(addresses)
        self._failed = {
            each: at for each, at in self._failed.items() if each in wanted and now_ns - at < OWN_NS
        }
        self._kept &= wanted
        free = sorted(wanted - self._kept - self._failed.keys())
        self._kept.update(free[: MOST_KEPT - len(self._kept)])

    def failed(self, address: str, now_ns: int) -> None:
        self._kept.discard(address)
        self._failed[address] = now_ns

    @contextlib.asynccontextmanager
    async def session(self, address: str) -> AsyncGenerator[aiohttp.ClientSession, None]:
        if address in self._kept:
            self._session = self._session or _session()
            yield self._session
        else:
            async with _session() as own:
                yield own

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()
            self._session = None


def _session() -> aiohttp.ClientSession:
    connector = aiohttp.TCPConnector(limit=AT_ONCE, limit_per_host=1, keepalive_timeout=KEPT_S)
    jar = aiohttp.DummyCookieJar()
    plain: dict[str, Any] = {"auto_decompress": False, "headers": {"Accept-Encoding": "identity"}}
    return aiohttp.ClientSession(connector=connector, cookie_jar=jar, **plain)
