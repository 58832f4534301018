"""Measures free space: in the streams, in the database, on the disk of the data directory."""

import asyncio
import contextlib
import shutil
import time
from collections.abc import Awaitable, Callable, Iterable, Set
from pathlib import Path

from sqlalchemy import Engine, text
from sqlalchemy.exc import SQLAlchemyError

from joulie_bus.errors import BusError
from joulie_bus.log.protocol import Log
from joulie_bus.runtime import metrics
from joulie_bus.runtime.logging import get_logger
from joulie_bus.runtime.metrics import Gauge
from joulie_bus.streams.fill_level import Growth, days_left, kept_s
from joulie_bus.streams.records import StreamSize
from joulie_bus.streams.subjects import Stream
from joulie_projections.store import database
from joulie_projections.store.database import Place, sqlite_file

POLL_S = 15.0
SERVER_LOST_NS = 10 * 10**9  # a server answers each second
OF_STREAMS = (
    *(metrics.STREAM_BYTES, metrics.STREAM_MAX_BYTES),
    *(metrics.STREAM_KEPT_SECONDS, metrics.STREAM_DAYS_LEFT),
    metrics.BROKER_SERVER_LOST,
)
log = get_logger("free_space")


class FreeSpaceMonitor:
    """Sets the metrics of free space, which alerts and `joulie status` read."""

    def __init__(self, bus: Log, place: Place, directory: Path) -> None:
        self._bus = bus
        self._place = place
        self._directory = directory
        self._growth = {stream: Growth() for stream in Stream}
        self._servers: Set[str] = frozenset()
        self._error = ""

    async def run(self) -> None:
        """Runs until cancelled. What cannot be measured is not exported."""
        while True:
            error = await self._try_measure()
            if error not in ("", self._error):
                log.warning("free_space_unknown", why=error)
            self._error = error
            await asyncio.sleep(POLL_S)

    async def _try_measure(self) -> str:
        errors = [
            await _tried(self._measure_disk, metrics.DATA_FREE_BYTES, metrics.DATA_SIZE_BYTES),
            await _tried(self._measure_database, metrics.DATABASE_BYTES),
            await _tried(self._measure_streams, *OF_STREAMS),
        ]
        return "; ".join(filter(None, errors))

    async def measure(self) -> None:
        await self._measure_disk()
        await self._measure_database()
        await self._measure_streams()

    async def _measure_disk(self) -> None:
        usage = shutil.disk_usage(self._directory)
        metrics.DATA_FREE_BYTES.set(usage.free)
        metrics.DATA_SIZE_BYTES.set(usage.total)

    async def _measure_database(self) -> None:
        metrics.DATABASE_BYTES.set(await asyncio.to_thread(_size_of, self._place))

    async def _measure_streams(self) -> None:
        sizes = [await self._bus.size(stream) for stream in Stream]
        for size in sizes:
            self._show_stream(size, time.time_ns())
        servers = least_silent(sizes)
        if servers.keys() != self._servers:
            metrics.BROKER_SERVER_LOST.clear()
            self._servers = servers.keys()
        for server, silent_ns in servers.items():
            metrics.BROKER_SERVER_LOST.labels(server=server).set(silent_ns > SERVER_LOST_NS)

    def _show_stream(self, size: StreamSize, now: int) -> None:
        stream, growth = size.stream, self._growth[size.stream]
        growth.observe(size, now)
        metrics.STREAM_BYTES.labels(stream=stream).set(size.bytes)
        _show(metrics.STREAM_MAX_BYTES, stream, size.max_bytes or None)
        metrics.STREAM_KEPT_SECONDS.labels(stream=stream).set(kept_s(size))
        _show(metrics.STREAM_DAYS_LEFT, stream, days_left(size, growth.per_day(size, now)))


def least_silent(sizes: Iterable[StreamSize]) -> dict[str, int]:
    """By server: one that answers for any stream is there."""
    found: dict[str, int] = {}
    for size in sizes:
        for server, silent_ns in size.silent_ns.items():
            found[server] = min(silent_ns, found.get(server, silent_ns))
    return found


async def _tried(measure: Callable[[], Awaitable[None]], *gauges: Gauge) -> str:
    """Why it failed; empty if it did not."""
    try:
        await measure()
    except (BusError, SQLAlchemyError, OSError) as error:
        for gauge in gauges:
            gauge.forget()
        return str(error) or type(error).__name__
    return ""


def _show(gauge: Gauge, stream: Stream, value: float | None) -> None:
    if value is not None:
        gauge.labels(stream=stream).set(value)
        return
    with contextlib.suppress(KeyError):
        gauge.remove(stream)


def _size_of(place: Place) -> int:
    file = sqlite_file(place)
    if file is None:
        return _size_in(database.reader(place))
    suffixes = ("", *database.SQLITE_SUFFIXES)
    both = (file, database.ledger_file(place))
    parts = (each.with_name(f"{each.name}{suffix}") for each in both for suffix in suffixes)
    return sum(part.stat().st_size for part in parts if part.exists())


def _size_in(engine: Engine) -> int:
    try:
        with engine.connect() as db:
            return int(db.scalar(text("SELECT pg_database_size(current_database())")) or 0)
    finally:
        engine.dispose()
