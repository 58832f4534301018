"""Shared by all commands: the settings and the data directory. Imports no library of a broker."""

import dataclasses
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from joulie_bus.runtime import logging
from joulie_bus.runtime.settings import BusSettings, Source, duration, setting, text
from joulie_bus.streams.subjects import Subjects
from joulie_projections.component.data_directory import DEFAULT, DataDirectory

log = logging.get_logger("settings")


def database_url(text: str) -> str:
    """sqlite:///path, postgresql://user:password@host/name, or empty for a file in the directory"""
    if not text:
        return text  # and an agent never loads SQLAlchemy
    from joulie_projections.store import database

    return database.checked_url(text)


@dataclasses.dataclass(frozen=True, kw_only=True)
class PlaceSettings:
    data: str = setting(text, "JOULIE_DATA", str(DEFAULT), "The data directory")
    keys: str = setting(
        text,
        "JOULIE_KEYS",
        "",
        "The directory with `head.key`, which only the projector needs; empty for the data "
        "directory",
    )
    database: str = setting(
        database_url,
        "DATABASE_URL",
        "",
        "Database of positions, states and decisions; empty for a SQLite file in the data "
        "directory",
        secret=True,
    )
    migration_timeout_s: float = setting(
        duration,
        "MIGRATION_TIMEOUT",
        "0s",
        "How long a component that starts waits for `joulie migrate` of another process; then it "
        "ends with an error",
    )


class Wiring(NamedTuple):
    source: Source
    bus: BusSettings
    data: DataDirectory
    subjects: Subjects


def wired(
    part: str,
    settings: Sequence[type],
    data: Path | None,
    config: Path | None,
    elsewhere: Callable[[], Sequence[str]] = tuple,
) -> Wiring:
    """Read all settings of a command before anything starts; reports all mistakes at once."""
    source = Source(os.environ, config)
    bus, place = source.load(BusSettings), source.load(PlaceSettings)
    for cls in settings:
        source.load(cls)
    source.finish(elsewhere)
    logging.configure(bus.log_level, bus.log_format, part)
    for name, instead in source.without_effect.items():
        log.warning("setting_without_effect", setting=name, instead=instead)
    where = data or Path(place.data)
    directory = DataDirectory(where, place.database, bus.nats_server_bin, place.keys)
    return Wiring(source, bus, directory, Subjects(bus.cluster))
