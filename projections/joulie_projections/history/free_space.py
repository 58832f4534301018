"""Measures free space: in the streams, in the database, on the disk of the data directory."""

import asyncio
import contextlib
import shutil
import time
from pathlib import Path

from prometheus_client import Gauge
from sqlalchemy import Engine, text
from sqlalchemy.exc import SQLAlchemyError

from joulie_bus.errors import BusError
from joulie_bus.log.protocol import Log
from joulie_bus.runtime import metrics
from joulie_bus.runtime.logging import get_logger
from joulie_bus.streams.fill_level import Growth, days_left, kept_s
from joulie_bus.streams.subjects import Stream
from joulie_projections.store import database
from joulie_projections.store.database import Place, sqlite_file

POLL_S = 15.0
log = get_logger("free_space")


class FreeSpaceMonitor:
    """Sets the metrics of free space, which alerts and `joulie status` read."""

    def __init__(self, bus: Log, place: Place, directory: Path) -> None:
        self._bus = bus
        self._place = place
        self._directory = directory
        self._growth = {stream: Growth() for stream in Stream}
        self._error = ""

    async def run(self) -> None:
        """Runs until cancelled. After an error the metrics keep their last values."""
        while True:
            error = await self._try_measure()
            if error not in ("", self._error):
                log.warning("free_space_unknown", why=error)
            self._error = error
            await asyncio.sleep(POLL_S)

    async def _try_measure(self) -> str:
        try:
            await self.measure()
        except (BusError, SQLAlchemyError, OSError) as error:
            return str(error) or type(error).__name__
        return ""

    async def measure(self) -> None:
        usage = shutil.disk_usage(self._directory)
        metrics.DATA_FREE_BYTES.set(usage.free)
        metrics.DATA_SIZE_BYTES.set(usage.total)
        metrics.DATABASE_BYTES.set(await asyncio.to_thread(_size_of, self._place))
        for stream in Stream:
            await self._measure_stream(stream, time.time_ns())

    async def _measure_stream(self, stream: Stream, now: int) -> None:
        size, growth = await self._bus.size(stream), self._growth[stream]
        growth.observe(size, now)
        metrics.STREAM_BYTES.labels(stream=stream).set(size.bytes)
        _show(metrics.STREAM_MAX_BYTES, stream, size.max_bytes or None)
        metrics.STREAM_KEPT_SECONDS.labels(stream=stream).set(kept_s(size))
        _show(metrics.STREAM_DAYS_LEFT, stream, days_left(size, growth.per_day(size, now)))


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
    beside = (file.with_name(f"{file.name}{suffix}") for suffix in ("", *database.SQLITE_SUFFIXES))
    return sum(part.stat().st_size for part in beside if part.exists())


def _size_in(engine: Engine) -> int:
    try:
        with engine.connect() as db:
            return int(db.scalar(text("SELECT pg_database_size(current_database())")) or 0)
    finally:
        engine.dispose()
