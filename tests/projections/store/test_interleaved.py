"""Two projectors on one PostgreSQL database, the second one before each statement of the first: one
of them leads, and neither writes what the other one does not know."""

import threading
from collections.abc import Callable, Generator
from concurrent.futures import ThreadPoolExecutor
from concurrent.futures import TimeoutError as NotYet
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import pytest
from sqlalchemy import event

from bus_kit import decided, noon, power, records
from joulie_bus.errors import DatabaseSetBack, Fenced
from joulie_bus.streams.subjects import Stream
from joulie_projections.chain.entry import FIRST_PREV, chain_hash
from joulie_projections.decision_log.anchored import Anchored
from joulie_projections.decision_log.heads import Signer
from joulie_projections.decision_log.log import DecisionLog
from joulie_projections.fold.commit import Checkpoint, Commit
from joulie_projections.fold.sequence import FoldCursor, sequence
from joulie_projections.history.history import History
from joulie_projections.state.rows import cluster_state_of
from joulie_projections.store import database
from joulie_projections.store.database import Place
from joulie_projections.store.retrying import TRANSIENT
from joulie_projections.store.store import Store

MOST = 40  # statements of one call
WAITS_S = 0.1  # for the second one, which may wait for a lock of the first one
pytestmark = pytest.mark.parametrize("place", ["postgres"], indirect=True)


class Outcome(NamedTuple):
    first: object
    second: object


class Both:
    """Two projectors; the first one has led, and its lease has expired."""

    def __init__(self, place: Place) -> None:
        self.place = place
        self._first, self._second = database.writer(place), database.writer(place)
        self.first, self.second = Store(self._first), Store(self._second)
        self.logs = DecisionLog(self._first), DecisionLog(self._second)
        self.lead()

    def lead(self) -> Checkpoint:
        """The first one takes the lease."""
        found = acquired(self.first, "first")
        assert found is not None
        return found

    def each(
        self, prepare: Callable[[], tuple[Callable[[], object], Callable[[], object]]]
    ) -> Generator[Outcome, None, None]:
        """With the second one before the first statement of the first one, before its second one,
        and so on; at last behind all."""
        for number in range(MOST):
            was_held, found = self._interleaved(number, *prepare())
            yield found
            if not was_held:
                return
        raise AssertionError(f"more than {MOST} statements")

    def _interleaved(
        self, number: int, first: Callable[[], object], second: Callable[[], object]
    ) -> tuple[bool, Outcome]:
        reached, go_on, seen = threading.Event(), threading.Event(), iter(range(10**6))

        def before(*_: object) -> None:
            if next(seen) == number:
                reached.set()
                go_on.wait(60)

        event.listen(self._first, "before_cursor_execute", before)
        with ThreadPoolExecutor(2) as pool:
            one = pool.submit(tried, first)
            one.add_done_callback(lambda _: reached.set())
            reached.wait(60)
            was_held = not one.done()
            other = pool.submit(tried, second)
            with suppress(NotYet):
                other.result(WAITS_S)
            go_on.set()
            found = Outcome(one.result(60), other.result(60))
        event.remove(self._first, "before_cursor_execute", before)
        return was_held, found

    def dispose(self) -> None:
        self._first.dispose()
        self._second.dispose()


def acquired(store: Store, name: str) -> Checkpoint | None:
    """With a lease that expires at once."""
    return store.acquire(name, 0.0, f"of {name}", lambda _: False)


def tried(call: Callable[[], object]) -> object:
    """Its result, or the error after which a projector begins again."""
    try:
        return call()
    except (Fenced, DatabaseSetBack, *TRANSIENT) as error:
        return error


@pytest.fixture
def both(place: Place) -> Generator[Both, None, None]:
    made = Both(place)
    yield made
    made.dispose()


def recorded(both: Both) -> Checkpoint:
    found = both.first.checkpoint()
    assert found is not None
    return found


def next_commit(store: Store) -> Commit:
    held, rows = store.load()
    assert held is not None
    cursor = FoldCursor(held.position, held.inputs, held.digests, held.head)
    after = held.inputs[Stream.TEL].sequence if Stream.TEL in held.inputs else 0
    [record] = records(power("a", 1), name=f"after-{held.position}")
    read = [record._replace(sequence=after + 1)]
    made = sequence(cluster_state_of(rows), cursor, read, dict.fromkeys(Stream, "then"), noon())
    return made.commit


def test_two_that_take_the_lease_have_different_epochs(both: Both) -> None:
    for found in both.each(
        lambda: (lambda: acquired(both.first, "first"), lambda: acquired(both.second, "second"))
    ):
        epochs = [each.epoch for each in found if isinstance(each, Checkpoint)]
        assert epochs
        assert len(epochs) == len(set(epochs))
        assert max(epochs) == recorded(both).epoch


def test_one_that_takes_the_lease_knows_what_the_other_one_committed(both: Both) -> None:
    def prepare() -> tuple[Callable[[], object], Callable[[], object]]:
        epoch, work = both.lead().epoch, next_commit(both.second)
        take = lambda: acquired(both.first, "first")  # noqa: E731
        return take, lambda: both.second.commit(epoch, work)

    for taken, committed in both.each(prepare):
        if isinstance(taken, Checkpoint):
            now = recorded(both)
            assert (taken.position, taken.head) == (now.position, now.head)
        else:
            assert not isinstance(committed, Exception)


def test_an_incarnation_is_set_by_the_one_that_leads(both: Both) -> None:
    def prepare() -> tuple[Callable[[], object], Callable[[], object]]:
        held = both.lead()
        reset = lambda: both.first.reset_incarnation(held.epoch, held.position, "new")  # noqa: E731
        return reset, lambda: acquired(both.second, "second")

    for _, taken in both.each(prepare):
        if isinstance(taken, Checkpoint):
            assert taken.incarnation == recorded(both).incarnation


def test_one_that_begins_the_log_and_one_that_appends_write_one_chain(
    both: Both, tmp_path: Path
) -> None:
    known, messages = Anchored(Signer.of(tmp_path / "key").public), records(*map(decided, "abcd"))

    def prepare() -> tuple[Callable[[], object], Callable[[], object]]:
        old, new = both.logs[::-1]
        old.begin(both.lead().epoch, old.beginning(known), known)
        before, after = recorded(both).epoch, both.lead().epoch

        def begin() -> None:
            new.begin(after, new.beginning(known), known)
            new.append(after, messages, "then")

        return begin, lambda: old.append(before, messages, "then")

    for _ in both.each(prepare):
        with History.of(both.place) as history:
            entries = list(history.entries())
        hashes = [FIRST_PREV]
        for entry in entries:
            hashes.append(chain_hash(hashes[-1], entry.body))
        assert [entry.hash for entry in entries] == hashes[1:]
        assert [entry.pod_uid for entry in entries] == list("abcd")
