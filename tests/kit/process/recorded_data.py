"""A data directory with a log of nine entries, which grows, is copied and is set back."""

import asyncio
import contextlib
import shutil
import sqlite3
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import joulie_migrations
from audit_kit import RecordedLog, small_log_in
from bus_kit import ask
from joulie_cli.main import main
from joulie_projections.store import database


@asynccontextmanager
async def recorded_in(data: Path, keys: Path) -> AsyncGenerator[RecordedLog, None]:
    data.mkdir(mode=0o700)
    engine = database.migrator(data / "joulie.db")
    joulie_migrations.upgrade(engine)
    engine.dispose()
    async with small_log_in(data / "joulie.db", keys) as recorded:
        yield recorded


async def verify(*words: str) -> int:
    return await asyncio.to_thread(main, ["verify", *words])


async def grow(recorded: RecordedLog, *pods: str) -> None:
    for pod in pods:
        await recorded.builder.answer(ask(pod))
    recorded.builder.sign()


def copied(recorded: RecordedLog, to: Path) -> Path:
    assert isinstance(recorded.database, Path)
    with (
        contextlib.closing(sqlite3.connect(recorded.database)) as db,
        contextlib.closing(sqlite3.connect(to)) as copy,
    ):
        db.backup(copy)
    return to


def replaced(data: Path, copy: Path) -> None:
    """Sets the database back to an older copy."""
    for suffix in ("", "-wal", "-shm"):
        (data / f"joulie.db{suffix}").unlink(missing_ok=True)
    shutil.copy(copy, data / "joulie.db")
