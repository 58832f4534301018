"""Engines of one file or server, used by several threads at once."""

import threading

import pytest
from sqlalchemy import Engine, func, select

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
