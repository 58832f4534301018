"""Reads numbers from a Prometheus server or from a JSON endpoint, with a short timeout."""

import contextlib
import math
from collections.abc import Mapping
from typing import Any

import aiohttp
import msgspec

from joulie_bus.core.undecodable import UNDECODABLE
from joulie_operator.facts.readings import Series

PATIENCE = aiohttp.ClientTimeout(total=10)
LARGEST = 64 << 20  # an answer about 100,000 cards has 40 MB


class NoReading(Exception):
    """A request without a usable response; the message names the address and the cause."""


class Result(msgspec.Struct):
    """One series of a query result."""

    metric: dict[str, str] = {}
    value: tuple[float, str] = (0.0, "NaN")


class Data(msgspec.Struct, rename="camel"):
    result_type: str = ""
    result: msgspec.Raw = msgspec.Raw(b"[]")


class Answer(msgspec.Struct, rename="camel"):
    """The response of the query API."""

    status: str = ""
    data: Data = msgspec.field(default_factory=Data)
    error: str = ""


_read_answer = msgspec.json.Decoder(Answer).decode
_read_vector = msgspec.json.Decoder(list[Result]).decode
_read_scalar = msgspec.json.Decoder(tuple[float, str]).decode


def session() -> aiohttp.ClientSession:
    """What is compressed may inflate without end: it is not asked for, and not read."""
    headers = {"Accept-Encoding": "identity"}
    return aiohttp.ClientSession(auto_decompress=False, headers=headers)


async def query(session: aiohttp.ClientSession, address: str, promql: str) -> list[Series]:
    """Runs an instant query. A scalar becomes one series without labels."""
    body = await fetch(session, f"{address.rstrip('/')}/api/v1/query", {"query": promql})
    try:
        answer = _read_answer(body)
        if answer.status != "success":
            raise NoReading(f"{address} on {promql}: {answer.error or body[:200]!r}")
        if answer.data.result_type == "scalar":
            return [Series({}, _number(_read_scalar(answer.data.result)[1]))]
        found = _read_vector(answer.data.result)
    except UNDECODABLE as error:
        raise NoReading(f"{address} on {promql}: {error}") from error
    return [Series(result.metric, _number(result.value[1])) for result in found]


async def fetch(
    session: aiohttp.ClientSession, url: str, asked: Mapping[str, str] | None = None
) -> bytes:
    try:
        options = {"timeout": PATIENCE, "allow_redirects": False}
        async with session.get(url, params=asked, **options) as response:  # type: ignore[arg-type]
            body = await bounded(response, url)
            if response.status != 200:
                raise NoReading(f"{url} answered {response.status}: {body[:200]!r}")
            return body
    except (aiohttp.ClientError, TimeoutError, OSError, ValueError) as error:
        raise NoReading(f"{url}: {error or type(error).__name__}") from error


async def bounded(response: aiohttp.ClientResponse, url: str) -> bytes:
    body = bytearray()
    async for part in response.content.iter_chunked(1 << 16):
        body += part
        if len(body) > LARGEST:
            raise NoReading(f"{url} answered more than {LARGEST >> 20} MiB")
    return bytes(body)


def numbers(body: bytes) -> dict[str, float]:
    """The finite numbers of a JSON object, by dotted path."""
    found: dict[str, float] = {}
    try:
        _gather(msgspec.json.decode(body), "", found)
    except UNDECODABLE as error:
        raise NoReading(f"not JSON: {error}") from error
    return found


def _gather(tree: Any, at: str, into: dict[str, float]) -> None:
    if isinstance(tree, dict):
        for key, value in tree.items():
            _gather(value, f"{at}.{key}".lstrip("."), into)
    elif isinstance(tree, int | float) and not isinstance(tree, bool):
        with contextlib.suppress(OverflowError):  # a whole number beyond what a float holds
            if math.isfinite(tree):
                into[at] = float(tree)


def _number(text: str) -> float:
    """Prometheus also writes +Inf and NaN, which `float` parses; callers drop them."""
    try:
        return float(text)
    except ValueError:
        return math.nan
