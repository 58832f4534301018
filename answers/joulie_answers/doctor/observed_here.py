"""Observes what this machine and its settings reach: broker, database, metrics, files."""

import asyncio
import shutil
import ssl
import time
from collections.abc import Mapping, Sequence
from contextlib import closing
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit

from cryptography import x509

import joulie_migrations
from joulie_answers.doctor.judgement.calls import LastCall
from joulie_answers.doctor.judgement.findings import Unseen
from joulie_answers.doctor.judgement.limits import ArchiveSeen, Certificate, ClockSeen, DiskSeen
from joulie_answers.doctor.judgement.log import LogSeen
from joulie_bus.errors import JoulieError
from joulie_bus.jetstream.connection import Connection
from joulie_bus.jetstream.streams import size_of, time_of
from joulie_bus.runtime.settings import HostPort, InForce
from joulie_bus.streams.records import StreamSize
from joulie_bus.streams.roles import Role
from joulie_bus.streams.subjects import Stream
from joulie_projections.component.connecting import address_of
from joulie_projections.component.wiring import Wiring
from joulie_projections.history.history import History
from joulie_projections.store import database
from joulie_projections.store.database import sqlite_file
from joulie_projections.store.postgres import standbys_of
from joulie_projections.store.standbys import Standbys

PATIENCE_S = 3.0
NS = 10**9
CERTIFICATES = (
    "NATS_CA_FILE",
    "NATS_CERT_FILE",
    "EXTENDER_TLS_CERT_FILE",
    "EXTENDER_TLS_CLIENT_CA_FILE",
)


class BrokerSeen(NamedTuple):
    version: str
    clock: ClockSeen
    streams: Sequence[StreamSize]


class DatabaseSeen(NamedTuple):
    schema: str
    last: LastCall
    log: LogSeen = LogSeen(0, 0.0)
    standbys: Standbys | None = None  # None for a database without any


async def broker(wires: Wiring) -> BrokerSeen | Unseen:
    try:
        connection = await Connection.open(
            address_of(wires, Role.AUDITOR), "joulie-doctor", PATIENCE_S
        )
    except (JoulieError, OSError, ssl.SSLError) as error:
        return Unseen(str(error))
    try:
        clock = await _clock(connection)
        streams = [await size_of(connection, stream) for stream in Stream]
        return BrokerSeen(connection.server_version, clock, streams)
    except JoulieError as error:
        return Unseen(str(error))
    finally:
        await connection.close()


async def _clock(connection: Connection) -> ClockSeen:
    before = time.time_ns()
    there = await time_of(connection, Stream.OBS)
    return clock_seen(there, before, time.time_ns())


def clock_seen(there: int, before: int, after: int, resolution_s: float = 0.0) -> ClockSeen:
    """The offset of a clock that was read between two readings of ours, in ns."""
    middle = (before + after) / 2
    return ClockSeen((there - middle) / NS, (after - before) / NS / 2 + resolution_s)


def database_of(wires: Wiring) -> DatabaseSeen | Unseen:
    place = wires.data.database
    try:
        wires.data.require()
        engine = database.reader(place)
        try:
            database.require_reachable(engine)
            schema = joulie_migrations.current(engine)
            standbys = standbys_of(engine)
        finally:
            engine.dispose()
        if not schema:
            return DatabaseSeen(schema, LastCall(0, 0), standbys=standbys)
        with History.readable(place) as history:
            return DatabaseSeen(schema, _last_call(history), _log_in(history), standbys)
    except JoulieError as error:
        return Unseen(str(error))


def _last_call(history: History) -> LastCall:
    newest = history.newest_answers(1)
    return LastCall(newest[0].decided_at if newest else 0, history.counts().answers)


def _log_in(history: History) -> LogSeen:
    count, _ = history.foreign_rows(0)
    since = history.unsigned_since()
    return LogSeen(count, 0.0 if not since else max(0, time.time_ns() - since) / NS)


def disk(wires: Wiring) -> DiskSeen | None:
    """Of the data directory; None if it is not on this machine."""
    if not wires.data.path.exists():
        return None
    usage = shutil.disk_usage(wires.data.path)
    file = sqlite_file(wires.data.database)
    size = file.stat().st_size if file is not None and file.exists() else 0
    return DiskSeen(usage.free, usage.total, size)


async def problem_of(url: str) -> str:
    """The problem of a server; empty if it is ready."""
    place = urlsplit(url)
    address = HostPort(place.hostname or "", place.port or 0)
    if place.scheme == "https":
        return await _handshake(address)
    return await asyncio.to_thread(_probe, address)


def _probe(address: HostPort) -> str:
    try:
        with closing(HTTPConnection(*address, timeout=PATIENCE_S)) as connection:
            connection.request("GET", "/readyz")
            response = connection.getresponse()
            said = response.read().decode(errors="replace").strip()
    except (OSError, HTTPException) as error:
        return str(error) or type(error).__name__
    return "" if response.status == 200 else said


async def _handshake(address: HostPort) -> str:
    """Without a client certificate nothing more can be asked of a server with TLS."""
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    try:
        async with asyncio.timeout(PATIENCE_S):
            _, writer = await asyncio.open_connection(*address, ssl=context)
    except (OSError, TimeoutError) as error:
        return str(error) or "no answer in time"
    writer.close()
    return ""


def certificates(settings: Sequence[InForce]) -> list[Certificate | Unseen]:
    """The first certificate to expire in each file of the settings."""
    files = {row.name: row.value for row in settings if row.name in CERTIFICATES and row.value}
    return [certificate_in(name, _read(path)) for name, path in files.items()]


def certificates_in(directory: Path) -> list[Certificate | Unseen]:
    files = sorted(directory.glob("*.crt"))
    found = [certificate_in(path.stem, _read(str(path))) for path in files]
    return found or [Unseen(f"there is no *.crt in {directory}")]


def certificate_in(name: str, pem: bytes | Unseen) -> Certificate | Unseen:
    if isinstance(pem, Unseen):
        return Unseen(f"{name}: {pem.why}")
    try:
        found = x509.load_pem_x509_certificates(pem)
    except ValueError as error:
        return Unseen(f"{name}: {error}")
    return Certificate(name, min(each.not_valid_after_utc.timestamp() for each in found))


def _read(path: str) -> bytes | Unseen:
    try:
        return Path(path).read_bytes()
    except OSError as error:
        return Unseen(error.strerror or str(error))


def from_gauges(gauges: Mapping[str, float], drops_old: frozenset[Stream]) -> list[StreamSize]:
    """Sizes as the projector measured them; streams that it has not measured are left out."""
    return [
        StreamSize(
            stream,
            int(gauges[f"joulie_stream_bytes{{{stream}}}"]),
            int(gauges.get(f"joulie_stream_max_bytes{{{stream}}}", 0)),
            stream in drops_old,
            *(0, 0, 0),
        )
        for stream in Stream
        if f"joulie_stream_bytes{{{stream}}}" in gauges
    ]


def disk_from(gauges: Mapping[str, float]) -> DiskSeen | Unseen:
    """As the projector that leads measured it."""
    try:
        return DiskSeen(
            gauges["joulie_data_free_bytes"],
            gauges["joulie_data_size_bytes"],
            gauges["joulie_database_bytes"],
        )
    except KeyError:
        return Unseen("the projector has not measured it yet")


def archive_from(gauges: Mapping[str, float]) -> ArchiveSeen | Unseen:
    """As the archiver measured it."""
    try:
        return ArchiveSeen(
            failing=gauges["joulie_archive_failing"] > 0,
            behind_s=gauges["joulie_archive_oldest_unarchived_seconds"],
            due_s=gauges["joulie_archive_trim_due_seconds"],
            free=gauges["joulie_archive_free_bytes"],
            size=gauges["joulie_archive_size_bytes"],
        )
    except KeyError:
        return Unseen("the archiver has not ended its first pass")
