"""Polls the grid: what energy costs and its carbon intensity, from files and over HTTP."""

import asyncio
import time
from base64 import b64encode
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from urllib.parse import SplitResult, unquote, urlsplit

import aiohttp
import msgspec
from msgspec.structs import replace

from joulie_bus.core.redaction import masked
from joulie_bus.errors import BusError
from joulie_bus.events import GridFact
from joulie_bus.events.grid import EVERY_ZONE
from joulie_bus.log.producer import Producer
from joulie_bus.log.protocol import Log
from joulie_bus.log.refusals import Refusals
from joulie_bus.runtime.logging import get_logger
from joulie_bus.streams.batch_limits import MAX_BATCH
from joulie_bus.streams.subjects import Subjects
from joulie_operator.cluster_settings import GridSettings
from joulie_operator.facts.grid_documents import (
    LONGEST,
    GridUnreadable,
    Point,
    read_document,
)
from joulie_operator.observe.fact_messages import to_messages
from joulie_operator.telemetry import prometheus

PATIENCE = aiohttp.ClientTimeout(total=20)
Place = tuple[str, str, int]  # type, zone and start of a rate
log = get_logger("grid")


async def poll_grid(bus: Log, subjects: Subjects, settings: GridSettings) -> None:
    """Runs until cancelled. What cannot be read is left out: the last rates end by themselves."""
    poller = GridPoller(settings)
    producer = Producer("operator-grid", subjects, time.time_ns)
    refused = Refusals("grid", "they are published with the next poll")
    async with prometheus.session() as session:
        while True:
            fresh = await poller.fresh(session, time.time_ns())
            try:
                for part in _parts(fresh):
                    await bus.publish(to_messages(producer, part))
                    poller.published(part)
            except BusError as error:
                refused.observe(error)
            else:
                refused.ended()
            await asyncio.sleep(settings.interval_s)


def _parts(facts: Sequence[GridFact]) -> Iterator[Sequence[GridFact]]:
    for first in range(0, len(facts), MAX_BATCH):
        yield facts[first : first + MAX_BATCH]


class GridPoller:
    """Remembers which rates were published, so that each is published once."""

    def __init__(self, settings: GridSettings) -> None:
        self._settings = settings
        self._published: dict[Place, GridFact] = {}

    async def fresh(self, session: aiohttp.ClientSession, now: int) -> list[GridFact]:
        """The rates in force and those that start later, unless they were published."""
        facts: list[GridFact] = []
        for number, source in enumerate(self._settings.sources, 1):
            try:
                points = read_document(await _read(session, source.address))
                facts += current(_of_zones(points, source.zones), now)
            except GridUnreadable as error:
                log.warning(
                    "grid_unreadable",
                    source=f"number {number} of GRID_SOURCE, {_public_name(source.address)}",
                    why=masked(str(error)),
                    what="nothing of it is published; energy without a rate counts as unpriced",
                )
        return [fact for fact in facts if self._published.get(_place(fact)) != fact]

    def published(self, facts: Iterable[GridFact]) -> None:
        self._published |= {_place(fact): fact for fact in facts}


def _public_name(address: str) -> str:
    """The host of a URL, or the name of a file: the whole setting is hidden in log lines."""
    return urlsplit(address).hostname or Path(address).name


async def _read(session: aiohttp.ClientSession, address: str) -> str:
    if not address.startswith(("http://", "https://")):
        return await asyncio.to_thread(_text_of, Path(address))
    try:
        parts = urlsplit(address)
        bare = parts._replace(netloc=parts.netloc.rpartition("@")[2])
        headers = await _headers(session, parts, bare)
        return (await _fetch(session, bare.geturl(), headers)).decode()
    except (aiohttp.ClientError, TimeoutError, OSError, ValueError) as error:
        raise GridUnreadable(f"{error or type(error).__name__}") from error


async def _headers(
    session: aiohttp.ClientSession, given: SplitResult, bare: SplitResult
) -> Mapping[str, str]:
    """Electricity Maps takes a token; WattTime one for which a user and a password log in."""
    user, password = unquote(given.username or ""), unquote(given.password or "")
    if not user:
        return {}
    if not password:
        return {"auth-token": user, "Authorization": f"Bearer {user}"}
    basic = b64encode(f"{user}:{password}".encode()).decode()
    login = bare._replace(path="/login", query="", fragment="").geturl()
    body = await _fetch(session, login, {"Authorization": f"Basic {basic}"})
    found = msgspec.json.decode(body, type=dict[str, str])
    return {"Authorization": f"Bearer {found.get('token', '')}"}


async def _fetch(session: aiohttp.ClientSession, url: str, headers: Mapping[str, str]) -> bytes:
    """Redirects are refused, because they would carry the token to another host."""
    options = {"headers": headers, "timeout": PATIENCE, "allow_redirects": False}
    async with session.get(url, **options) as response:  # type: ignore[arg-type]
        body = bytearray()
        async for chunk in response.content.iter_chunked(65_536):
            body += chunk
            if len(body) > LONGEST:
                raise GridUnreadable(f"the document has more than {LONGEST} bytes")
        if response.status != 200:
            raise GridUnreadable(f"answered {response.status}: {bytes(body[:200])!r}")
        return bytes(body)


def _text_of(path: Path) -> str:
    try:
        return path.read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise GridUnreadable(f"{error}") from error


def current(facts: Iterable[GridFact], now: int) -> list[GridFact]:
    """Of each kind and zone the newest that has started, and those that start later."""
    found: list[GridFact] = []
    newest: dict[tuple[str, str], GridFact] = {}
    for fact in sorted(facts, key=_start):
        if fact.starts > now:
            found.append(fact)
        elif not fact.ends or fact.ends > now:
            newest[fact.TYPE, fact.zone] = fact
    return [*newest.values(), *found]


def _of_zones(points: Iterable[Point], zones: Sequence[str]) -> list[GridFact]:
    """The facts of the zones of nodes. Without any, what a provider answers is about all nodes."""
    facts: list[GridFact] = []
    for point in points:
        names = zones or ([point.zone] if point.is_ours else [EVERY_ZONE])
        facts += [replace(point.fact, zone=name) for name in names]
    return facts


def _place(fact: GridFact) -> Place:
    return fact.TYPE, fact.zone, fact.starts


def _start(fact: GridFact) -> int:
    return fact.starts
