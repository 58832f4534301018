"""Engines of one file or server, used by several threads at once."""

import subprocess
import sys
import threading
from pathlib import Path

import pytest
from sqlalchemy import Engine, func, select

from joulie_projections.store import database
from joulie_projections.store.store import Store, empty_checkpoint, insert_new
from joulie_projections.store.tables import checkpoint


def count_checkpoints(engine: Engine) -> int:
    with engine.connect() as db:
        return db.scalar(select(func.count()).select_from(checkpoint)) or 0


def test_a_call_in_another_thread_does_not_end_the_transaction(writer: Engine) -> None:
    def renew() -> None:
        store = Store(writer)
        held = store.acquire("owner", 3, "incarnation", lambda _: False)
        assert held is not None
        store.renew(held.epoch, 3, 0)

    other = threading.Thread(target=renew)
    with writer.begin() as db:
        insert_new(db, checkpoint, empty_checkpoint("decisions"))
        other.start()
        other.join(0.2)  # the other transaction waits for this one

    other.join()
    assert count_checkpoints(writer) == 2


def test_a_failed_call_in_another_thread_does_not_undo_the_transaction(writer: Engine) -> None:
    def fail() -> None:
        with pytest.raises(ZeroDivisionError), writer.connect() as db, db.begin():
            raise ZeroDivisionError

    with writer.begin() as db:
        insert_new(db, checkpoint, empty_checkpoint("decisions"))
        other = threading.Thread(target=fail)
        other.start()
        other.join(0.2)

    other.join()
    assert count_checkpoints(writer) == 1


def test_a_process_that_closes_the_database_removes_no_log_that_another_one_writes(
    tmp_path: Path,
) -> None:
    """SQLite finds out by locks whether another process has the file open. A process that opens and
    closes the file itself, as for its second connection, would lose the locks of its first one."""
    place = tmp_path / "joulie.db"
    opens_and_closes = (
        "import sqlite3, sys\n"
        "other = sqlite3.connect(sys.argv[1])\n"
        "other.execute('SELECT * FROM kept').fetchall()\n"
        "other.close()\n"
    )
    engine = database.writer(place)
    with engine.begin() as first:
        first.exec_driver_sql("CREATE TABLE kept (n INTEGER)")
    with engine.connect(), engine.connect() as second:
        log = place.with_name("joulie.db-wal").stat().st_ino
        subprocess.run([sys.executable, "-c", opens_and_closes, place], check=True)

        assert place.with_name("joulie.db-wal").stat().st_ino == log
        second.exec_driver_sql("INSERT INTO kept VALUES (1)")
        second.commit()
    with database.reader(place).connect() as reader:
        assert reader.exec_driver_sql("SELECT n FROM kept").all() == [(1,)]
