"""What a witness saw: the newest checkpoint of each log, in a SQLite file.

A submission is compared and kept in one transaction, on the disk before the cosignature leaves.
"""

import sqlite3
from collections.abc import Iterable
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

from joulie_bus.runtime.secret_files import make_private
from joulie_projections.chain.merkle import is_consistent
from joulie_projections.chain.note import Submission, VerifierKey, parse_checkpoint

FILE = "witness.db"
BUSY_MS = 5000
_TABLE = "CREATE TABLE IF NOT EXISTS seen (origin TEXT PRIMARY KEY, note BLOB NOT NULL)"
_PUT = "INSERT INTO seen VALUES (?, ?) ON CONFLICT (origin) DO UPDATE SET note = excluded.note"


class Refused(NamedTuple):
    """An answer of tlog-witness that is no cosignature."""

    status: int
    why: str
    size: int | None = None  # with 409: what the witness saw last


class Seen:
    def __init__(self, file: Path, logs: Iterable[VerifierKey]) -> None:
        self._file = file
        self._logs = dict[str, list[VerifierKey]]()
        for key in logs:
            self._logs.setdefault(key.name, []).append(key)
        make_private(file)
        with closing(self._opened()) as db:
            db.execute(_TABLE)

    def add(self, submission: Submission) -> Refused | None:
        """Keeps the checkpoint if it extends what was seen of its log."""
        new = submission.checkpoint
        keys = self._logs.get(new.origin)
        if keys is None:
            return Refused(404, f"{new.origin} is no log of this witness")
        if not any(map(new.is_signed_by, keys)):
            return Refused(403, f"no key of {new.origin} that this witness trusts has signed it")
        if submission.old > new.size:
            return Refused(400, f"old {submission.old} is more than the size {new.size}")
        with closing(self._opened()) as db:
            db.execute("BEGIN IMMEDIATE")
            refused = _refused(db, submission)
            if refused is None:
                db.execute(_PUT, (new.origin, new.note))
            db.execute("COMMIT")
        return refused

    def newest(self) -> list[tuple[str, bytes]]:
        """The newest checkpoint of each log, with the signatures of the log."""
        with closing(self._opened()) as db:
            return db.execute("SELECT origin, note FROM seen").fetchall()

    def _opened(self) -> sqlite3.Connection:
        db = sqlite3.connect(self._file, isolation_level=None)
        db.execute(f"PRAGMA busy_timeout = {BUSY_MS}")
        db.execute("PRAGMA synchronous = FULL")
        return db


def _refused(db: sqlite3.Connection, submission: Submission) -> Refused | None:
    new, old = submission.checkpoint, submission.old
    found = db.execute("SELECT note FROM seen WHERE origin = ?", (new.origin,)).fetchone()
    seen = parse_checkpoint(found[0]) if found else None
    size = seen.size if seen is not None else 0
    if old != size:
        return Refused(409, "another size was seen", size)
    root = seen.root if seen is not None else b""
    if size == new.size and seen is not None and root != new.root:
        return Refused(409, "a tree of this size with another root was seen", size)
    if not is_consistent(size, root, new.size, new.root, submission.proof):
        return Refused(422, f"the tree does not extend the one of {size} entries that was seen")
    return None
