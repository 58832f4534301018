"""Rows, position and manifest are committed together or not at all, by the holder of the lease."""

import os
import tempfile
import threading
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest
from sqlalchemy import Engine, event, select, text
from sqlalchemy.exc import DatabaseError, IntegrityError, OperationalError

import joulie_migrations
from bus_kit import bound, node_seen, noon, pending, power, records
from joulie_bus.errors import DatabaseSetBack, Fenced
from joulie_bus.events import Fact, NodeGone
from joulie_bus.streams.records import Record
from joulie_bus.streams.subjects import Stream
from joulie_projections.fold.commit import Checkpoint, Commit, Poison, Snapshot
from joulie_projections.fold.manifest import rechained
from joulie_projections.fold.sequence import FoldCursor, sequence
from joulie_projections.history.history import History
from joulie_projections.state.rows import VIEWED, Row, cluster_state_of, digests_of, empty_digests
from joulie_projections.store import database
from joulie_projections.store.database import Place
from joulie_projections.store.store import Store, clock_of
from joulie_projections.store.tables import checkpoint
from joulie_projections.twin.row_names import RowName

CREATED = dict.fromkeys(Stream, "then")


def is_never_gone(_: str) -> bool:
    return False


@pytest.fixture
def store(writer: Engine) -> Store:
    return Store(writer)


@pytest.fixture
def leading(store: Store) -> Store:
    """Holds the lease, in epoch 1."""
    store.acquire("me", 10, "first", is_never_gone)
    return store


def next_commit(store: Store, messages: Sequence[Record]) -> Commit:
    """The commit of messages that follows the state of the store."""
    held, rows = store.load()
    assert held is not None
    cursor = FoldCursor(held.position, held.inputs, held.digests, held.head)
    return sequence(cluster_state_of(rows), cursor, messages, CREATED, noon()).commit


def commit(store: Store, *facts: Fact, name: str = "tester") -> Commit:
    done = next_commit(store, records(*facts, name=name))
    store.commit(1, done)
    return done


# --- commits ----------------------------------------------------------------------------------


def test_a_commit_is_read_back_completely(leading: Store, place: Place) -> None:
    done = commit(leading, node_seen("a"), power("a", 100), pending("p"))

    held, rows = leading.load()
    assert held == Checkpoint(
        position=3,
        epoch=1,
        inputs=done.inputs,
        digests=done.digests,
        head=done.manifest.head,
        incarnation="first",
    )
    assert sorted(rows) == sorted(done.rows)
    assert digests_of(rows) == done.digests
    with History.of(place) as history:
        assert list(history.manifests()) == [done.manifest]


@pytest.mark.parametrize("count", [1, 255, 256, 257, 600])
def test_all_committed_rows_are_stored(leading: Store, count: int) -> None:
    commit(leading, *(node_seen(f"n{number}") for number in range(count)))
    done = commit(leading, *(power(f"n{n}", n) for n in range(count)), name="another")

    held, rows = leading.load()
    assert held is not None
    assert digests_of(rows) == held.digests == done.digests
    assert [node.samples[0].power_mw for node in cluster_state_of(rows).nodes.values()] == [
        number * 1000 for number in range(count)
    ]


def test_commits_follow_one_another_and_the_newest_row_stays(leading: Store) -> None:
    commit(leading, node_seen("a"), node_seen("b"))
    done = commit(leading, power("a", 100), NodeGone(node="b"), name="another")

    held, rows = leading.load(["node"])
    assert held is not None
    assert (held.position, held.digests) == (4, done.digests)
    assert list(cluster_state_of(rows).nodes) == ["a"]
    assert cluster_state_of(rows).nodes["a"].samples[0].power_mw == 100_000


def test_a_commit_with_a_refused_row_changes_nothing(leading: Store, place: Place) -> None:
    commit(leading, node_seen("a"))
    before = leading.load()
    done = next_commit(leading, records(power("a", 100), node_seen("b"), name="another"))
    twice = (Poison(2, "OBS", 1, "unreadable", b""),) * 2

    with pytest.raises(IntegrityError):
        leading.commit(1, done._replace(poison=twice))

    assert leading.load() == before
    with History.of(place) as history:
        assert [manifest.p_to for manifest in history.manifests()] == [1]


# Not for PostgreSQL, where a commit is one statement.
@pytest.mark.parametrize("place", ["database_file"], indirect=True)
def test_a_crash_on_commit_leaves_rows_position_and_manifest_as_they_were(
    leading: Store, writer: Engine, place: Place
) -> None:
    commit(leading, node_seen("a"))
    before = leading.load()
    done = next_commit(leading, records(power("a", 100), node_seen("b"), name="another"))

    @event.listens_for(writer, "commit")
    def fail_on_commit(_: object) -> None:
        raise OSError("no space left on device")

    with pytest.raises(OSError, match="no space left"):
        leading.commit(1, done)
    event.remove(writer, "commit", fail_on_commit)

    assert leading.load() == before
    with History.of(place) as history:
        assert [manifest.p_to for manifest in history.manifests()] == [1]

    leading.commit(1, done)
    held, _ = leading.load()
    assert held is not None
    assert held.position == 3


@pytest.mark.parametrize("epoch", [0, 2])
def test_a_commit_of_another_epoch_is_fenced_and_changes_nothing(
    leading: Store, epoch: int
) -> None:
    commit(leading, node_seen("a"))
    before = leading.load()

    with pytest.raises(Fenced):
        leading.commit(epoch, next_commit(leading, records(power("a", 1), name="another")))

    assert leading.load() == before


def test_a_commit_at_another_position_is_fenced_and_changes_nothing(leading: Store) -> None:
    first = next_commit(leading, records(node_seen("a")))
    other = next_commit(leading, records(node_seen("b")))
    leading.commit(1, first)
    before = leading.load()

    with pytest.raises(Fenced):
        leading.commit(1, other)

    assert leading.load() == before


def test_a_commit_without_a_reply_can_be_retried_and_is_stored_once(
    leading: Store, place: Place
) -> None:
    done = next_commit(leading, records(node_seen("a")))
    leading.commit(1, done)
    before = leading.load()

    leading.commit(1, done)

    assert leading.load() == before
    with History.of(place) as history:
        assert list(history.manifests()) == [done.manifest]


def test_manifests_are_appended_without_rows_by_the_holder_of_the_lease(
    leading: Store, place: Place
) -> None:
    done = next_commit(leading, records(node_seen("a"), power("a", 100)))
    first, poison = done.manifest, Poison(2, "JOULIE_TEL", 1, "odd", b"x", "s")
    second = rechained(first._replace(p_from=3, p_to=4, prev=first.head))
    named = [RowName(2, 0, "a"), RowName(4, 0, "b")]

    with pytest.raises(Fenced):
        leading.append_manifests(2, [first, second], [poison], named)
    leading.append_manifests(1, [first, second], [poison], named)

    held, rows = leading.load()
    assert held is not None
    assert (held.position, held.head, held.digests, rows) == (4, second.head, empty_digests(), [])
    with History.of(place) as history:
        assert list(history.manifests()) == [first, second]
        assert history.quarantined() == [poison]
        assert history.row_name_changes(1, 4) == named
        assert history.row_name_changes(3, 4) == named[1:]


def test_poison_is_stored_in_quarantine_with_its_position(leading: Store, writer: Engine) -> None:
    garbage = Record(Stream.TEL, 1, noon(), b"garbage")
    leading.commit(1, next_commit(leading, [garbage, *records(node_seen("a"))]))

    with writer.connect() as db:
        [kept] = db.execute(text("SELECT position, stream, sequence, why, body FROM quarantine"))
    assert Poison(*kept)._replace(why="") == Poison(1, "JOULIE_TEL", 1, "", b"garbage")
    assert "JOULIE_TEL #1 is not an event we know" in kept.why


# --- what changed -----------------------------------------------------------------------------


def changed(store: Store, position: int) -> list[tuple[str, str, bool]]:
    """Table, key, and whether it is still there."""
    _, rows = store.changes_since(position, VIEWED)
    assert rows is not None
    return sorted((row.table, row.key, row.body is not None) for row in rows)


def test_changes_since_a_position_include_deleted_keys(leading: Store) -> None:
    commit(leading, node_seen("a"), node_seen("b"))
    commit(leading, NodeGone(node="a"), power("b", 1), name="x")
    commit(leading, bound("p", "b"), name="y")

    assert changed(leading, 0) == [
        ("cluster", "cluster", True),
        ("node", "a", False),
        ("node", "b", True),
        ("pod", "p", True),
    ]
    assert changed(leading, 2) == [
        ("cluster", "cluster", True),  # the row of a is free now
        ("node", "a", False),
        ("node", "b", True),
        ("pod", "p", True),
    ]
    assert changed(leading, 4) == [
        ("cluster", "cluster", True),  # one producer more
        ("node", "b", True),
        ("pod", "p", True),
    ]
    assert changed(leading, 5) == []


def test_a_key_that_was_deleted_and_recreated_is_not_reported_as_deleted(leading: Store) -> None:
    commit(leading, node_seen("a"))
    commit(leading, NodeGone(node="a"), name="x")
    commit(leading, node_seen("a"), name="y")

    assert ("node", "a", True) in changed(leading, 1)
    assert ("node", "a", False) not in changed(leading, 1)


def test_the_changes_since_any_position_bring_a_reader_up_to_date(
    leading: Store,
) -> None:
    snapshots: list[list[Row]] = []
    facts: list[Fact] = [node_seen("a"), power("a", 9), pending("p"), NodeGone(node="a")]
    for number, fact in enumerate(facts):
        commit(leading, fact, name=f"n{number}")
        snapshots.append(leading.load(VIEWED)[1])

    for position, held_rows in enumerate(snapshots, 1):
        mine = {(row.table, row.key): row for row in held_rows}
        changes = leading.changes_since(position, VIEWED)[1]
        assert changes is not None
        mine |= {(row.table, row.key): row for row in changes}
        there = [row for row in mine.values() if row.body is not None]
        assert sorted(there) == sorted(snapshots[-1])


# --- the lease --------------------------------------------------------------------------------


def test_a_free_lease_is_taken_in_the_first_epoch(store: Store) -> None:
    held = store.acquire("me", 10, "first", is_never_gone)

    assert held == Checkpoint(0, 1, {}, empty_digests(), b"", "first")


def test_a_held_lease_keeps_others_waiting(leading: Store) -> None:
    assert leading.acquire("you", 10, "second", is_never_gone) is None


def test_an_expired_lease_is_taken_in_a_new_epoch_of_the_same_history(
    leading: Store,
) -> None:
    commit(leading, node_seen("a"))

    leading.renew(1, -0.001, 1)

    held = leading.acquire("you", 10, "second", is_never_gone)

    assert held is not None
    assert (held.epoch, held.position, held.incarnation) == (2, 1, "first")


def test_a_lease_whose_owner_is_gone_is_taken_at_once(leading: Store) -> None:
    held = leading.acquire("you", 10, "second", "me".__eq__)

    assert held is not None
    assert held.epoch == 2


def test_a_renewed_lease_lasts_longer(leading: Store) -> None:
    leading.renew(1, -0.001, 0)
    leading.renew(1, 60, 0)

    assert leading.acquire("you", 10, "second", is_never_gone) is None


def test_a_renewal_that_waits_for_the_database_counts_how_far_it_is_behind_then(
    leading: Store, writer: Engine
) -> None:
    behind_s = [1.0]

    def waits(_: object) -> None:
        behind_s[0] += 60

    event.listen(writer, "begin", waits)
    leading.renew(1, 60, 0, lambda: behind_s[0])
    event.remove(writer, "begin", waits)

    found = leading.progress()
    assert found is not None
    assert found.behind_s >= 61


def test_a_lost_lease_cannot_be_renewed(leading: Store) -> None:
    leading.renew(1, -0.001, 0)
    leading.acquire("you", 10, "second", is_never_gone)

    with pytest.raises(Fenced, match="epoch 1"):
        leading.renew(1, 60, 0)


def test_a_database_without_the_last_commit_renews_no_lease(leading: Store) -> None:
    commit(leading, node_seen("a"))

    with pytest.raises(DatabaseSetBack, match=r"is at position 1, .* committed 2"):
        leading.renew(1, 10, 2)


def test_a_database_without_the_last_commit_takes_no_further_one(leading: Store) -> None:
    """A standby that lagged has the same epoch."""
    following = next_commit(leading, records(node_seen("a")))
    manifest = following.manifest._replace(p_from=2, p_to=2)

    with pytest.raises(DatabaseSetBack, match=r"is at position 0, .* committed 1"):
        leading.commit(1, following._replace(manifest=manifest))


def test_a_database_without_the_last_commit_takes_no_snapshot_of_it(leading: Store) -> None:
    commit(leading, node_seen("a"))

    with pytest.raises(DatabaseSetBack, match=r"is at position 1, .* committed 2"):
        leading.save_snapshot(1, Snapshot(2, "1", noon(), b"", b""), 3)

    assert leading.newest_snapshot() == 0


def test_a_lease_lasts_by_the_clock_of_the_database(leading: Store, writer: Engine) -> None:
    """Not by that of the machine, which may differ from that of another projector."""
    with writer.connect() as db:
        until = db.scalar(select(checkpoint.c.until))
        assert until is not None
        assert 9e9 < until - clock_of(db) <= 10e9


def test_of_two_concurrent_attempts_one_takes_the_lease(place: Place) -> None:
    engines = [database.writer(place) for _ in range(2)]
    together = threading.Barrier(2)

    def acquire(engine: Engine) -> object:
        together.wait(60)
        try:
            return Store(engine).acquire(str(id(engine)), 10, "first", is_never_gone)
        except OperationalError as error:  # the projector tries again
            return error

    with ThreadPoolExecutor(2) as pool:
        held = list(pool.map(acquire, engines))
    for engine in engines:
        engine.dispose()

    assert [found.epoch for found in held if isinstance(found, Checkpoint)] == [1]


def test_of_two_writers_at_the_same_position_one_commits(leading: Store, place: Place) -> None:
    engines = [database.writer(place) for _ in range(2)]
    works = [next_commit(leading, records(node_seen(name))) for name in ("a", "b")]
    together = threading.Barrier(2)

    def work(engine: Engine, done: Commit) -> bool:
        together.wait(60)
        try:
            Store(engine).commit(1, done)
        except (Fenced, OperationalError):
            return False
        return True

    with ThreadPoolExecutor(2) as pool:
        committed = list(pool.map(work, engines, works))
    for engine in engines:
        engine.dispose()

    assert sorted(committed) == [False, True]
    assert sorted(leading.load()[1]) == sorted(works[committed.index(True)].rows)


# --- readers ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "statement",
    [
        "DELETE FROM node_twin",
        "UPDATE checkpoint SET position = 0",
        "INSERT INTO gone VALUES (1, 'node', 'a', 1)",
        "DROP TABLE pod",
        "CREATE TABLE mine (x int)",
    ],
)
def test_a_reader_cannot_write(leading: Store, place: Place, statement: str) -> None:
    commit(leading, node_seen("a"))
    reader = database.reader(place)

    with (
        pytest.raises(DatabaseError, match=r"readonly database|read-only transaction"),
        reader.begin() as db,
    ):
        db.exec_driver_sql(statement)
    reader.dispose()

    assert len(leading.load(["node"])[1]) == 1


def test_a_reader_sees_one_snapshot_while_the_writer_commits(leading: Store, place: Place) -> None:
    commit(leading, node_seen("a"))
    reader = database.reader(place)

    with reader.connect() as db, db.begin():
        before = db.scalar(text("SELECT position FROM checkpoint"))
        commit(leading, node_seen("b"), name="another")
        nodes = db.scalar(text("SELECT count(*) FROM node_twin"))
    reader.dispose()

    assert (before, nodes) == (1, 1)


@pytest.mark.parametrize("open_again", [database.migrator, database.writer])
def test_only_the_owner_may_read_a_database_file_and_the_files_beside_it(
    tmp_path: Path, open_again: Callable[[Path], Engine]
) -> None:
    path = tmp_path / "joulie.db"
    first = database.migrator(path)
    joulie_migrations.upgrade(first)
    fresh = {file.name: file.stat().st_mode & 0o777 for file in tmp_path.glob("joulie.db*")}
    for file in tmp_path.glob("joulie.db*"):
        file.chmod(0o644)
    engine = open_again(path)
    with engine.connect() as db:
        db.execute(text("SELECT 1"))
        modes = {file.stat().st_mode & 0o777 for file in tmp_path.glob("joulie.db*")}
    engine.dispose()
    first.dispose()

    assert fresh == dict.fromkeys(("joulie.db", "joulie.db-wal", "joulie.db-shm"), 0o600)
    assert modes == {0o600}


@contextmanager
def without_rights_to_write(directory: Path) -> Generator[None]:
    """As a process to which the volume is mounted read-only; root needs another user for it."""
    paths = [directory, *directory.iterdir()]
    modes = {path: path.stat().st_mode & 0o777 for path in paths}
    for path in paths:
        path.chmod(0o555 if path == directory else 0o444)
    user = os.geteuid()
    os.seteuid(user or 65534)
    try:
        yield
    finally:
        os.seteuid(user)
        for path, mode in modes.items():
            path.chmod(mode)


def test_a_reader_that_may_not_write_to_the_volume_follows_the_log() -> None:
    """It needs the -shm file that the writer keeps, and does not change it."""
    with tempfile.TemporaryDirectory() as directory:
        file = Path(directory) / "joulie.db"
        owner = database.migrator(file)
        joulie_migrations.upgrade(owner)
        owner.dispose()
        writing, reading = database.writer(file), database.reader(file)
        for count in range(1, 4):
            with writing.begin() as db:
                db.execute(text(f"INSERT INTO gone VALUES ({count}, 'node', 'n{count}', 1)"))
            with without_rights_to_write(Path(directory)), reading.begin() as db:
                assert db.scalar(text("SELECT count(*) FROM gone")) == count
        writing.dispose()
        with without_rights_to_write(Path(directory)), reading.begin() as db:
            assert db.scalar(text("SELECT count(*) FROM gone")) == 3
        reading.dispose()
