"""Test kit: rows of the decision log that a program beside the projector inserts."""

from sqlalchemy import text

from bus_kit import decided, records
from joulie_projections.chain.entry import Entry, chain_hash, entry_of, header_of
from joulie_projections.history.history import History, StoredEntry
from joulie_projections.store import database
from joulie_projections.store.database import Place


def following(place: Place, entry: Entry) -> StoredEntry:
    """The row that puts an entry behind the newest row of the database."""
    with History.of(place) as history:
        db = history.connection
        newest = db.execute(text("SELECT pos, hash FROM decision ORDER BY pos DESC LIMIT 1")).one()
    pos, prev = newest.pos + 1, bytes(newest.hash)
    return StoredEntry(pos, *entry.fields, entry.body, prev, chain_hash(prev, entry.body))


def plant(place: Place, entry: Entry) -> StoredEntry:
    """Inserts an entry behind the last one, as any process with the right to insert can."""
    row = following(place, entry)
    engine = database.writer(place)
    with engine.begin() as db:
        if db.dialect.name == "sqlite":
            columns: tuple[str, ...] = ("pos", "body", "prev", "hash")
            values: tuple[object, ...] = (row.pos, *row[7:])
        else:
            columns, values = StoredEntry._fields, tuple(row)
        marks = [f":{name}" for name in columns]
        into = f"INSERT INTO decision ({', '.join(columns)}) VALUES ({', '.join(marks)})"
        db.execute(text(into), dict(zip(columns, values, strict=True)))
    engine.dispose()
    return row


def forged(uid: str, event_id: str) -> Entry:
    """An entry about a pod, with the id of a message."""
    [record] = records(decided(uid), name="extender")
    entry = entry_of(record)
    fields = entry.fields._replace(event_id=event_id)
    return Entry(fields, header_of(fields) + record.data)
