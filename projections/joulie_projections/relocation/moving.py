"""`joulie migrate --from-url`: moves the log to another database, of either kind."""

from typing import NamedTuple

import joulie_migrations
from joulie_bus.errors import NotMoved
from joulie_projections.fold.commit import Checkpoint
from joulie_projections.relocation.new_broker import leased
from joulie_projections.store import database
from joulie_projections.store.copying import copy_database, copy_ledger
from joulie_projections.store.store import Store


class Moved(NamedTuple):
    target: str
    held: Checkpoint
    counts: dict[str, int]


async def move(source: str | None, target: str | None) -> Moved:
    """Copies the database while this command holds its lease; the old one stays as it is."""
    if not source or not target:
        raise NotMoved("Moving the log takes both --from-url URL and --to-url URL.")
    for option, url in (("--from-url", source), ("--to-url", target)):
        _require_url(option, url)
    _require_file(source)
    writer = database.writer(source)
    try:
        database.require_reachable(writer)
        joulie_migrations.require(writer)
        store = Store(writer)
        held = await leased(store)
        try:
            counts = _copied(source, target)
        finally:
            store.release(held.epoch)
    finally:
        writer.dispose()
    return Moved(database.without_password(target), held, counts)


def _require_url(option: str, url: str) -> None:
    try:
        database.checked_url(url)
    except ValueError as error:
        raise NotMoved(f"{option}: {error}.") from error


def _require_file(source: str) -> None:
    file = database.sqlite_file(source)
    if file is not None and not file.exists():
        raise NotMoved(f"There is no {file}.")


def _copied(source: str, target: str) -> dict[str, int]:
    reader, owner = database.reader(source), database.migrator(target)
    try:
        database.require_reachable(owner)
        if joulie_migrations.current(owner):
            where = database.without_password(target)
            raise NotMoved(f"{where} holds tables already; the log moves to an empty database.")
        joulie_migrations.upgrade(owner)
        _copy_ledger(source, target)
        return copy_database(reader, owner)
    finally:
        reader.dispose()
        owner.dispose()


def _copy_ledger(source: str, target: str) -> None:
    old, own = database.ledger_reader(source), database.ledger_owner(target)
    try:
        copy_ledger(old, own)
    finally:
        old.dispose()
        own.dispose()


def as_text(moved: Moved) -> str:
    return (
        f"{moved.counts['decision']} entries, {moved.counts['head']} heads and the state at "
        f"position {moved.held.position} are in {moved.target}, compared with the original. Start "
        f"the components with DATABASE_URL of the new database; the old one is unchanged."
    )
